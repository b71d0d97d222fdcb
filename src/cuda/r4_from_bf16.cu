/* r4_from_bf16.cu - binade_r4_from_bf16_1 or _2, by R4_PASS. Blocks of 256, a warp for a row. */
#include "cuda/r4_from_bf16.cuh"

#if R4_PASS == 1
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_from_bf16_1(const unsigned short *bf16, unsigned char *slices, uint2 *counts,
                          unsigned *kept, int nrows, int ncols, int per_lane, int base) {
#else
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_from_bf16_2(const unsigned short *bf16, const r4_row *rows, const unsigned *kept,
                          unsigned *escapes, int nrows, int ncols, int per_lane, int base) {
#endif
    const r4_shape shape = {(unsigned)nrows, (unsigned)ncols, (unsigned)per_lane, (unsigned)base};
    auto decode = [&](unsigned row, unsigned lane, r4_sink &sink) {
        return r4_decode_bf16(bf16, shape, row, lane, sink);
    };
#if R4_PASS == 1
    r4_load_pass1(shape, slices, counts, kept, nullptr, decode);
#else
    r4_load_pass2(shape, rows, kept, escapes, decode);
#endif
}
