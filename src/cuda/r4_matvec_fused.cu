/* r4_matvec_fused.cu - a matvec and MLX's operation after it: with R4_NPARTS 1
 * binade_r4_matvec_added, y = r + W x; with 2 binade_r4_matvec_gated, y = act(G x) * (U x), and
 * with R4_NORMED 1 (r4_gated_normed.cu) the same of x's RMS norm. */
#include "cuda/r4_epilogue.cuh"
#include "cuda/r4_matvec.cuh"
#include "cuda/r4_normed.cuh"

#define R4_PART_ROWS(I) , int row0_##I, int nrows##I, int base##I
#define R4_PART(I)                                                                                 \
    {slices##I,          rows##I,           escapes##I, y, (unsigned)row0_##I,                     \
     (unsigned)nrows##I, (unsigned)base##I, 0},

/* with: r [nrows], or act [65536]. */
extern "C" __global__ void __launch_bounds__(1024)
#if R4_NPARTS == 1
    binade_r4_matvec_added
#elif R4_NORMED
    binade_r4_matvec_gated_normed
#else
    binade_r4_matvec_gated
#endif
    (R4_EACH(R4_PART_WEIGHT) const unsigned short *x, const unsigned short *with,
     R4_NORM_ARRAY unsigned short *y, int ncols,
     int per_lane R4_EACH(R4_PART_ROWS) R4_NORM_NUMBER) {
    extern __shared__ __align__(16) float xs[];
    const r4_part parts[] = {R4_EACH(R4_PART)};
    r4_plain_rows<R4_NPARTS> rows(parts, x);
#if R4_NPARTS == 1
    r4_added<r4_plain_rows<1>> fused(rows, with);
#else
    rows.nrows = parts[0].taken;
    r4_gated<r4_plain_rows<2>> fused(rows, with);
#endif
#if R4_NORMED
    r4_normed<r4_gated<r4_plain_rows<2>>> normed(fused, norm, eps, (unsigned)ncols, xs);
    r4_multiply(normed, (unsigned)ncols, (unsigned)per_lane, xs);
#else
    r4_multiply(fused, (unsigned)ncols, (unsigned)per_lane, xs);
#endif
}

#undef R4_PART_ROWS
#undef R4_PART
