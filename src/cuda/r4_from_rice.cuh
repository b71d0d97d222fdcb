/* r4_from_rice.cuh - rows of R4 from format 2, Rice codes. */
#ifndef BINADE_CUDA_R4_FROM_RICE_CUH
#define BINADE_CUDA_R4_FROM_RICE_CUH

#include "cuda/r4_sink.cuh"

/* A row's stream: 32 words of it are held by the warp, one a lane. Bits count from the row. */
struct r4_rice {
    const unsigned *words;
    unsigned nwords, held_from, held, pos;
};

/* Holds the words from `pos` on, if not nbits more from there are held. */
static __device__ __forceinline__ void r4_hold_bits(r4_rice &rice, unsigned nbits, unsigned lane) {
    if ((rice.pos + nbits + 31) / 32 < rice.held_from + 32) return;
    rice.held_from = rice.pos / 32;
    unsigned at = rice.held_from + lane;
    rice.held = at < rice.nwords ? rice.words[at] : 0;
}

/* Ranks of weights lane + 32 s of a tile of n. */
static __device__ __forceinline__ void r4_rice_tile(r4_rice &rice, unsigned meta, unsigned n,
                                                    unsigned lane, unsigned ranks[4]) {
    const unsigned k = meta & 3, qmax = meta >> 2, lower = (1u << lane) - 1;
    unsigned active[4];

#pragma unroll
    for (int s = 0; s < 4; s++) {
        active[s] = __ballot_sync(~0u, lane + 32 * s < n);
        ranks[s] = 0;
    }
    if (k) {
        r4_hold_bits(rice, n * k + 32, lane);
#pragma unroll
        for (int s = 0; s < 4; s++) {
            unsigned bit = rice.pos - rice.held_from * 32 + (lane + 32 * s) * k;
            unsigned low = __shfl_sync(~0u, rice.held, bit / 32);
            unsigned high = __shfl_sync(~0u, rice.held, bit / 32 + 1);
            ranks[s] = __funnelshift_r(low, high, bit) & ((1u << k) - 1);
        }
        rice.pos += n * k;
    }
    for (unsigned j = 0; j < qmax; j++) {
        unsigned before = 0;
        r4_hold_bits(rice, 128, lane);
#pragma unroll
        for (int s = 0; s < 4; s++) {
            unsigned bit = rice.pos - rice.held_from * 32 + before + __popc(active[s] & lower);
            unsigned word = __shfl_sync(~0u, rice.held, bit / 32);
            unsigned stays = word >> (bit % 32) & active[s] >> lane & 1;
            before += __popc(active[s]);
            active[s] = __ballot_sync(~0u, stays);
            ranks[s] += stays << k;
        }
        rice.pos += before;
    }
}

struct r4_rice_source {
    const unsigned char *raw;   /* [nrows][ncols]; NULL in pass 2 */
    const unsigned char *table; /* [256]; shared memory */
    const unsigned char *meta;  /* [nrows][nslices] */
    const unsigned *bits, *row_starts;
    unsigned nwords; /* of bits */
};

/* The words of a row; none if the stream is damaged there. */
static __device__ __forceinline__ bool r4_find_words(const r4_rice_source &source, unsigned nrows,
                                                     unsigned row, unsigned lane, r4_rice &rice) {
    const unsigned start = source.row_starts[row];
    const unsigned end = row + 1 < nrows ? source.row_starts[row + 1] : source.nwords;
    bool is_damaged = end < start || end > source.nwords || (row == 0 && start > 0);
    rice = {source.bits + start, end - start, 0, 0, 0};
    if (is_damaged) rice = {source.bits, 0, 0, 0, 0};
    rice.held = lane < rice.nwords ? rice.words[lane] : 0;
    return is_damaged;
}

/* exponents: scratch of the warp, [128], shared memory. Returns whether the stream is damaged. */
static __device__ __forceinline__ bool r4_decode_rice(const r4_rice_source &source,
                                                      const r4_shape &shape, unsigned row,
                                                      unsigned lane, unsigned char *exponents,
                                                      r4_sink &sink) {
    const unsigned nslices = r4_nslices(shape.ncols), shift = r4_mask_shift(shape.ncols);
    const unsigned char *raw_row = source.raw ? source.raw + (size_t)row * shape.ncols : nullptr;
    const unsigned char *meta_row = source.meta + (size_t)row * nslices;
    unsigned codes_before = 0, metas = 0;
    r4_rice rice;
    bool is_damaged = r4_find_words(source, shape.nrows, row, lane, rice);

#pragma unroll 1
    for (unsigned slice = 0; slice < nslices; slice++) {
        unsigned n = min(shape.ncols - slice * 128, 128u), ranks[4], here[4], raw[4];
        unsigned present = r4_find_present(shape.ncols, shape.per_lane, slice, lane);
        if (slice % 32 == 0) metas = slice + lane < nslices ? meta_row[slice + lane] : 0;
        unsigned meta = __shfl_sync(~0u, metas, slice % 32);
        r4_read_raw(raw_row, shape.per_lane, slice, lane, present, raw);
        r4_rice_tile(rice, meta, n, lane, ranks);
        unsigned biggest = max(max(ranks[0], ranks[1]), max(ranks[2], ranks[3]));
        is_damaged |= biggest > 255 || (meta >> 2) << (meta & 3) > 255;
        __syncwarp();
#pragma unroll
        for (int s = 0; s < 4; s++)
            exponents[lane + 32 * s] = source.table[ranks[s] & 255];
        __syncwarp();
#pragma unroll
        for (int q = 0; q < 4; q++)
            here[q] = exponents[r4_column(lane * 4 + q, shape.per_lane)];
        r4_put(sink, slice, nslices, shift, lane, shape.base, here, raw, present, codes_before);
    }
    return is_damaged || (rice.pos + 31) / 32 != rice.nwords;
}

#endif
