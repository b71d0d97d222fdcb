/* r4_from_fixed.cu - binade_r4_from_fixed_1 or _2, by R4_PASS. Blocks of 256, a warp for a row. */
#include "cuda/r4_from_fixed.cuh"

#if R4_PASS == 1
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_from_fixed_1(const unsigned char *raw, const unsigned char *table,
                           const unsigned char *meta, const unsigned *idx, const unsigned char *esc,
                           const unsigned *code_starts, const unsigned *escape_starts,
                           unsigned char *slices, uint2 *counts, unsigned *kept, unsigned *faults,
                           int nrows, int ncols, int per_lane, int base, int nwords, int nescapes) {
#else
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_from_fixed_2(const unsigned char *table, const unsigned char *meta,
                           const unsigned *idx, const unsigned char *esc,
                           const unsigned *code_starts, const unsigned *escape_starts,
                           const r4_row *rows, const unsigned *kept, unsigned *escapes, int nrows,
                           int ncols, int per_lane, int base, int nwords, int nescapes) {
    const unsigned char *const raw = nullptr;
#endif
    __shared__ unsigned char held[256], exponents[R4_LOAD_NWARPS][128];
    held[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    const r4_shape shape = {(unsigned)nrows, (unsigned)ncols, (unsigned)per_lane, (unsigned)base};
    const r4_fixed_source source = {raw,
                                    held,
                                    meta,
                                    idx,
                                    esc,
                                    code_starts,
                                    escape_starts,
                                    (unsigned)nwords,
                                    (unsigned)nescapes};
    auto decode = [&](unsigned row, unsigned lane, r4_sink &sink) {
        return r4_decode_fixed(source, shape, row, lane, exponents[threadIdx.x / 32], sink);
    };
#if R4_PASS == 1
    r4_load_pass1(shape, slices, counts, kept, faults, decode);
#else
    r4_load_pass2(shape, rows, kept, escapes, decode);
#endif
}
