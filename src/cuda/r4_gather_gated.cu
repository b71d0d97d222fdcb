/* r4_gather_gated.cu - binade_r4_gather_gated: y = act(G x) * (U x) for items, of their experts'
 * rows of two weights, or of views of one. */
#include "cuda/r4_epilogue.cuh"
#include "cuda/r4_gather.cuh"

#define R4_PART_ROWS(I) , int row0_##I, int taken##I, int block_nrows##I, int base##I
#define R4_PART(I)                                                                                 \
    {slices##I,          rows##I,                                                                  \
     escapes##I,         y,                                                                        \
     (unsigned)row0_##I, (unsigned)taken##I,                                                       \
     (unsigned)base##I,  (unsigned)block_nrows##I},

/* act [65536] */
extern "C" __global__ void __launch_bounds__(1024)
    binade_r4_gather_gated(R4_EACH(R4_PART_WEIGHT) const unsigned short *x, const unsigned *lhs,
                           const unsigned *rhs, const unsigned short *act, unsigned short *y, int n,
                           int nx, int items_per_x, int nexperts, int ncols,
                           int per_lane R4_EACH(R4_PART_ROWS)) {
    extern __shared__ __align__(16) float xs[];
    const r4_part parts[] = {R4_EACH(R4_PART)};
    r4_expert_rows<2> rows(parts, x, (unsigned)n, (unsigned)ncols, xs, true);
    rows.read_items(lhs, rhs, (unsigned)nx, (unsigned)items_per_x, (unsigned)nexperts);
    r4_multiply(r4_gated<r4_expert_rows<2>>(rows, act), (unsigned)ncols, (unsigned)per_lane, xs);
}

#undef R4_PART_ROWS
#undef R4_PART
