/* r4_transcode.cuh - makes R4 on a GPU from codes of either format or from BF16.
 *
 * Split: a warp for a row, which a Rice stream asks for: only its planes tell where a tile ends.
 *
 * Pass 1 writes slices, span masks and how many escapes each row has, and keeps the first
 * R4_KEPT of a row. A scan turns the counts into escape_start. Pass 2 copies what was kept to its
 * place; rows that have more are decoded again.
 */
#ifndef BINADE_CUDA_R4_TRANSCODE_CUH
#define BINADE_CUDA_R4_TRANSCODE_CUH

#include "cuda/r4_gpu_layout.h"

enum { R4_KEPT = 16, R4_TRANSCODE_NWARPS = 8 };

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

/* What every source needs. */
struct r4_transcode_job {
    unsigned nrows, ncols, per_lane, base;
    unsigned char *slices;
    r4_row *rows;      /* pass 1: span_mask, and the number of escapes in escape_start */
    unsigned *kept;    /* [nrows][R4_KEPT] */
    unsigned *escapes; /* pass 2 */
    unsigned *faults;  /* set to 1 where a stream is damaged */
};

/* The raw bytes of a lane's weights of a slice. Returns a bit for each that has a column. */
static __device__ __forceinline__ unsigned r4_read_raw(const unsigned char *raw_row, unsigned ncols,
                                                       unsigned per_lane, unsigned slice,
                                                       unsigned lane, unsigned raw[4]) {
    unsigned present = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        unsigned column = r4_column(slice * 128 + lane * 4 + q, per_lane);
        raw[q] = column < ncols ? raw_row[column] : 0;
        present |= (unsigned)(column < ncols) << q;
    }
    return present;
}

/* ---- Rice ------------------------------------------------------------------------------------ */

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
    const unsigned char *raw;   /* [nrows][ncols] */
    const unsigned char *table; /* [256] */
    const unsigned char *meta;  /* [nrows][nslices] */
    const unsigned *bits, *row_starts;
    unsigned long long nwords;
};

static __device__ __forceinline__ void
r4_transcode_rice_row(const r4_rice_source &source, const r4_transcode_job &job, unsigned row,
                      unsigned lane, const unsigned char *table, unsigned char *exponents,
                      r4_sink &sink) {
    const unsigned nslices = r4_nslices(job.ncols), shift = r4_mask_shift(job.ncols);
    const unsigned long long start = source.row_starts[row];
    const unsigned long long end = row + 1 < job.nrows ? source.row_starts[row + 1] : source.nwords;
    const unsigned char *raw_row = source.raw + (size_t)row * job.ncols;
    const unsigned char *meta_row = source.meta + (size_t)row * nslices;
    r4_rice rice = {source.bits + start, (unsigned)(end - start), 0, 0, 0};
    unsigned codes_before = 0, metas = 0;

    if (end < start || end > source.nwords) {
        *job.faults = 1;
        return;
    }
    rice.held = lane < rice.nwords ? rice.words[lane] : 0;
#pragma unroll 1
    for (unsigned slice = 0; slice < nslices; slice++) {
        unsigned n = min(job.ncols - slice * 128, 128u), ranks[4], here[4], raw[4], present;
        if (slice % 32 == 0) metas = slice + lane < nslices ? meta_row[slice + lane] : 0;
        unsigned meta = __shfl_sync(~0u, metas, slice % 32);
        present = r4_read_raw(raw_row, job.ncols, job.per_lane, slice, lane, raw);
        r4_rice_tile(rice, meta, n, lane, ranks);
        unsigned biggest = max(max(ranks[0], ranks[1]), max(ranks[2], ranks[3]));
        if (biggest > 255 || (meta >> 2) << (meta & 3) > 255) *job.faults = 1;
        __syncwarp();
#pragma unroll
        for (int s = 0; s < 4; s++)
            exponents[lane + 32 * s] = table[ranks[s] & 255];
        __syncwarp();
#pragma unroll
        for (int q = 0; q < 4; q++)
            here[q] = exponents[r4_column(lane * 4 + q, job.per_lane)];
        r4_put(sink, slice, nslices, shift, lane, job.base, here, raw, present, codes_before);
    }
    if ((rice.pos + 31) / 32 != rice.nwords && lane == 0) *job.faults = 1;
}

/* ---- Fixed width -----------------------------------------------------------------------------
 * No offsets are stored: two passes find where each row's codes and escapes begin.
 */

