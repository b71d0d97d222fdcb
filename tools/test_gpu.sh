# shellcheck shell=bash
# test_gpu.sh - `./run test gpu`, and what `./run bench gpu` needs too. Sourced by run and bench.sh.

# The highest CUDA that the driver serves: 13, 12, or nothing.
driver_cuda() {
    if has nvidia-smi; then
        nvidia-smi | sed -nE 's/.*CUDA Version: *([0-9]+).*/\1/p' | head -1
    fi
}

# build/mlx-cuda: the packages of tools/mlx.lock with MLX for CUDA in place of that for CPUs, and
# what it needs of NVIDIA's, in any version that it takes; and CUPTI, by which benchmarks time
# kernels. The operations lie in build/ops-cuda.
setup_gpu() {
    local cuda site cupti
    cuda=$(driver_cuda)
    case $cuda in
    '') die "there is no NVIDIA GPU, or nvidia-smi does not find it" ;;
    12) cupti='nvidia-cuda-cupti-cu12==12.*' ;;
    *) cuda=13 cupti='nvidia-cuda-cupti==13.*' ;;
    esac
    require cc g++ cmake make pkg-config openssl xxhash python python-headers
    mkdir -p build
    sed -E "s/^mlx-cpu==([0-9.]+).*/mlx-cuda-$cuda==\\1/" tools/mlx.lock >build/mlx-cuda.lock
    echo "$cupti" >>build/mlx-cuda.lock
    venv mlx-cuda build/mlx-cuda.lock
    export MLX_PYTHON=$ROOT/build/mlx-cuda/bin/python
    build_release
    build ops-cuda -DCMAKE_BUILD_TYPE=Release -DBINADE_MLX=ON -DPython_EXECUTABLE="$MLX_PYTHON"
    site=$("$MLX_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$ROOT/build/ops-cuda/package" >"$site/binade-build.pth"
}

test_gpu() { # [PYTEST OPTION]...
    trap say_if_unfinished EXIT
    setup_gpu
    suite "GPU tests" count_pytest run_gpu_pytest "$@"
    sed -n '/which kernel served each shape/,$p' "$(log_path "GPU tests")"
    finish
}

# Warnings are no errors here: what they say depends on NVIDIA's packages, which are not pinned.
run_gpu_pytest() { # [PYTEST OPTION]...
    "$MLX_PYTHON" -m pytest -q -rfEs -c tools/pytest.ini --rootdir "$ROOT" -W default "$@" tests/gpu
}
