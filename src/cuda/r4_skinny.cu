/* r4_skinny.cu - y = x W^T for few rows of x on Hopper. One kernel for each
 *   R4_NX         8, 16 or 32 rows of x, the most that it takes
 *   R4_PER_LANE   4 or 2, as in r4_per_lane
 *   R4_NSPLITS    1..5 splits of K
 * binade_r4_skinny_<NX>_<PER_LANE>_<NSPLITS>. A weight has whole units of 64 columns. height: rows
 * of W of a block, whole R4_SKINNY_NROWS and at most `taken`; it and what follows are of
 * r4_gemm_shape, as r4_gemm_grid.c chooses. */
#include "cuda/r4_skinny.cuh"

#define R4_SKINNY_NAME(NX, PER_LANE, NSPLITS) R4_SKINNY_JOIN(NX, PER_LANE, NSPLITS)
#define R4_SKINNY_JOIN(NX, PER_LANE, NSPLITS) binade_r4_skinny_##NX##_##PER_LANE##_##NSPLITS

#if R4_NSPLITS > 1 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define R4_SKINNY_CLUSTER __cluster_dims__(R4_NSPLITS)
#else
#define R4_SKINNY_CLUSTER
#endif

extern "C" __global__ void __launch_bounds__(32 * R4_SKINNY_NWARPS_MOST, 1) R4_SKINNY_CLUSTER
    R4_SKINNY_NAME(R4_NX, R4_PER_LANE,
                   R4_NSPLITS)(R4_PART_WEIGHT(0) const unsigned short *x, R4_PART_OUT(0) int nx,
                               int ncols, int split_ncols, int height, int nturns, int nslots,
                               int nstages, int row0, int taken, int base) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    extern __shared__ __align__(1024) unsigned char r4_shared[];
    const r4_gemm_shape shape = {height, 0, nslots, nturns, nstages};
    const r4_part part = {slices0,        rows0,           escapes0,       y0,
                          (unsigned)row0, (unsigned)taken, (unsigned)base, 0};
    const unsigned split = R4_NSPLITS > 1 ? r4_cluster_rank() : 0;
    const unsigned column0 = min(split * (unsigned)split_ncols, (unsigned)ncols);
    r4_multiply_skinny<R4_PER_LANE, R4_NX, R4_NSPLITS>(
        part, x, (unsigned)nx, (unsigned)ncols, column0,
        min(column0 + (unsigned)split_ncols, (unsigned)ncols),
        (unsigned)__cvta_generic_to_shared(r4_shared), shape);
#endif
}

#undef R4_SKINNY_NAME
#undef R4_SKINNY_JOIN
#undef R4_SKINNY_CLUSTER
