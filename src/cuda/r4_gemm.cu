/* r4_gemm.cu - y = x W^T for several rows of x on Hopper. One kernel for each
 *   R4_NX         64 or 128 rows of x at a time
 *   R4_PER_LANE   4 or 2, as in r4_per_lane
 *   R4_NSPLITS    1..5 splits of K; 0: experts, sorted, without splits
 *   R4_NPARTS     1; of experts also 2
 * binade_r4_gemm_<NX>_<PER_LANE>_<NSPLITS>_<NPARTS>. A weight has whole units of 64 columns.
 * height: rows of W at a time, whole R4_HEIGHT_STEP, at most R4_WGMMA_HEIGHT_MOST and `taken`; it
 * and what follows are of r4_gemm_shape, as r4_gemm_grid.c chooses. */
#include "cuda/r4_gemm_wgmma.cuh"

#define R4_GEMM_NAME(NX, PER_LANE, NSPLITS, NPARTS) R4_GEMM_JOIN(NX, PER_LANE, NSPLITS, NPARTS)
#define R4_GEMM_JOIN(NX, PER_LANE, NSPLITS, NPARTS)                                                \
    binade_r4_gemm_##NX##_##PER_LANE##_##NSPLITS##_##NPARTS

#if R4_NSPLITS > 1 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define R4_GEMM_CLUSTER __cluster_dims__(R4_NSPLITS)
#else
#define R4_GEMM_CLUSTER
#endif

#define R4_HAS_EXPERTS (R4_NSPLITS == 0)
#if R4_HAS_EXPERTS
#define R4_GEMM_NUMBER int nexperts,
#else
#define R4_GEMM_NUMBER int split_ncols,
#endif
#include "cuda/r4_gemm_arguments.cuh"

extern "C" __global__ void __launch_bounds__(32 * R4_GEMM_NWARPS(R4_NX), 1) R4_GEMM_CLUSTER
    R4_GEMM_NAME(R4_NX, R4_PER_LANE, R4_NSPLITS,
                 R4_NPARTS)(R4_EACH(R4_PART_WEIGHT) const unsigned short *x,
                            R4_GEMM_INDICES R4_EACH(R4_PART_OUT) int nx, int ncols,
                            R4_GEMM_NUMBER int height, int x_nrows,
                            int nslots R4_EACH(R4_PART_ROWS)) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) unsigned char r4_shared[];
    const unsigned shared = (unsigned)__cvta_generic_to_shared(r4_shared);
    const r4_gemm_shape shape = {height, x_nrows, nslots};
    const r4_part parts[] = {R4_EACH(R4_PART)};
#if R4_HAS_EXPERTS
    const r4_expert_items<R4_NPARTS, R4_NX> items(parts, (unsigned)height, (unsigned)nexperts,
                                                  (unsigned *)(r4_shared + R4_BARRIERS_NBYTES));
    items.find_starts(indices, (unsigned)nx);
    r4_gemm_hopper<R4_PER_LANE, R4_NX, 1>(items, x, (unsigned)ncols, (unsigned)ncols, shared,
                                          R4_BARRIERS_NBYTES + R4_STARTS_NBYTES, shape);
#else
    const r4_gemm_items<R4_NPARTS, R4_NX, R4_NSPLITS> items(parts, (unsigned)height, (unsigned)nx);
    r4_gemm_hopper<R4_PER_LANE, R4_NX, R4_NSPLITS>(items, x, (unsigned)ncols, (unsigned)split_ncols,
                                                   shared, R4_BARRIERS_NBYTES, shape);
#endif
#endif
}

#undef R4_GEMM_NAME
#undef R4_GEMM_JOIN
#undef R4_GEMM_CLUSTER
#undef R4_HAS_EXPERTS
#undef R4_GEMM_INDICES
#undef R4_GEMM_NUMBER
#undef R4_PART_ROWS
#undef R4_PART
#undef R4_PART_BLOCK
