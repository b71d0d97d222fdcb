# shellcheck shell=bash
# emulated_arm.sh - the whole project built for 64-bit ARM Linux and run by qemu. Sourced by run.

ARM_ROOT=$ROOT/build/arm-root
ARM_PACKAGES="libssl-dev libssl3 libxxhash-dev libxxhash0 libcmocka-dev libcmocka0"

# Debian's ARM packages are unpacked under build/ with an apt state of their own: this machine's
# package lists and architectures stay as they are.
fetch_arm_packages() {
    local state=$ROOT/build/arm-apt options deb
    rm -rf "$ARM_ROOT" "$state"
    mkdir -p "$ARM_ROOT" "$state/lists/partial" "$state/cache/archives/partial" "$state/debs"
    options=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$state/lists"
        -o Dir::Cache="$state/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
    apt-get "${options[@]}" -q update || return 1
    # shellcheck disable=SC2086  # a list of words
    (cd "$state/debs" && apt-get "${options[@]}" -q download $ARM_PACKAGES) || return 1
    for deb in "$state"/debs/*.deb; do
        dpkg-deb -x "$deb" "$ARM_ROOT" || return 1
    done
    touch "$ARM_ROOT/complete"
}

build_arm() {
    local libraries=$ARM_ROOT/usr/lib/aarch64-linux-gnu
    export PKG_CONFIG_LIBDIR=$libraries/pkgconfig PKG_CONFIG_SYSROOT_DIR=$ARM_ROOT
    cmake -S . -B build/arm-full -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBINADE_TESTS=ON \
        -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_FIND_ROOT_PATH="$ARM_ROOT" \
        -DCMAKE_LIBRARY_ARCHITECTURE=aarch64-linux-gnu \
        -DCMAKE_C_FLAGS="-isystem $ARM_ROOT/usr/include/aarch64-linux-gnu" \
        -DCMAKE_CROSSCOMPILING_EMULATOR="$ROOT/build/arm-run" || return 1
    cmake --build build/arm-full --parallel "$(ncpus)" || return 1
    printf '#!/bin/sh\nexec qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=%s "$@"\n' \
        "$libraries" >build/arm-run
    chmod +x build/arm-run
}

# A pack made by the emulated machine holds the same bytes, and each verifies.
compare_with_native() {
    local out=$ROOT/build/arm-compare
    rm -rf "$out"
    mkdir -p "$out"
    "$BINADE_BIN" pack "$BINADE_DEMO_MODEL" --out "$out/native" || return 1
    build/arm-run build/arm-full/binade pack "$BINADE_DEMO_MODEL" --out "$out/arm" || return 1
    cmp "$out/native/model.safetensors" "$out/arm/model.safetensors" || return 1
    build/arm-run build/arm-full/binade verify "$out/native" --against "$BINADE_DEMO_MODEL" ||
        return 1
    rm -rf "$out"
}

test_emulated_arm() {
    can_emulate_arm || return 0
    if ! grep -q '^ID=debian' /etc/os-release; then
        say "note   not Debian: of the emulated ARM machine only the core tests are run"
        return
    fi
    [ -e "$ARM_ROOT/complete" ] || step fetch-arm-packages fetch_arm_packages
    step build-arm-full build_arm
    # qemu 7.2 aborts by an assertion of its own when a process of several threads forks.
    say "note   tests named *_fork are not run on emulated ARM: qemu aborts there"
    suite "C tests, emulated ARM" count_ctest ctest_in build/arm-full -E "_fork$"
    check "emulated ARM packs the same bytes" compare_with_native
}
