/* gemm_check.cuh - several rows of x times R4, for the tests of that. */
#ifndef BINADE_GEMM_CHECK_CUH
#define BINADE_GEMM_CHECK_CUH

#include <algorithm>

#include "cuda/gemm_table.h"
#include "cuda/r4_launch_gemm.cuh"
#include "gpu_check.cuh"

static inline std::string text(const char *what, unsigned a, const char *more = "",
                               unsigned b = 0) {
    return std::string(what) + std::to_string(a) + more + (*more ? std::to_string(b) : "");
}

/* What multiply(y), which is `what`, writes to n outputs. */
template <class Multiply>
static inline std::vector<uint16_t> take_products(size_t n, const char *what, Multiply multiply) {
    uint16_t *y = new_device<uint16_t>(n);
    multiply(y);
    must(cudaDeviceSynchronize(), what);
    auto products = to_host(y, n);
    cudaFree(y);
    return products;
}

static inline std::vector<uint16_t> multiply_r4(const r4_view &view, const uint16_t *x, unsigned nx,
                                                unsigned nsplits, unsigned split_ncols,
                                                const r4_gemm_tile &tile = r4_gemm_tile()) {
    return take_products((size_t)nx * view.taken, "gemm", [&](uint16_t *y) {
        r4_view v = view;
        v.y = y;
        must(r4_gpu_gemm(v, x, nx, nsplits, split_ncols, 0, tile), "gemm");
    });
}

/* Whether the device has these kernels; says so if it has not. */
static inline bool has_gemm() {
    cudaDeviceProp device;
    must(cudaGetDeviceProperties(&device, 0), "device");
    if (device.major == 9) return true;
    printf("0 checks, 0 failed: these kernels are for GPUs of compute capability 9.0\n");
    return false;
}

#endif
