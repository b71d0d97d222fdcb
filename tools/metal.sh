# shellcheck shell=bash
# metal.sh - the kernels for Apple GPUs, run on a CPU beside those of MLX's wheel for macOS
# (tests/metal/README.md). `./run test metal` runs everything, `./run test` a part. Sourced by run.

# The emulator's instructions for x86-64 and the wheel of MLX that its tests use are on Linux.
can_emulate_metal() { [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ]; }

setup_metal() {
    require cc g++ python clang++ new-clang python-headers
    setup_mlx
    METAL_NEW_CLANG=$(new_clang)
    export METAL_NEW_CLANG
    # Fetches MLX's kernels, without which nothing is proven.
    step metal-kernels-of-mlx "$MLX_PYTHON" tests/metal/compile_all.py
}

run_metal_pytest() { # [PYTEST OPTION]...
    "$MLX_PYTHON" -m pytest -q -rfEs -c tools/pytest.ini --rootdir "$ROOT" "$@" tests/metal
}

test_metal() { # quick|full
    local chosen=()
    if ! can_emulate_metal; then
        say "note   Metal is emulated on Linux x86-64 only: nothing of it is tested"
        return 0
    fi
    setup_metal
    [ "$1" = full ] || chosen=(-m "not slow")
    suite "Metal kernels, emulated" count_pytest run_metal_pytest "${chosen[@]+"${chosen[@]}"}"
}
