# shellcheck shell=bash
# bench.sh - `./run bench codec`, `./run bench cpu`, `./run bench gpu`. Sourced by run.

bench_codec() { # [BENCH_CODEC OPTION]...
    require cc g++ cmake make pkg-config openssl xxhash zstd lz4 zstd-command lz4-command \
        python python-headers git
    build bench -DCMAKE_BUILD_TYPE=Release -DBINADE_BENCH=ON
    setup_venv
    setup_oracle
    setup_model
    venv bench-venv tools/requirements-bench.txt
    local python=$ROOT/build/bench-venv/bin/python models=build/bench-models
    step bench-inputs "$python" bench/make_inputs.py "$models"
    [ -e "$models/${BINADE_DEMO_MODEL##*/}" ] || ln -s "$BINADE_DEMO_MODEL" "$models/"
    mkdir -p bench/results
    "$python" bench/bench_codec.py --models "$models" --memory build/bench/bench/bench_memory \
        --binade build/bench/binade --package build/oracle/bin/binade \
        --results bench/results/codec.md "$@"
    cat bench/results/codec.md
}

bench_cpu() { # [BENCH_CPU OPTION]...
    mlx_exists || die "MLX does not exist for this machine"
    require cc g++ cmake make pkg-config openssl xxhash python python-headers
    build_release
    setup_venv
    setup_model
    setup_mlx
    build_mlx
    mkdir -p bench/results
    "$MLX_PYTHON" bench/bench_cpu.py --model "$BINADE_DEMO_MODEL" --binade "$BINADE_BIN" \
        --results bench/results/cpu.md "$@"
    cat bench/results/cpu.md
}

bench_gpu() { # [BENCH_GPU OPTION]... [PART]...
    # shellcheck source=tools/test_gpu.sh
    . tools/test_gpu.sh
    setup_gpu
    step kernel-times cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -pthread \
        -o build/kernel_times.so bench/kernel_times.c -ldl
    mkdir -p bench/results
    "$MLX_PYTHON" bench/bench_gpu.py --results bench/results/gpu.md "$@"
    cat bench/results/gpu.md
}
