/* r4_sink.cuh - where loading puts a row of R4, slice by slice, and the two passes of it.
 *
 * Split: a warp for a row, which a Rice stream asks for: only its planes tell where a tile ends.
 *
 * Pass 1 writes slices, span masks and how many escapes each row has, and keeps the first R4_KEPT
 * of a row. A scan turns the counts into r4_row. Pass 2 copies what was kept to its place; rows
 * that have more are decoded again.
 */
#ifndef BINADE_CUDA_R4_SINK_CUH
#define BINADE_CUDA_R4_SINK_CUH

#include "cuda/r4_gpu_layout.h"

/* Where a row's weights go, and its escapes: `escapes` has room for `room`. */
struct r4_sink {
    unsigned char *row;
    unsigned *escapes;
    unsigned room, nescapes, span_mask;
};

/* One slice of a row: exponents and raw bytes of a lane's four weights, their columns < ncols if
 * `present` has their bit. codes_before: the codes of the slice before, if that one is even. */
static __device__ __forceinline__ void r4_put(r4_sink &sink, unsigned slice, unsigned nslices,
                                              unsigned shift, unsigned lane, unsigned base,
                                              const unsigned exponents[4], const unsigned raw[4],
                                              unsigned present, unsigned &codes_before) {
    unsigned codes[4], nbefore = sink.nescapes, nmine = 0, nall = 0, mine = 0;
    const unsigned lower = (1u << lane) - 1;

#pragma unroll
    for (int q = 0; q < 4; q++) {
        unsigned code = exponents[q] - base;
        bool is_escape = code >= R4_CODE_ESCAPE && (present >> q & 1);
        codes[q] = is_escape ? R4_CODE_ESCAPE : present >> q & 1 ? code : 0;
        unsigned lanes = __ballot_sync(~0u, is_escape);
        nbefore += __popc(lanes & lower);
        nall += __popc(lanes);
        mine |= (unsigned)is_escape << q;
    }
    if (nall) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            if (!(mine >> q & 1)) continue;
            unsigned at = nbefore + nmine++;
            if (at < sink.room)
                sink.escapes[at] = r4_escape(slice * 128 + lane * 4 + q, exponents[q]);
        }
        sink.nescapes += nall;
        sink.span_mask |= 1u << (slice / (R4_SPAN_NCOLS / R4_SLICE_NCOLS) >> shift);
    }
    if (!sink.row) return;

    unsigned word = r4_pack_raw(raw[0], raw[1], raw[2], raw[3]);
    unsigned packed = r4_pack_codes(codes[0], codes[1], codes[2], codes[3]);
    unsigned in_group = slice % R4_GROUP_NSLICES;
    if (slice < nslices / R4_GROUP_NSLICES * R4_GROUP_NSLICES) {
        unsigned char *group = sink.row + (size_t)(slice - in_group) * R4_SLICE_NBYTES;
        *(unsigned *)(group + 16 * lane + 4 * in_group) = word;
        if (in_group % 2)
            *(unsigned *)(group + R4_GROUP_CODES_AT + 8 * lane + in_group / 2 * 4) =
                r4_join_codes(codes_before, packed);
        codes_before = packed;
    } else {
        unsigned char *single = sink.row + (size_t)slice * R4_SLICE_NBYTES;
        *(unsigned *)(single + 4 * lane) = word;
        *(unsigned short *)(single + R4_SLICE_CODES_AT + 2 * lane) = (unsigned short)packed;
    }
}

/* Which columns of a slice a lane's weights have: a bit for each that has one < ncols. */
static __device__ __forceinline__ unsigned r4_find_present(unsigned ncols, unsigned per_lane,
                                                           unsigned slice, unsigned lane) {
    unsigned present = 0;
#pragma unroll
    for (int q = 0; q < 4; q++)
        present |= (unsigned)(r4_column(slice * 128 + lane * 4 + q, per_lane) < ncols) << q;
    return present;
}

/* A lane's raw bytes of a slice; 0 where it has no column, and in pass 2, which needs none. */
static __device__ __forceinline__ void r4_read_raw(const unsigned char *raw_row, unsigned per_lane,
                                                   unsigned slice, unsigned lane, unsigned present,
                                                   unsigned raw[4]) {
#pragma unroll
    for (int q = 0; q < 4; q++)
        raw[q] = raw_row && (present >> q & 1)
                     ? raw_row[r4_column(slice * 128 + lane * 4 + q, per_lane)]
                     : 0;
}

/* ---- Passes ----------------------------------------------------------------------------------
 * decode(row, lane, sink) decodes a row and returns whether its stream is damaged.
 */

struct r4_shape {
    unsigned nrows, ncols, per_lane, base;
};

/* The row of this warp. */
static __device__ __forceinline__ unsigned r4_load_row() {
    return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
}

/* counts[row]: escapes, span mask. kept[row]: the first escapes, then zeros. */
template <class Decode>
static __device__ __forceinline__ void r4_load_pass1(const r4_shape &shape, unsigned char *slices,
                                                     uint2 *counts, unsigned *kept,
                                                     unsigned *faults, Decode decode) {
    const unsigned lane = threadIdx.x % 32, row = r4_load_row();
    if (row >= shape.nrows) return;
    kept += (size_t)row * R4_KEPT;
    r4_sink sink = {slices + (size_t)row * r4_nslices(shape.ncols) * R4_SLICE_NBYTES, kept, R4_KEPT,
                    0, 0};
    bool is_damaged = __any_sync(~0u, decode(row, lane, sink));
    if (lane < R4_KEPT && lane >= sink.nescapes) kept[lane] = 0;
    if (lane > 0) return;
    counts[row] = make_uint2(sink.nescapes, sink.span_mask);
    if (faults) faults[row] = is_damaged;
}

template <class Decode>
static __device__ __forceinline__ void r4_load_pass2(const r4_shape &shape, const r4_row *rows,
                                                     const unsigned *kept, unsigned *escapes,
                                                     Decode decode) {
    const unsigned lane = threadIdx.x % 32, row = r4_load_row();
    if (row >= shape.nrows) return;
    unsigned start = rows[row].escape_start, n = rows[row + 1].escape_start - start;
    if (n <= R4_KEPT) {
        if (lane < n) escapes[start + lane] = kept[(size_t)row * R4_KEPT + lane];
        return;
    }
    r4_sink sink = {0, escapes + start, n, 0, 0};
    decode(row, lane, sink);
}

#endif
