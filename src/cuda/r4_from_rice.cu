/* r4_from_rice.cu - binade_r4_from_rice_1 or _2, by R4_PASS. Blocks of 256, a warp for a row. */
#include "cuda/r4_from_rice.cuh"

#if R4_PASS == 1
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_from_rice_1(const unsigned char *raw, const unsigned char *table,
                          const unsigned char *meta, const unsigned *bits,
                          const unsigned *row_starts, unsigned char *slices, uint2 *counts,
                          unsigned *kept, unsigned *faults, int nrows, int ncols, int per_lane,
                          int base, int nwords) {
#else
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_from_rice_2(const unsigned char *table, const unsigned char *meta,
                          const unsigned *bits, const unsigned *row_starts, const r4_row *rows,
                          const unsigned *kept, unsigned *escapes, int nrows, int ncols,
                          int per_lane, int base, int nwords) {
    const unsigned char *const raw = nullptr;
#endif
    __shared__ unsigned char held[256], exponents[R4_LOAD_NWARPS][128];
    held[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    const r4_shape shape = {(unsigned)nrows, (unsigned)ncols, (unsigned)per_lane, (unsigned)base};
    const r4_rice_source source = {raw, held, meta, bits, row_starts, (unsigned)nwords};
    auto decode = [&](unsigned row, unsigned lane, r4_sink &sink) {
        return r4_decode_rice(source, shape, row, lane, exponents[threadIdx.x / 32], sink);
    };
#if R4_PASS == 1
    r4_load_pass1(shape, slices, counts, kept, faults, decode);
#else
    r4_load_pass2(shape, rows, kept, escapes, decode);
#endif
}
