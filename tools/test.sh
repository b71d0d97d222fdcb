# shellcheck shell=bash
# test.sh - `./run test`, `./run test full`, `./run test metal`, `./run fuzz SECONDS`. Sourced by run.

# shellcheck source=tools/metal.sh
. tools/metal.sh

run_tests() {
    local mode=${1:-quick}
    case $mode in quick | full | metal) ;; *) die "usage: ./run test [full | gpu | metal]" ;; esac
    trap say_if_unfinished EXIT
    if [ "$mode" = metal ]; then
        test_metal full
        finish
        return
    fi
    if [ "$mode" = full ]; then
        # shellcheck source=tools/test_full.sh
        . tools/test_full.sh
        setup_full
    else
        setup_tests
    fi
    test_release
    test_sanitized asan address,undefined
    test_neon
    test_metal "$mode"
    if [ "$mode" = full ]; then
        test_full
    else
        test_fuzz 10
    fi
    finish
}

setup_tests() { # [NEED]...
    # git: the oracle asks it for a commit to note.
    local needs=(cc g++ cmake make pkg-config openssl xxhash cmocka python nm git clang-fuzz)
    needs+=(clang++) # emulated CUDA kernels
    if ! is_macos; then needs+=(strace); fi
    if can_emulate_arm; then needs+=(arm64-cc qemu); fi
    if mlx_exists; then needs+=(python-headers); fi
    require "${needs[@]}" "$@"
    setup_venv
    setup_oracle
    if mlx_exists; then setup_mlx; fi
    setup_model
}

can_emulate_arm() { [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ]; }

ctest_in() { # FOLDER [CTEST OPTION]...
    local folder=$1
    shift
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$(ncpus)" "$@"
}

# Prints the name of the kernel set that the library chooses when BINADE_CPU is $1.
chosen_kernels() {
    BINADE_CPU=$1 "$VENV/python" -c '
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.binade_cpu.restype = ctypes.c_char_p
print(library.binade_cpu().decode())' "$BINADE_LIB"
}

# The C tests once for every kernel set that this CPU has, then everything in Python.
test_release() {
    build_release -DBINADE_TESTS=ON -DBINADE_WERROR=ON
    local kernels
    for kernels in avx512 avx2 neon plain; do
        if [ "$(chosen_kernels "$kernels")" = "$kernels" ]; then
            BINADE_CPU=$kernels suite "C tests, $kernels kernels" count_ctest ctest_in build/cmake
        else
            say "note   this CPU has no $kernels kernels"
        fi
    done
    suite "Python tests" count_pytest run_pytest -m "not slow"
    if mlx_exists; then
        build_mlx -DBINADE_WERROR=ON
        suite "MLX tests" count_pytest run_mlx_pytest -m "not slow"
    else
        say "note   MLX does not exist for this machine: nothing of it is tested"
    fi
}

# Tests of MLX run where MLX is, those in tests/gpu where a GPU is, those in tests/metal where clang is;
# elsewhere they would be skipped, which counts as failed.
run_pytest() { # [PYTEST OPTION]...
    "$VENV/python" -m pytest -q -rfE -c tools/pytest.ini --rootdir "$ROOT" \
        --ignore-glob="*/test_mlx_*" --ignore=tests/gpu --ignore=tests/metal "$@" tests
}

run_mlx_pytest() { # [PYTEST OPTION]...
    "$MLX_PYTHON" -m pytest -q -rfEs -c tools/pytest.ini --rootdir "$ROOT" "$@" tests/test_mlx_*.py
}

# ThreadSanitizer of older compilers fails at random where a kernel scatters addresses widely.
fixed_addresses() {
    if has setarch && setarch -R true 2>/dev/null; then
        setarch -R bash -c "$(declare -f ctest_in ncpus); $(printf '%q ' "$@")"
    else
        "$@"
    fi
}

test_sanitized() { # BUILD SANITIZERS
    build "$1" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBINADE_TESTS=ON -DBINADE_SANITIZE="$2"
    suite "C tests, $2 sanitizers" count_ctest fixed_addresses ctest_in "build/$1"
}

# Tests of the kernels and of what they stand on. They use tests/check.h alone, so that they need no
# library but libc and are easily built for another machine.
core_tests() { grep -l '"check.h"' tests/test_*.c; }

# build_core FOLDER COMPILER [FLAG]...: a static archive of what core tests need, and the tests.
build_core() {
    local folder=build/$1 compiler=$2 source objects=()
    shift 2
    rm -rf "$folder"
    mkdir -p "$folder"
    set -- -std=c11 -D_GNU_SOURCE -O2 -g -ffp-contract=off -Wall -Wextra -Wshadow -Werror -Iinclude \
        -Isrc -Itests "$@"
    # Only what needs no other library: those are not there for the other machine.
    # shellcheck disable=SC2013  # file names hold no spaces
    for source in $(grep -L -E '<(openssl/|xxhash|dlfcn)' src/base/*.c src/format/*.c src/r4/*.c src/cpu/*.c \
        src/cuda/*.c src/metal/*.c); do
        objects+=("$folder/$(basename "$source" .c).o")
        "$compiler" "$@" -c "$source" -o "${objects[${#objects[@]} - 1]}" || return 1
    done
    for source in $(core_tests); do
        "$compiler" "$@" "$source" "${objects[@]}" -o "$folder/$(basename "$source" .c)" \
            -pthread -lm || return 1
    done
}

# core_suite NAME FOLDER [RUNNER]...: each core test is one test.
core_suite() {
    local name=$1 folder=$2 source program
    shift 2
    for source in $(core_tests); do
        program=$(basename "$source" .c)
        check "$program, $name" "$@" "build/$folder/$program"
    done
}

# On ARM the ordinary C tests reach the NEON kernels.
test_neon() {
    can_emulate_arm || return 0
    [ -n "$(core_tests)" ] || die "no test includes check.h, so none can run on an emulated ARM"
    check "core tests build for ARM" build_core arm aarch64-linux-gnu-gcc -static
    core_suite "emulated ARM" arm qemu-aarch64
    # test_kernels tries every set there is, and names each.
    check "NEON is among the kernels tried on emulated ARM" \
        grep -x "kernels: neon" "$(log_path "test_kernels, emulated ARM")"
}

build_fuzz() {
    require clang-fuzz
    build fuzz -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER="$(fuzz_clang)" \
        -DBINADE_FUZZ=ON -DBINADE_SANITIZE=address,undefined
}

# Each target is one test. What it finds is kept: new inputs in build/fuzz-corpus, crashes in
# build/fuzz-crashes.
test_fuzz() { # SECONDS
    local source name seeds
    build_fuzz
    for source in tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] || die "there are no fuzz targets in tests/fuzz"
        name=$(basename "$source" .c)
        seeds=tests/fuzz/seeds/${name#fuzz_}
        [ -n "$(ls -A "$seeds" 2>/dev/null)" ] || die "$name has no seeds in $seeds"
        mkdir -p "build/fuzz-corpus/$name" build/fuzz-crashes
        check "$name for $1 s" "build/fuzz/tests/fuzz/$name" -max_total_time="$1" -timeout=20 \
            -rss_limit_mb=3000 -print_final_stats=1 -artifact_prefix="build/fuzz-crashes/$name-" \
            "build/fuzz-corpus/$name" "$seeds"
    done
}

run_fuzz() {
    case ${1:-} in
    '' | *[!0-9]*) die "usage: ./run fuzz SECONDS" ;;
    esac
    trap say_if_unfinished EXIT
    test_fuzz "$1"
    finish
}
