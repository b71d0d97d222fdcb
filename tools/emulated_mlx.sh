# shellcheck shell=bash
# emulated_mlx.sh - products with NEON kernels beside MLX's own 64-bit ARM build, run by qemu: there
# MLX fuses multiplication and addition. Sourced by test_full.sh, after emulated_arm.sh.

ARM_MLX=$ROOT/build/arm-mlx

# Debian's Python for ARM is of the release that this machine's own python3 is of.
debian_python() { /usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# Beside what emulated_arm.sh fetched, with the same apt state.
fetch_arm_mlx() {
    local state=$ROOT/build/arm-apt v options deb wheel
    v=$(debian_python)
    rm -rf "$ARM_MLX"
    mkdir -p "$ARM_MLX/debs" "$ARM_MLX/root" "$ARM_MLX/wheels" "$ARM_MLX/site"
    options=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$state/lists"
        -o Dir::Cache="$state/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
    (cd "$ARM_MLX/debs" && apt-get "${options[@]}" -q download "python$v" "python$v-minimal" \
        "libpython$v-minimal" "libpython$v-stdlib" "libpython$v-dev" libexpat1 zlib1g libffi8 \
        libbz2-1.0 liblzma5 libcrypt1 libuuid1 libc6 libstdc++6 libgcc-s1) || return 1
    for deb in "$ARM_MLX"/debs/*.deb; do
        dpkg-deb -x "$deb" "$ARM_MLX/root" || return 1
    done
    "$MLX_PYTHON" -m pip download -q --no-deps --only-binary=:all: --python-version "$v" \
        --platform manylinux_2_35_aarch64 --platform manylinux_2_28_aarch64 \
        --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
        -d "$ARM_MLX/wheels" mlx==0.32.2 mlx-cpu==0.32.2 numpy==2.4.6 || return 1
    for wheel in "$ARM_MLX"/wheels/*.whl; do
        "$MLX_PYTHON" -m zipfile -e "$wheel" "$ARM_MLX/site" || return 1
    done
    touch "$ARM_MLX/complete"
}

# libbinade comes from build_arm.
build_arm_mlx() {
    local package=$ARM_MLX/package/binade nanobind v
    v=$(debian_python)
    nanobind=$("$MLX_PYTHON" -c 'import nanobind; print(nanobind.include_dir())')/..
    local compile=(aarch64-linux-gnu-g++ -std=c++20 -O2 -fPIC -shared -ffp-contract=off -Wno-psabi
        -Iinclude -Isrc -isystem "$ARM_MLX/site/mlx/include")
    rm -rf "$package"
    mkdir -p "$package/mlx"
    cp python/binade/*.py "$package/"
    # An empty package: its own __init__ wants mlx-lm, of which nothing is needed here.
    touch "$package/mlx/__init__.py"
    cp build/arm-full/libbinade.so* "$package/"
    local sources
    mapfile -t sources < <(find src/mlx -name '*.cpp' ! -name r4_binding.cpp)
    "${compile[@]}" "${sources[@]}" -o "$package/libbinade_mlx.so" \
        -Lbuild/arm-full -lbinade -L"$ARM_MLX/site/mlx/lib" -lmlx -Wl,--allow-shlib-undefined ||
        return 1
    "${compile[@]}" -O1 -DNB_DOMAIN=mlx -DNB_COMPACT_ASSERTIONS -fno-strict-aliasing \
        -isystem "$ARM_MLX/root/usr/include" -I"$ARM_MLX/root/usr/include/python$v" \
        -I"$nanobind/include" -I"$nanobind/src" -I"$nanobind/ext/robin_map/include" \
        src/mlx/r4_binding.cpp "$nanobind/src/nb_combined.cpp" -o "$package/mlx/_ops.so" \
        -L"$package" -lbinade_mlx -lbinade -L"$ARM_MLX/site/mlx/lib" -lmlx \
        -Wl,--allow-shlib-undefined
}

arm_python() {
    local under=$ARM_MLX/root package=$ARM_MLX/package libraries folder
    libraries=$package/binade:$ARM_MLX/site/mlx/lib
    for folder in "$under"/{usr/,}lib/aarch64-linux-gnu "$ARM_ROOT/usr/lib/aarch64-linux-gnu"; do
        libraries+=:$folder
    done
    qemu-aarch64 -L "$under" -E LD_LIBRARY_PATH="$libraries" -E PYTHONHOME="$under/usr" \
        -E PYTHONDONTWRITEBYTECODE=1 -E PYTHONPATH="$package:$ROOT/tests:$ARM_MLX/site" \
        "$under/usr/bin/python$(debian_python)" "$@"
}

compare_with_arm_mlx() { # KERNELS NTHREADS
    BINADE_CPU=$1 BINADE_NUM_THREADS=$2 arm_python tests/mlx_grid.py quick "$1" |
        tee /dev/stderr | grep -q ' cases$'
}

test_emulated_mlx() {
    can_emulate_arm && [ -e "$ARM_ROOT/complete" ] || return 0
    require arm64-c++
    [ -e "$ARM_MLX/complete" ] || step fetch-arm-mlx fetch_arm_mlx
    step build-arm-mlx build_arm_mlx
    check "NEON products equal those of MLX on ARM" compare_with_arm_mlx neon 2
    check "plain products equal those of MLX on ARM" compare_with_arm_mlx plain 1
}
