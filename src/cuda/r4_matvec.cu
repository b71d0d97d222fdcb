/* r4_matvec.cu - binade_r4_matvec_1, _2 or _3: y = W x for R4_NPARTS weights. */
#include "cuda/r4_matvec.cuh"

#define R4_PART_ROWS(I) , int row0_##I, int nrows##I, int base##I
#define R4_PART(I)                                                                                 \
    {slices##I,          rows##I,           escapes##I, y##I, (unsigned)row0_##I,                  \
     (unsigned)nrows##I, (unsigned)base##I, 0},

extern "C" __global__ void __launch_bounds__(1024)
    R4_JOIN(binade_r4_matvec_, R4_NPARTS)(R4_EACH(R4_PART_WEIGHT) const unsigned short *x,
                                          R4_EACH(R4_PART_OUT) int ncols,
                                          int per_lane R4_EACH(R4_PART_ROWS)) {
    extern __shared__ __align__(16) float xs[];
    const r4_part parts[] = {R4_EACH(R4_PART)};
    r4_multiply(r4_plain_rows<R4_NPARTS>(parts, x), (unsigned)ncols, (unsigned)per_lane, xs);
}

#undef R4_PART_ROWS
#undef R4_PART