struct r4_fixed_source {
    const unsigned char *raw;   /* [nrows][ncols] */
    const unsigned char *table; /* [256] */
    const unsigned char *meta;  /* [nrows][nslices] */
    const unsigned *idx;
    const unsigned char *esc;
    unsigned long long nwords, nescapes; /* of idx and esc */
    unsigned *code_starts;               /* scratch [nrows + 1]: quarters of a row's words */
    unsigned *escape_starts;             /* scratch [nrows + 1] */
};

/* Bits of a valid meta's codes, 0..8. */
static __device__ __forceinline__ unsigned r4_fixed_width(unsigned meta, unsigned *faults) {
    unsigned b = meta & 15;
    bool is_valid = meta & 16 ? meta < 32 && b >= 1 && b <= 4 : meta <= 8;
    if (is_valid) return b;
    *faults = 1;
    return 0;
}

/* Code i of a tile that begins at word `first`. */
static __device__ __forceinline__ unsigned
r4_fixed_code(const r4_fixed_source &source, unsigned long long first, unsigned b, unsigned i) {
    unsigned long long at = first + i * b / 32;
    unsigned low = b > 0 && at < source.nwords ? source.idx[at] : 0, shift = i * b % 32;
    unsigned high = shift + b > 32 && at + 1 < source.nwords ? source.idx[at + 1] : 0;
    return __funnelshift_r(low, high, shift) & ((1u << b) - 1);
}

/* Pass A: code_starts[row] is a row's width in all. */
static __device__ __forceinline__ void r4_fixed_measure(const r4_fixed_source &source,
                                                        const r4_transcode_job &job) {
    const unsigned lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const unsigned nslices = r4_nslices(job.ncols);
    unsigned sum = 0;
    if (row >= job.nrows) return;
    for (unsigned slice = lane; slice < nslices; slice += 32)
        sum += r4_fixed_width(source.meta[(size_t)row * nslices + slice], job.faults);
    for (int apart = 16; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(~0u, sum, apart);
    if (lane == 0) source.code_starts[row] = sum;
}

/* Pass B, code_starts being sums: escape_starts[row] is how many escapes a row has. */
static __device__ __forceinline__ void r4_fixed_count(const r4_fixed_source &source,
                                                      const r4_transcode_job &job) {
    const unsigned lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const unsigned nslices = r4_nslices(job.ncols);
    unsigned n = 0;
    if (row >= job.nrows) return;
    unsigned long long first = 4ull * source.code_starts[row];
    for (unsigned slice = 0; slice < nslices; slice++) {
        unsigned meta = source.meta[(size_t)row * nslices + slice];
        unsigned b = r4_fixed_width(meta, job.faults);
        for (int s = 0; s < 4 && meta & 16 && b; s++)
            n += __popc(__ballot_sync(~0u, r4_fixed_code(source, first, b, lane + 32 * s) ==
                                               (1u << b) - 1));
        first += 4 * b;
    }
    if (lane > 0) return;
    source.escape_starts[row] = n;
    if (row == 0 && 4ull * source.code_starts[job.nrows] != source.nwords) *job.faults = 1;
}

/* Pass 1 or 2, both starts being sums. */
static __device__ __forceinline__ void
r4_transcode_fixed_row(const r4_fixed_source &source, const r4_transcode_job &job, unsigned row,
                       unsigned lane, const unsigned char *table, unsigned char *exponents,
                       r4_sink &sink) {
    const unsigned nslices = r4_nslices(job.ncols), shift = r4_mask_shift(job.ncols);
    const unsigned char *raw_row = source.raw + (size_t)row * job.ncols;
    unsigned long long first = 4ull * source.code_starts[row], next = source.escape_starts[row];
    unsigned codes_before = 0;

    if (row == 0 && lane == 0 && source.escape_starts[job.nrows] != source.nescapes)
        *job.faults = 1;
#pragma unroll 1
    for (unsigned slice = 0; slice < nslices; slice++) {
        unsigned meta = source.meta[(size_t)row * nslices + slice], here[4], raw[4], present;
        unsigned b = r4_fixed_width(meta, job.faults);
        unsigned escape = meta & 16 && b ? (1u << b) - 1 : 256;

        present = r4_read_raw(raw_row, job.ncols, job.per_lane, slice, lane, raw);
        __syncwarp();
#pragma unroll
        for (int s = 0; s < 4; s++) {
            unsigned code = r4_fixed_code(source, first, b, lane + 32 * s);
            unsigned lanes = __ballot_sync(~0u, code == escape);
            unsigned long long at = next + __popc(lanes & ((1u << lane) - 1));
            exponents[lane + 32 * s] = code != escape         ? table[code]
                                       : at < source.nescapes ? source.esc[at]
                                                              : 0;
            next += __popc(lanes);
        }
        __syncwarp();
        first += 4 * b;
#pragma unroll
        for (int q = 0; q < 4; q++)
            here[q] = exponents[r4_column(lane * 4 + q, job.per_lane)];
        r4_put(sink, slice, nslices, shift, lane, job.base, here, raw, present, codes_before);
    }
}

/* ---- BF16 ------------------------------------------------------------------------------------ */

struct r4_bf16_source {
    const unsigned short *weights; /* [nrows][ncols] */
};

static __device__ __forceinline__ void r4_transcode_bf16_row(const r4_bf16_source &source,
                                                             const r4_transcode_job &job,
                                                             unsigned row, unsigned lane,
                                                             r4_sink &sink) {
    const unsigned nslices = r4_nslices(job.ncols), shift = r4_mask_shift(job.ncols);
    const unsigned short *weights = source.weights + (size_t)row * job.ncols;
    unsigned codes_before = 0;

    for (unsigned slice = 0; slice < nslices; slice++) {
        unsigned here[4], raw[4], present = 0;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            unsigned column = r4_column(slice * 128 + lane * 4 + q, job.per_lane);
            bool is_there = column < job.ncols;
            unsigned weight = is_there ? weights[column] : 0;
            here[q] = weight >> 7 & 255;
            raw[q] = (weight >> 8 & 0x80) | (weight & 0x7f);
            present |= (unsigned)is_there << q;
        }
        r4_put(sink, slice, nslices, shift, lane, job.base, here, raw, present, codes_before);
    }
}

