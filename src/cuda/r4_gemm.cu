/* r4_gemm.cu - y = x W^T for several rows of x on Hopper. One kernel for each
 *   R4_NX         16, 64 or 128 rows of x at a time
 *   R4_PER_LANE   4 or 2, as in r4_per_lane
 *   R4_NSPLITS    1..5 splits of K; 0: experts, sorted, without splits
 * binade_r4_gemm_<NX>_<PER_LANE>_<NSPLITS>. A weight has at least 64 rows, and whole units of 64
 * columns. */
#include "cuda/r4_gemm.cuh"

#define R4_GEMM_NAME(NX, PER_LANE, NSPLITS) R4_GEMM_JOIN(NX, PER_LANE, NSPLITS)
#define R4_GEMM_JOIN(NX, PER_LANE, NSPLITS) binade_r4_gemm_##NX##_##PER_LANE##_##NSPLITS

#if R4_NSPLITS > 1 && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#define R4_GEMM_CLUSTER __cluster_dims__(R4_NSPLITS)
#else
#define R4_GEMM_CLUSTER
#endif

#if R4_NSPLITS == 0
#define R4_GEMM_INDICES const unsigned *indices,
#define R4_GEMM_NUMBERS                                                                            \
    int row0, int taken, int block_nrows, int base, int nexperts, int nx, int ncols
#else
#define R4_GEMM_INDICES
#define R4_GEMM_NUMBERS int row0, int taken, int base, int nx, int ncols, int split_ncols
#endif

extern "C" __global__ void __launch_bounds__((r4_gemm_slots<R4_NX>::nthreads), 1) R4_GEMM_CLUSTER
    R4_GEMM_NAME(R4_NX, R4_PER_LANE, R4_NSPLITS)(const unsigned char *slices, const r4_row *rows,
                                                 const unsigned *escapes, const unsigned short *x,
                                                 R4_GEMM_INDICES unsigned short *y,
                                                 R4_GEMM_NUMBERS) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) unsigned char r4_shared[];
    const unsigned shared = (unsigned)__cvta_generic_to_shared(r4_shared);
    r4_part part = {slices, rows, escapes, y, (unsigned)row0, (unsigned)taken, (unsigned)base, 0};
#if R4_NSPLITS == 0
    part.block_nrows = (unsigned)block_nrows;
    const r4_expert_items<R4_NX> items(part, (unsigned)nexperts,
                                       (unsigned *)(r4_shared + R4_BARRIERS_NBYTES));
    items.find_starts(indices, (unsigned)nx);
    r4_gemm<R4_PER_LANE, R4_NX, 1>(items, part, x, (unsigned)ncols, (unsigned)ncols, shared,
                                   R4_BARRIERS_NBYTES + R4_STARTS_NBYTES);
#else
    const r4_gemm_items<R4_NX, R4_NSPLITS> items(part, (unsigned)nx);
    r4_gemm<R4_PER_LANE, R4_NX, R4_NSPLITS>(items, part, x, (unsigned)ncols, (unsigned)split_ncols,
                                            shared, R4_BARRIERS_NBYTES);
#endif
#endif
}

#undef R4_GEMM_NAME
#undef R4_GEMM_JOIN
#undef R4_GEMM_CLUSTER
#undef R4_GEMM_INDICES
#undef R4_GEMM_NUMBERS
