/* r4_measure_fixed.cu - how many words each row of format 1 has (R4_PASS 1), and how many escapes
 * (2). Blocks of 256, a warp for a row. */
#include "cuda/r4_from_fixed.cuh"

#if R4_PASS == 1
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_measure_fixed(const unsigned char *meta, unsigned *widths, int nrows, int ncols) {
    r4_measure_fixed(meta, widths, (unsigned)nrows, (unsigned)ncols);
}
#else
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_count_fixed(const unsigned char *meta, const unsigned *idx,
                          const unsigned *code_starts, unsigned *nescapes, int nrows, int ncols,
                          int nwords) {
    r4_count_fixed(meta, idx, code_starts, nescapes, (unsigned)nrows, (unsigned)ncols,
                   (unsigned)nwords);
}
#endif
