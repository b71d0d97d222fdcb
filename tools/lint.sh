# shellcheck shell=bash
# lint.sh - `./run lint`. Sourced by run.

run_lint() {
    require cc cmake make pkg-config openssl xxhash cmocka python clang-format clang-tidy cppcheck \
        shellcheck
    trap say_if_unfinished EXIT
    build_release -DBINADE_TESTS=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    setup_venv
    local c_files sources
    c_files=$(find include src cli tests bench docs -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' \
        -o -name '*.cuh' -o -name '*.metal')
    sources=$(find src cli -name '*.c')
    # shellcheck disable=SC2086  # file names hold no spaces
    check clang-format clang-format --dry-run -Werror $c_files
    check cppcheck cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr \
        --enable=warning,portability,performance --suppressions-list=tools/cppcheck.txt \
        --library=posix -D_GNU_SOURCE -Iinclude -Isrc src cli
    # shellcheck disable=SC2086
    check clang-tidy clang-tidy --quiet -p build/cmake $sources
    check ruff "$VENV/ruff" check --config tools/ruff.toml .
    check ruff-format "$VENV/ruff" format --config tools/ruff.toml --check .
    check shellcheck shellcheck -x run .ci/run tools/*.sh
    finish
}
