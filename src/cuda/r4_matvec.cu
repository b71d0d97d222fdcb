/* r4_matvec.cu - y = W x for R4_NPARTS (1..3) weights: binade_r4_matvec_1 and so on; with R4_NORMED
 * 1 (r4_matvec_normed.cu), of x's RMS norm: binade_r4_matvec_normed_1 and so on. norm: [ncols] */
#include "cuda/r4_matvec.cuh"
#include "cuda/r4_normed.cuh"

#define R4_PART_ROWS(I) , int row0_##I, int nrows##I, int base##I
#define R4_PART(I)                                                                                 \
    {slices##I,          rows##I,           escapes##I, y##I, (unsigned)row0_##I,                  \
     (unsigned)nrows##I, (unsigned)base##I, 0},

#if R4_NORMED
#define R4_NAME R4_JOIN(binade_r4_matvec_normed_, R4_NPARTS)
#else
#define R4_NAME R4_JOIN(binade_r4_matvec_, R4_NPARTS)
#endif

extern "C" __global__ void __launch_bounds__(1024)
    R4_NAME(R4_EACH(R4_PART_WEIGHT) const unsigned short *x,
            R4_NORM_ARRAY R4_EACH(R4_PART_OUT) int ncols,
            int per_lane R4_EACH(R4_PART_ROWS) R4_NORM_NUMBER) {
    extern __shared__ __align__(16) float xs[];
    const r4_part parts[] = {R4_EACH(R4_PART)};
    const r4_plain_rows<R4_NPARTS> rows(parts, x);
#if R4_NORMED
    r4_multiply(r4_normed<r4_plain_rows<R4_NPARTS>>(rows, norm, eps, (unsigned)ncols, xs),
                (unsigned)ncols, (unsigned)per_lane, xs);
#else
    r4_multiply(rows, (unsigned)ncols, (unsigned)per_lane, xs);
#endif
}

#undef R4_NAME
#undef R4_PART_ROWS
#undef R4_PART
