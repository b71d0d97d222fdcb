/* r4_gemm_grid.h - which kernel of r4_gemm.cu multiplies several rows of x, and how it is launched.
 */
#ifndef BINADE_CUDA_R4_GEMM_GRID_H
#define BINADE_CUDA_R4_GEMM_GRID_H

#include "cuda/r4_grid.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    R4_GEMM_NSPLITS_MOST = 5, /* of K: as many as cuBLASLt was seen to plan on an H200 */
    R4_GEMM_NX_MOST = 256,    /* about as fast as rebuilding (bench/results/cuda_gemm.md) */
    R4_GEMM_EXPERTS_MOST = 1024,
};

/* A part of a weight, `taken` rows of ncols columns, and nx rows of x; of experts, `taken` rows of
 * each of nexperts and nx sorted indices in all. nexperts 0: none, and K in nsplits >= 1 splits.
 * tile: how many rows of x at a time, 16, 64 or 128; 0: what is fastest. */
struct r4_gemm_product {
    unsigned nx, ncols, taken, nsplits, nexperts, tile;
};

/* The numbers in a kernel's name, as r4_gemm.cu says. */
struct r4_gemm_kernel {
    unsigned nx, per_lane, nsplits;
};

/* 0, and nothing is written, for what no kernel multiplies. */
int r4_gemm_grid(const struct r4_device *device, const struct r4_gemm_product *product,
                 struct r4_gemm_kernel *kernel, struct r4_grid *grid);

#ifdef __cplusplus
}
#endif
#endif
