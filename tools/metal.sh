# shellcheck shell=bash
# metal.sh - the kernels for Apple GPUs, run on a CPU beside those of MLX's wheel for macOS
# (tests/metal/README.md). `./run test metal` runs everything, `./run test` a part. Sourced by run.

# The emulator's instructions for x86-64 and the wheel of MLX that its tests use are on Linux.
can_emulate_metal() { [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ]; }

setup_metal() {
    require cc g++ cmake make pkg-config openssl xxhash python clang++ new-clang clang-fuzz \
        python-headers
    setup_mlx
    build_release
    build_mlx -DBINADE_WERROR=ON
    METAL_NEW_CLANG=$(new_clang)
    export METAL_NEW_CLANG
    # Fetches MLX's kernels, without which nothing is proven.
    step metal-kernels-of-mlx "$MLX_PYTHON" tests/metal/compile_all.py
}

# Half the files in one process, half in another: each runs kernels on one core.
run_metal_pytest() { # [PYTEST OPTION]...
    local files=(tests/metal/test_*.py) halves=("" "") i status=0 log
    for i in "${!files[@]}"; do halves[i % 2]+=" ${files[i]}"; done
    log=$(log_path "metal-other-half")
    # shellcheck disable=SC2086  # file names hold no spaces
    run_metal_files ${halves[1]} "$@" >"$log" 2>&1 &
    # shellcheck disable=SC2086
    run_metal_files ${halves[0]} "$@" || status=$?
    wait $! || status=$?
    cat "$log"
    return "$status"
}

run_metal_files() { # FILE... [PYTEST OPTION]...
    "$MLX_PYTHON" -m pytest -q -rfEs -c tools/pytest.ini --rootdir "$ROOT" "$@"
}

# The sum over all processes.
# shellcheck disable=SC2034  # passed and failed are the caller's
count_pytests() {
    local all_passed=0 all_failed=0 line part
    part=$(log_path "metal-count")
    while IFS= read -r line; do
        printf '%s\n' "$line" >"$part"
        count_pytest "$part"
        all_passed=$((all_passed + passed)) all_failed=$((all_failed + failed))
    done < <(grep -E ' in [0-9.]+s' "$1")
    passed=$all_passed failed=$all_failed
}

# Our kernels and the emulator once more, watched by clang's sanitizers.
run_sanitized_metal_pytest() { # [PYTEST OPTION]...
    local preload
    preload=$(cd tests/metal && "$MLX_PYTHON" -c \
        'import compiling; print(compiling.sanitizer_library())') || return 1
    # Python keeps memory until it ends.
    METAL_SANITIZE=1 LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0 run_metal_pytest "$@"
}

test_metal() { # quick|full
    local chosen=()
    if ! can_emulate_metal; then
        say "note   Metal is emulated on Linux x86-64 only: nothing of it is tested"
        return 0
    fi
    setup_metal
    [ "$1" = full ] || chosen=(-m "not slow")
    suite "Metal kernels, emulated" count_pytests run_metal_pytest "${chosen[@]+"${chosen[@]}"}"
    [ "$1" = quick ] || suite "Metal kernels, emulated, address and undefined sanitizers" count_pytests \
        run_sanitized_metal_pytest -m "not slow" -k "not metal_oracle and not metal_air and not metal_mlx"
}