/* ---- Passes ----------------------------------------------------------------------------------
 * transcode_row(row, lane, sink) is one of the above.
 */

template <class Transcode>
static __device__ __forceinline__ void r4_transcode_pass1(const r4_transcode_job &job,
                                                          Transcode transcode_row) {
    const unsigned lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= job.nrows) return;
    r4_sink sink = {job.slices + (size_t)row * r4_nslices(job.ncols) * R4_SLICE_NBYTES,
                    job.kept + (size_t)row * R4_KEPT, R4_KEPT, 0, 0};
    transcode_row(row, lane, sink);
    if (lane == 0) {
        job.rows[row].escape_start = sink.nescapes;
        job.rows[row].span_mask = sink.span_mask;
        if (row + 1 == job.nrows) job.rows[job.nrows].span_mask = 0;
    }
}

template <class Transcode>
static __device__ __forceinline__ void r4_transcode_pass2(const r4_transcode_job &job,
                                                          Transcode transcode_row) {
    const unsigned lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= job.nrows) return;
    unsigned start = job.rows[row].escape_start, n = job.rows[row + 1].escape_start - start;
    if (n == 0) return;
    if (n <= R4_KEPT) {
        if (lane < n) job.escapes[start + lane] = job.kept[(size_t)row * R4_KEPT + lane];
        return;
    }
    r4_sink sink = {0, job.escapes + start, n, 0, 0};
    transcode_row(row, lane, sink);
}

/* One block of 1024: values[0], values[step] .. become sums of those before, and the one behind the
 * last the sum of all n. */
static __device__ __forceinline__ void r4_scan(unsigned *values, unsigned step, unsigned n) {
    __shared__ unsigned sums[1024];
    const unsigned each = (n + 1023) / 1024, first = min(threadIdx.x * each, n);
    const unsigned last = min(first + each, n);
    unsigned sum = 0;

    for (unsigned i = first; i < last; i++)
        sum += values[(size_t)i * step];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned apart = 1; apart < 1024; apart *= 2) {
        unsigned before = threadIdx.x >= apart ? sums[threadIdx.x - apart] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    unsigned start = sums[threadIdx.x] - sum;
    for (unsigned i = first; i < last; i++) {
        unsigned here = values[(size_t)i * step];
        values[(size_t)i * step] = start;
        start += here;
    }
    if (threadIdx.x == 1023) values[(size_t)n * step] = sums[1023];
}

#endif
