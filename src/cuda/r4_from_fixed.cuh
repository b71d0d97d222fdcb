/* r4_from_fixed.cuh - rows of R4 from format 1, codes of a fixed width with escapes.
 *
 * The format stores no offsets: two passes before those of r4_sink.cuh measure how many words and
 * escapes each row has, and scans make of these where a row's begin.
 */
#ifndef BINADE_CUDA_R4_FROM_FIXED_CUH
#define BINADE_CUDA_R4_FROM_FIXED_CUH

#include "cuda/r4_sink.cuh"

struct r4_fixed_source {
    const unsigned char *raw;   /* [nrows][ncols]; NULL in pass 2 */
    const unsigned char *table; /* [256]; shared memory */
    const unsigned char *meta;  /* [nrows][nslices] */
    const unsigned *idx;
    const unsigned char *esc;
    const unsigned *code_starts;   /* [nrows + 1]: quarters of the words before a row */
    const unsigned *escape_starts; /* [nrows + 1] */
    unsigned nwords, nescapes;     /* of idx and esc */
};

static __device__ __forceinline__ bool r4_fixed_meta_is_valid(unsigned meta) {
    unsigned b = meta & 15;
    return meta & 16 ? meta < 32 && b >= 1 && b <= 4 : meta <= 8;
}

/* Bits of a meta's codes, 0..8; 0 if it is none. */
static __device__ __forceinline__ unsigned r4_fixed_width(unsigned meta) {
    return r4_fixed_meta_is_valid(meta) ? meta & 15 : 0;
}

/* Code i of a tile that begins at word `first`. */
static __device__ __forceinline__ unsigned r4_fixed_code(const unsigned *idx, unsigned nwords,
                                                         unsigned long long first, unsigned b,
                                                         unsigned i) {
    unsigned long long at = first + i * b / 32;
    unsigned low = b > 0 && at < nwords ? idx[at] : 0, shift = i * b % 32;
    unsigned high = shift + b > 32 && at + 1 < nwords ? idx[at + 1] : 0;
    return __funnelshift_r(low, high, shift) & ((1u << b) - 1);
}

/* widths[row]: the sum of a row's widths, a quarter of its words. */
static __device__ __forceinline__ void r4_measure_fixed(const unsigned char *meta, unsigned *widths,
                                                        unsigned nrows, unsigned ncols) {
    const unsigned lane = threadIdx.x % 32, row = r4_load_row(), nslices = r4_nslices(ncols);
    unsigned sum = 0;
    if (row >= nrows) return;
    for (unsigned slice = lane; slice < nslices; slice += 32)
        sum += r4_fixed_width(meta[(size_t)row * nslices + slice]);
    for (int apart = 16; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(~0u, sum, apart);
    if (lane == 0) widths[row] = sum;
}

/* nescapes[row]: how many escapes a row has. */
static __device__ __forceinline__ void
r4_count_fixed(const unsigned char *meta, const unsigned *idx, const unsigned *code_starts,
               unsigned *nescapes, unsigned nrows, unsigned ncols, unsigned nwords) {
    const unsigned lane = threadIdx.x % 32, row = r4_load_row(), nslices = r4_nslices(ncols);
    unsigned n = 0;
    if (row >= nrows) return;
    unsigned long long first = 4ull * code_starts[row];
    for (unsigned slice = 0; slice < nslices; slice++) {
        unsigned here = meta[(size_t)row * nslices + slice], b = r4_fixed_width(here);
        for (unsigned s = 0; s < 4 && here & 16 && b; s++)
            n += __popc(__ballot_sync(~0u, r4_fixed_code(idx, nwords, first, b, lane + 32 * s) ==
                                               (1u << b) - 1));
        first += 4 * b;
    }
    if (lane == 0) nescapes[row] = n;
}

/* exponents: scratch of the warp, [128], shared memory. Returns whether the stream is damaged. */
static __device__ __forceinline__ bool r4_decode_fixed(const r4_fixed_source &source,
                                                       const r4_shape &shape, unsigned row,
                                                       unsigned lane, unsigned char *exponents,
                                                       r4_sink &sink) {
    const unsigned nslices = r4_nslices(shape.ncols), shift = r4_mask_shift(shape.ncols);
    const unsigned char *raw_row = source.raw ? source.raw + (size_t)row * shape.ncols : nullptr;
    unsigned long long first = 4ull * source.code_starts[row], next = source.escape_starts[row];
    unsigned codes_before = 0;
    bool is_damaged = row == 0 && (4ull * source.code_starts[shape.nrows] != source.nwords ||
                                   source.escape_starts[shape.nrows] != source.nescapes);

#pragma unroll 1
    for (unsigned slice = 0; slice < nslices; slice++) {
        unsigned meta = source.meta[(size_t)row * nslices + slice], here[4], raw[4];
        unsigned present = r4_find_present(shape.ncols, shape.per_lane, slice, lane);
        unsigned b = r4_fixed_width(meta), escape = meta & 16 && b ? (1u << b) - 1 : 256;

        is_damaged |= !r4_fixed_meta_is_valid(meta);
        r4_read_raw(raw_row, shape.per_lane, slice, lane, present, raw);
        __syncwarp();
#pragma unroll
        for (unsigned s = 0; s < 4; s++) {
            unsigned code = r4_fixed_code(source.idx, source.nwords, first, b, lane + 32 * s);
            unsigned lanes = __ballot_sync(~0u, code == escape);
            unsigned long long at = next + __popc(lanes & ((1u << lane) - 1));
            exponents[lane + 32 * s] = code != escape         ? source.table[code]
                                       : at < source.nescapes ? source.esc[at]
                                                              : 0;
            next += __popc(lanes);
        }
        __syncwarp();
        first += 4 * b;
#pragma unroll
        for (int q = 0; q < 4; q++)
            here[q] = exponents[r4_column(lane * 4 + q, shape.per_lane)];
        r4_put(sink, slice, nslices, shift, lane, shape.base, here, raw, present, codes_before);
    }
    return is_damaged;
}

#endif
