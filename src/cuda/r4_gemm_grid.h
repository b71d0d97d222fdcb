/* r4_gemm_grid.h - which kernel of r4_gemm.cu, r4_gemm_mma.cu or r4_skinny.cu multiplies several
 * rows of x, and how it is launched. */
#ifndef BINADE_CUDA_R4_GEMM_GRID_H
#define BINADE_CUDA_R4_GEMM_GRID_H

#include "cuda/r4_gemm_shape.h"
#include "cuda/r4_grid.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    R4_GEMM_NSPLITS_MOST = 5, /* of K: as many as cuBLASLt was seen to plan on an H200 */
    R4_GEMM_NX_MOST = 256,    /* about as fast as rebuilding (bench/results/cuda_gemm.md) */
    R4_GEMM_EXPERTS_MOST = 1024,
};

/* By what kernels multiply, and how they add: those of r4_gemm.cu, with a cluster for splits of K;
 * those of r4_gemm_mma.cu, by their R4_ORDER; those of r4_skinny.cu, which add as the first do. */
enum r4_gemm_way {
    R4_GEMM_WGMMA,
    R4_GEMM_MMA,
    R4_GEMM_MMA_SPLITS,
    R4_GEMM_MMA_TWO_SLICES,
    R4_GEMM_SKINNY
};

/* Whether a way has a cluster for the splits of K; else a block adds them up. */
static inline int r4_gemm_has_clusters(enum r4_gemm_way way) {
    return way == R4_GEMM_WGMMA || way == R4_GEMM_SKINNY;
}

/* Of those two, which add alike, the faster one for nx rows of x. */
static inline enum r4_gemm_way r4_gemm_hopper_way(unsigned nx) {
    return nx <= R4_SKINNY_NX_MOST ? R4_GEMM_SKINNY : R4_GEMM_WGMMA;
}

/* nx rows of x times nparts parts, `taken` rows of ncols columns each; of experts, nparts of 1 or
 * 2, `taken` rows of each of nexperts and nx sorted indices in all. nexperts 0: none, one part, and
 * K in nsplits >= 1 splits. tile_nx, tile_height: how many rows of x, as the way has kernels for,
 * and of W, whole 16, at a time; 0: what is taken to be fastest. */
struct r4_gemm_product {
    unsigned nx, ncols, taken, nparts, nsplits, nexperts, tile_nx, tile_height;
    enum r4_gemm_way way; /* of experts R4_GEMM_WGMMA or R4_GEMM_MMA */
};

/* The numbers in a kernel's name, as its file says, and what it is told. */
struct r4_gemm_kernel {
    unsigned nx, per_lane, nsplits, nparts;
    struct r4_gemm_shape shape;
    enum r4_gemm_way way;
};

/* The numbers of a shape, in the order in which kernels of its way take them; how many there are.
 */
enum { R4_GEMM_SHAPE_MOST = 4 };
unsigned r4_gemm_list_shape(const struct r4_gemm_kernel *kernel, int numbers[R4_GEMM_SHAPE_MOST]);

/* Clusters of n blocks, 1 .. R4_GEMM_NSPLITS_MOST, that are on the device at once, of which a part
 * stays idle where they do not fill its groups of multiprocessors: what an H200's driver answers,
 * of 132 multiprocessors. */
size_t r4_clusters_at_once(const struct r4_device *device, unsigned n);

/* 0, and nothing is written, for what no kernel multiplies: an odd number of rows of W, or fewer
 * than 16; columns that are no whole units of 64, or more than 2^24 - 256; more rows of x or
 * experts than above, more parts than one, of experts than two.
 *   R4_GEMM_WGMMA, R4_GEMM_SKINNY   also more splits than above, or one without columns
 *   R4_GEMM_SKINNY                  also more than R4_SKINNY_NX_MOST rows of x, or experts
 *   R4_GEMM_MMA                     also splits
 *   R4_GEMM_MMA_SPLITS              also experts
 *   R4_GEMM_MMA_TWO_SLICES          also splits, or experts */
int r4_gemm_grid(const struct r4_device *device, const struct r4_gemm_product *product,
                 struct r4_gemm_kernel *kernel, struct r4_grid *grid);

#ifdef __cplusplus
}
#endif
#endif
