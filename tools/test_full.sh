# shellcheck shell=bash
# test_full.sh - what `./run test full` adds. Sourced by run.

# shellcheck source=tools/emulated_arm.sh
. "$ROOT/tools/emulated_arm.sh"
# shellcheck source=tools/emulated_mlx.sh
. "$ROOT/tools/emulated_mlx.sh"

setup_full() {
    if is_macos; then setup_tests; else setup_tests valgrind; fi
}

test_full() {
    test_sanitized tsan thread
    test_memory_sanitizer
    if ! is_macos; then test_valgrind; fi
    BINADE_CPU=plain suite "Python tests, plain kernels" count_pytest run_pytest -m "not slow"
    BINADE_BIN=$ROOT/build/asan/binade BINADE_SANITIZED=1 suite \
        "Python tests, the command under address and undefined sanitizers" count_pytest \
        run_pytest -m "not slow"
    suite "slow Python tests" count_pytest run_pytest -m slow
    if mlx_exists; then test_mlx_full; fi
    test_emulated_arm
    test_emulated_mlx
    test_fuzz "${FUZZ_SECONDS:-120}"
}

# Whole models with each kernel set but the best, which `./run test` took.
test_mlx_full() {
    local kernels
    suite "slow MLX tests" count_pytest run_mlx_pytest -m slow
    for kernels in avx2 plain; do
        if [ "$(chosen_kernels "$kernels")" = "$kernels" ]; then
            BINADE_CPU=$kernels suite "MLX tests, $kernels kernels" count_pytest run_mlx_pytest \
                -m "not slow"
        fi
    done
}

# Only the core tests: MemorySanitizer needs every library that it meets to be built for it.
test_memory_sanitizer() {
    if is_macos; then
        say "note   MemorySanitizer does not exist on macOS"
        return
    fi
    step build-msan build_core msan "$(fuzz_clang)" -fsanitize=memory -fno-omit-frame-pointer
    core_suite "memory sanitizer" msan
}

test_valgrind() {
    local source name
    for source in tests/test_*.c; do
        name=$(basename "$source" .c)
        check "$name under valgrind" valgrind --quiet --error-exitcode=9 --leak-check=full \
            --show-leak-kinds=definite,possible "build/cmake/tests/$name"
    done
}
