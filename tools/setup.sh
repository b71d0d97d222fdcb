# shellcheck shell=bash
# setup.sh - what the other parts need: system packages, Python environments, builds. Sourced by run.
#
# A need is a word: a probe tells whether it is met, and a package name tells how to meet it.

# need_probe NEED: true if the need is met.
need_probe() {
    case $1 in
    cc) has cc || has gcc ;;
    openssl) has_header openssl/evp.h ;;
    xxhash) has_header xxhash.h ;;
    cmocka) has pkg-config && pkg-config --exists cmocka ;;
    clang-fuzz) clang_fuzzes ;;
    arm64-cc) has aarch64-linux-gnu-gcc && has_arm64_libc ;;
    arm64-c++) has aarch64-linux-gnu-g++ ;;
    qemu) has qemu-aarch64 ;;
    python) find_python >/dev/null ;;
    zstd) has_header zstd.h ;;
    lz4) has_header lz4.h ;;
    zstd-command) has zstd ;;
    lz4-command) has lz4 ;;
    python-headers) has_python_headers ;;
    new-clang) new_clang >/dev/null ;;
    *) has "$1" ;;
    esac
}

# need_package NEED: the packages of Debian, or of Homebrew on macOS.
need_package() {
    if is_macos; then
        case $1 in
        cc) echo "(xcode-select --install)" ;;
        openssl) echo openssl@3 ;;
        clang-fuzz | clang-format | clang-tidy) echo llvm ;;
        *-command) echo "${1%-command}" ;;
        python-headers) echo python ;;
        *) echo "$1" ;;
        esac
        return
    fi
    case $1 in
    cc) echo "gcc libc6-dev" ;;
    g++) echo g++ ;;
    ninja) echo ninja-build ;;
    openssl) echo libssl-dev ;;
    xxhash) echo libxxhash-dev ;;
    cmocka) echo libcmocka-dev ;;
    nm) echo binutils ;;
    clang++) echo clang ;;
    new-clang) echo clang-16 ;;
    clang-fuzz) echo "clang libclang-rt-dev" ;;
    arm64-cc) echo "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
    arm64-c++) echo g++-aarch64-linux-gnu ;;
    qemu) echo qemu-user ;;
    python) echo "python3 python3-venv python3-pip" ;;
    zstd) echo libzstd-dev ;;
    lz4) echo liblz4-dev ;;
    zstd-command) echo zstd ;;
    lz4-command) echo lz4 ;;
    python-headers) echo python3-dev ;;
    *) echo "$1" ;;
    esac
}

# What is compiled for Python: the MLX operations, and ZipNN when it is installed.
has_python_headers() {
    local python
    python=$(find_python) || return 1
    [ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]
}

has_header() {
    # shellcheck disable=SC2086  # CPPFLAGS holds several words
    printf '#include <%s>\n' "$1" | cc -E ${CPPFLAGS:-} - >/dev/null 2>&1
}

has_arm64_libc() {
    printf '#include <stdio.h>\n' | aarch64-linux-gnu-gcc -E - >/dev/null 2>&1
}

# The clang that carries libFuzzer: Apple's does not.
fuzz_clang() {
    if is_macos && has brew; then
        echo "$(brew --prefix llvm 2>/dev/null)/bin/clang"
    else
        echo "${CLANG:-clang}"
    fi
}

# Prints a clang of 16 or later, which reads the code that Apple's compilers make for GPUs.
new_clang() {
    local candidate version
    for candidate in clang clang-{25..16}; do
        version=$("$candidate" -dumpversion 2>/dev/null) || continue
        if [ "${version%%.*}" -ge 16 ]; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

clang_fuzzes() {
    mkdir -p "$ROOT/build"
    printf 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }\n' |
        "$(fuzz_clang)" -x c - -fsanitize=fuzzer,address -o "$ROOT/build/probe" >/dev/null 2>&1
}

# Prints a Python of 3.10 or later that can make virtual environments.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3} /usr/bin/python3 python3.14 python3.13 python3.12 \
        python3.11 python3.10; do
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' \
            >/dev/null 2>&1; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# require NEED...: installs what is missing, or names it and ends the run.
