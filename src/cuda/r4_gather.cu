/* r4_gather.cu - binade_r4_gather_1 or _2: products of items with their experts' rows of R4_NPARTS
 * weights, or of views of one. */
#include "cuda/r4_gather.cuh"

#define R4_PART_ROWS(I) , int row0_##I, int taken##I, int block_nrows##I, int base##I
#define R4_PART(I)                                                                                 \
    {slices##I,          rows##I,                                                                  \
     escapes##I,         y##I,                                                                     \
     (unsigned)row0_##I, (unsigned)taken##I,                                                       \
     (unsigned)base##I,  (unsigned)block_nrows##I},

extern "C" __global__ void __launch_bounds__(1024)
    R4_JOIN(binade_r4_gather_,
            R4_NPARTS)(R4_EACH(R4_PART_WEIGHT) const unsigned short *x, const unsigned *lhs,
                       const unsigned *rhs, R4_EACH(R4_PART_OUT) int n, int nx, int items_per_x,
                       int nexperts, int ncols, int per_lane R4_EACH(R4_PART_ROWS)) {
    extern __shared__ __align__(16) float xs[];
    const r4_part parts[] = {R4_EACH(R4_PART)};
    r4_expert_rows<R4_NPARTS> rows(parts, x, (unsigned)n, (unsigned)ncols, xs);
    rows.read_items(lhs, rhs, (unsigned)nx, (unsigned)items_per_x, (unsigned)nexperts);
    r4_multiply(rows, (unsigned)ncols, (unsigned)per_lane, xs);
}

#undef R4_PART_ROWS
#undef R4_PART
