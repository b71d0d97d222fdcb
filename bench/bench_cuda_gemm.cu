/* bench_cuda_gemm.cu - times several rows of x times R4 on a Hopper GPU beside cublasLt's BF16, as
 * MLX has it computed, and beside rebuilding the weight first; prints a page.
 *
 *   bench_cuda_gemm [ROWS COLS]
 */
#include <cmath>

#include "cublaslt_product.cuh"
#include "cuda/gemm_table.h"
#include "cuda/r4_launch_gemm.cuh"
#include "launch_timing.cuh"

static const unsigned all_nx[] = {2, 4, 8, 16, 32, 64, 128, 256, 512};
enum { NX_MOST = 512 };

/* Of a model, in both forms, so many that no cache holds them. */
struct weights {
    unsigned nrows, ncols;
    std::vector<uint16_t *> bf16;
    std::vector<r4_gpu> r4;

    weights(unsigned nrows, unsigned ncols) : nrows(nrows), ncols(ncols) {
        unsigned n = (unsigned)std::max(2.0, rotate_nbytes / (1.5 * nrows * ncols) + 1);
        for (unsigned i = 0; i < n; i++) {
            bf16.push_back(new_model((size_t)nrows * ncols, i));
            r4.push_back(weight_from_bf16(bf16[i], nrows, ncols, 109));
        }
    }
    ~weights() {
        for (size_t i = 0; i < r4.size(); i++) {
            cudaFree(bf16[i]);
            free_weight(r4[i]);
        }
    }
};

/* Microseconds for one product: cublasLt's, ours, and with the weight rebuilt first; ours is 0
 * where there is no kernel. */
struct row {
    timing bf16, packed, rebuilt;
};

static row time_products(const weights &w, gemm_planner *planner, unsigned nx) {
    char message[GPU_MESSAGE_NBYTES];
    gemm_plan plan;
    const unsigned n = (unsigned)w.r4.size(), nlaunches = std::max(n, 24u);
    const lt_product product(nx, w.nrows, w.ncols);
    uint16_t *x = new_model((size_t)NX_MOST * w.ncols, 99);
    uint16_t *y = new_device<uint16_t>((size_t)nx * w.nrows);
    uint16_t *whole = new_device<uint16_t>((size_t)w.nrows * w.ncols);
    row times = {};

    if (gemm_planner_ask(planner, (int)nx, (int)w.nrows, (int)w.ncols, &plan, message)) {
        fprintf(stderr, "%s\n", message);
        exit(2);
    }
    times.bf16 = time_launches(nlaunches, [&](unsigned i, cudaStream_t stream) {
        product.run(w.bf16[i % n], x, y, stream);
    });
    times.rebuilt = time_launches(nlaunches, [&](unsigned i, cudaStream_t stream) {
        must(r4_gpu_rebuild(view_all(w.r4[i % n]), whole, stream), "rebuild");
        product.run(whole, x, y, stream);
    });
    unsigned nsplits = (unsigned)std::max(plan.nsplits, 1);
    unsigned split_ncols = (unsigned)gemm_split_ncols((int)w.ncols, (int)nsplits);
    bool is_known = gemm_find_row(9, 0, &plan, (int)w.ncols, message);
    if (is_known &&
        r4_gpu_gemm(view_all(w.r4[0], y), x, nx, nsplits, split_ncols, 0) == cudaSuccess)
        times.packed = time_launches(nlaunches, [&](unsigned i, cudaStream_t stream) {
            r4_view view = view_all(w.r4[i % n], y);
            must(r4_gpu_gemm(view, x, nx, nsplits, split_ncols, stream), "gemm");
        });
    cudaFree(x), cudaFree(y), cudaFree(whole);
    return times;
}

static void print_row(const weights &w, unsigned nx, const row &r) {
    printf("| %u x %u | %u | %.1f | ", w.nrows, w.ncols, nx, r.bf16.median);
    if (r.packed.median > 0)
        printf("%.1f (%.1f to %.1f) | %.2fx", r.packed.median, r.packed.least, r.packed.most,
               r.bf16.median / r.packed.median);
    else
        printf("- | -");
    printf(" | %.1f | %.2fx |\n", r.rebuilt.median, r.bf16.median / r.rebuilt.median);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const unsigned shapes[][2] = {{14336, 4096}, {4096, 14336}, {4096, 4096}, {1024, 4096},
                                         {8192, 3072},  {3072, 8192},  {3072, 3072}, {15360, 3840},
                                         {10240, 2560}, {2560, 10240}, {2560, 2048}, {2816, 2112}};
    char message[GPU_MESSAGE_NBYTES];
    cudaDeviceProp device;
    gemm_planner *planner = nullptr;

    must(cudaGetDeviceProperties(&device, 0), "device");
    if (gemm_planner_open(nullptr, device.major, &planner, message)) {
        fprintf(stderr, "%s\n", message);
        return 2;
    }
    printf("# Several rows of x on %s\n\nCommand: `bench_cuda_gemm`. Microseconds, medians of %d "
           "replays of a graph.\n\n| weight | rows of x | BF16 | packed | ratio | rebuilt first | "
           "ratio |\n|---|---:|---:|---:|---:|---:|---:|\n",
           device.name, NREPLAYS);
    for (const auto &shape : shapes) {
        if (argc == 3 &&
            (shape[0] != (unsigned)atoi(argv[1]) || shape[1] != (unsigned)atoi(argv[2])))
            continue;
        weights w(shape[0], shape[1]);
        for (unsigned nx : all_nx)
            print_row(w, nx, time_products(w, planner, nx));
    }
    gemm_planner_close(planner);
    return 0;
}
