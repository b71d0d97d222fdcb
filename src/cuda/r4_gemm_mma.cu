/* r4_gemm_mma.cu - y = x W^T for several rows of x by mma.sync, from compute capability 8.0 on.
 * One kernel for each
 *   R4_PER_LANE   4 or 2, as in r4_per_lane
 *   R4_ORDER      0: experts, sorted; 1: in order; 2: K in splits; 3: in two slices
 *   R4_NPARTS     1; of experts also 2
 * binade_r4_gemm_mma_<PER_LANE>_<ORDER>_<NPARTS>: 64 rows of x at a time; the rest is as in
 * r4_gemm.cu.
 * reduction: of splits, enum gemm_reduction of gemm_table.h. */
#include "cuda/r4_gemm_mma.cuh"

#define R4_GEMM_NAME(PER_LANE, ORDER, NPARTS) R4_GEMM_JOIN(PER_LANE, ORDER, NPARTS)
#define R4_GEMM_JOIN(PER_LANE, ORDER, NPARTS) binade_r4_gemm_mma_##PER_LANE##_##ORDER##_##NPARTS

#define R4_HAS_EXPERTS (R4_ORDER == 0)
#if R4_HAS_EXPERTS
#define R4_GEMM_NUMBERS int nexperts,
#define R4_MMA_ORDER R4_MMA_IN_ORDER
#else
#define R4_GEMM_NUMBERS int split_ncols, int reduction,
#define R4_MMA_ORDER (R4_ORDER - 1)
#endif
#include "cuda/r4_gemm_arguments.cuh"

extern "C" __global__ void __launch_bounds__(32 * R4_GEMM_NWARPS(R4_X_NROWS), 1)
    R4_GEMM_NAME(R4_PER_LANE, R4_ORDER, R4_NPARTS)(R4_EACH(R4_PART_WEIGHT) const unsigned short *x,
                                                   R4_GEMM_INDICES R4_EACH(R4_PART_OUT) int nx,
                                                   int ncols, R4_GEMM_NUMBERS int height,
                                                   int x_nrows, int nslots R4_EACH(R4_PART_ROWS)) {
    extern __shared__ __align__(1024) unsigned char r4_shared[];
    const unsigned shared = (unsigned)__cvta_generic_to_shared(r4_shared);
    const r4_gemm_shape shape = {height, x_nrows, nslots};
    const r4_part parts[] = {R4_EACH(R4_PART)};
#if R4_HAS_EXPERTS
    using Items = r4_expert_items<R4_NPARTS, R4_X_NROWS>;
    const Items items(parts, (unsigned)height, (unsigned)nexperts,
                      (unsigned *)(r4_shared + R4_BARRIERS_NBYTES));
    items.find_starts(indices, (unsigned)nx);
    const unsigned slots_at = R4_BARRIERS_NBYTES + R4_STARTS_NBYTES, split_nunits = 0, added = 0;
#else
    using Items = r4_gemm_items<R4_NPARTS, R4_X_NROWS, 1>;
    const Items items(parts, (unsigned)height, (unsigned)nx);
    const unsigned slots_at = R4_BARRIERS_NBYTES, added = (unsigned)reduction;
    const unsigned split_nunits = (unsigned)split_ncols / R4_UNIT_NCOLS;
#endif
    using Sums = typename r4_gemm_mma<R4_MMA_ORDER, Items>::Sums;
    r4_gemm<R4_PER_LANE, R4_X_NROWS, R4_MMA_HEIGHT(R4_MMA_ORDER)>(
        items, x, (unsigned)ncols, 0, (unsigned)ncols, shared, slots_at, shape,
        [&](const r4_gemm_slots<R4_X_NROWS> &slots, unsigned warp, unsigned lane) {
            r4_gemm_mma<R4_MMA_ORDER, Items>(Sums{slots, items, warp, lane}, split_nunits, added)
                .run();
        },
        [] {});
}

#undef R4_GEMM_NAME
#undef R4_GEMM_JOIN
#undef R4_HAS_EXPERTS
#undef R4_GEMM_INDICES
#undef R4_GEMM_NUMBERS
#undef R4_PART_ROWS
#undef R4_PART
#undef R4_PART_BLOCK
#undef R4_MMA_ORDER