require() {
    local need missing=() packages=()
    if is_macos && has brew; then
        CPPFLAGS="-I$(brew --prefix)/include -I$(brew --prefix openssl@3)/include"
    fi
    for need in "$@"; do
        need_probe "$need" || missing+=("$need")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    for need in "${missing[@]}"; do
        # shellcheck disable=SC2207  # package names hold no spaces
        packages+=($(need_package "$need"))
    done
    if is_macos; then
        die "missing: ${missing[*]}. Install: brew install ${packages[*]}"
    fi
    if ! has apt-get || [ "$(id -u)" != 0 ]; then
        die "missing: ${missing[*]}. Install: sudo apt-get install ${packages[*]}"
    fi
    step "apt-get-update" apt-get update -q
    step "apt-get install ${packages[*]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${packages[@]}"
    for need in "${missing[@]}"; do
        need_probe "$need" || die "$need is still missing after installing $(need_package "$need")"
    done
}

# venv NAME REQUIREMENTS [PIP OPTION]...: build/NAME holds what the requirements file lists. Made
# anew when the file changes.
venv() {
    local folder=$ROOT/build/$1 requirements=$ROOT/$2 stamp python
    shift 2
    stamp=$(cksum <"$requirements")
    [ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ] || return 0
    require python
    python=$(find_python)
    rm -rf "$folder"
    mkdir -p "$ROOT/build"
    step "python-venv-${folder##*/}" "$python" -m venv "$folder"
    step "pip-install-${folder##*/}" "$folder/bin/python" -m pip install \
        --quiet --disable-pip-version-check "$@" -r "$requirements"
    echo "$stamp" >"$folder/stamp"
}

# The environment that tests, demo and lint share. The Python binding is taken from the source tree.
setup_venv() {
    venv venv tools/requirements.txt
    local site
    site=$("$ROOT/build/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$ROOT/python" >"$site/binade-source.pth"
    # shellcheck disable=SC2034  # used by the files that are sourced next
    VENV=$ROOT/build/venv/bin
}

setup_oracle() {
    venv oracle tools/requirements-oracle.txt --no-deps
    ORACLE_PYTHON=$ROOT/build/oracle/bin/python
    "$ORACLE_PYTHON" -c 'import binade, sys; sys.exit("1.0" in str(getattr(binade, "__version__", "")))' ||
        die "the oracle binade==0.1.1 cannot be imported"
    export ORACLE_PYTHON
}

# There is no MLX for Intel Macs.
mlx_exists() { [ "$(uname -s)-$(uname -m)" != Darwin-x86_64 ]; }

# The environment with MLX, mlx-lm and what builds against them.
setup_mlx() {
    venv mlx tools/mlx.lock
    export MLX_PYTHON=$ROOT/build/mlx/bin/python
}

# The MLX operations in build/ops, where MLX_PYTHON finds them.
build_mlx() { # [CMAKE OPTION]...
    local site
    build ops -DCMAKE_BUILD_TYPE=Release -DBINADE_MLX=ON -DPython_EXECUTABLE="$MLX_PYTHON" "$@"
    site=$("$MLX_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$ROOT/build/ops/package" >"$site/binade-build.pth"
}

# A real model for tests, made once.
setup_model() {
    export BINADE_DEMO_MODEL=$ROOT/build/demo/SmolLM2-135M-Instruct
    step demo-model "$VENV/python" demo/make_checkpoint.py "$BINADE_DEMO_MODEL"
}

# build NAME [CMAKE OPTION]...: configures and builds build/NAME.
build() {
    local folder=$ROOT/build/$1 generator=()
    shift
    require cc cmake make pkg-config openssl xxhash
    if [ ! -e "$folder/CMakeCache.txt" ]; then
        if has ninja; then generator=(-G Ninja); fi
    fi
    if is_macos && has brew; then
        generator+=("-DCMAKE_PREFIX_PATH=$(brew --prefix openssl@3);$(brew --prefix)")
    fi
    step "configure-${folder##*/}" cmake -S "$ROOT" -B "$folder" \
        "${generator[@]+"${generator[@]}"}" "$@"
    step "build-${folder##*/}" cmake --build "$folder" --parallel "$(ncpus)"
}

# The ordinary build. Sets BINADE_BIN and BINADE_LIB.
build_release() {
    build cmake -DCMAKE_BUILD_TYPE=RelWithDebInfo "$@"
    BINADE_BIN=$ROOT/build/cmake/binade
    BINADE_LIB=$ROOT/build/cmake/libbinade.so
    if is_macos; then BINADE_LIB=$ROOT/build/cmake/libbinade.dylib; fi
    export BINADE_BIN BINADE_LIB
}
