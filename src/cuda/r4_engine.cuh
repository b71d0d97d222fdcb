/* r4_engine.cuh - products of rows with x in the order of MLX's CUDA gemv: what the matvec and the
 * gather share. Which rows, of which weight, with which x, is told by a `Rows`:
 *
 *   nstages            spans of a warp's ring
 *   Cursor             a virtual row: one of those that a launch multiplies
 *   first(), advance(cursor), has(cursor)   the virtual rows of this warp
 *   bytes(cursor, row_nbytes), header(cursor), escapes(cursor), bases(cursor)   of its weight
 *   nstaged(), x_row(i)   the rows of x that the block stages
 *   staged(cursor)     which of them this row takes
 *   prepare(start), finish4(x, column), finish1(x, column)   as in r4_raw_x
 *   put(cursor, lane, sum)
 *
 * A warp asks only when it changes rows.
 *
 * x is staged once a block as float32, in the order of positions, so that nothing behind that
 * depends on how many columns a lane takes at once. Behind column K it is -0: added to any sum as
 * a product with a weight that is finite and positive, it changes no bit.
 *
 * Each warp copies its rows through a ring in shared memory, some spans of 8 slices deep and over
 * the ends of rows. x is asked for before the first of them, as all else waits for it. More stages
 * than the matvec's 3 and the gather's 2 are slower on an H200: a warp whose copies wait behind all
 * copies of the other warps starts late, and nobody takes over its rows.
 *
 * Spans without escapes go the fast way, whole ones the fastest. Flagged ones go group by group
 * through one place.
 */
#ifndef BINADE_CUDA_R4_ENGINE_CUH
#define BINADE_CUDA_R4_ENGINE_CUH

#include "cuda/r4_sum.cuh"
#include "cuda/r4_unpack.cuh"

/* ---- Escapes ----------------------------------------------------------------------------------
 */

/* Those of a row that are still to come: `mine` is number held_from + lane. */
struct r4_escapes {
    unsigned next, end, span_mask, held_from, mine;
};

static __device__ __forceinline__ r4_escapes r4_read_header(const r4_row *rows, unsigned row) {
    return {rows[row].escape_start, rows[row + 1].escape_start, rows[row].span_mask, 0, 0};
}

static __device__ __forceinline__ void r4_hold_escapes(const unsigned *escapes, unsigned lane,
                                                       r4_escapes &e) {
    e.held_from = e.next;
    e.mine = e.next + lane < e.end ? escapes[e.next + lane] : ~0u;
}

static __device__ __forceinline__ void r4_patch_group(const unsigned *escapes, unsigned g,
                                                      unsigned lane, unsigned bases, r4_escapes &e,
                                                      unsigned pairs[8]) {
#pragma unroll 1
    while (e.next < e.end) {
        if (e.next - e.held_from == 32) r4_hold_escapes(escapes, lane, e);
        unsigned escape = __shfl_sync(~0u, e.mine, e.next - e.held_from);
        if (r4_escape_group(escape) != g) break;
        r4_patch(escape, lane, bases, pairs);
        e.next++;
    }
}

/* ---- x ----------------------------------------------------------------------------------------
 */

enum { R4_NHELD = 4 };

/* x is staged as it is. Others may compute something first, and have then to call start()
 * themselves and return true; and change four BF16 from `column` on, or one, before they are
 * staged. */
struct r4_raw_x {
    template <class Start> __device__ bool prepare(Start) const { return false; }
    __device__ uint2 finish4(uint2 x, unsigned) const { return x; }
    __device__ unsigned finish1(unsigned x, unsigned) const { return x; }
};

/* Where a thread is: it takes a piece of every row of x, then the next pieces. */
struct r4_place {
    unsigned row, column;
};

static __device__ __forceinline__ void r4_step(r4_place &at, unsigned nrows, unsigned step) {
    if (++at.row < nrows) return;
    at.row = 0;
    at.column += step;
}

/* Puts all rows of x into shared memory at xs; start() is called once, with the first of them asked
 * for. A piece is four columns where per_lane, and so the alignment of x, is 4, else one. Blocks
 * are a multiple of 128, so that a step goes over whole slices. */
template <class Rows, class Start>
static __device__ __forceinline__ void r4_stage_x(const Rows &rows, unsigned ncols,
                                                  unsigned per_lane, unsigned npositions,
                                                  unsigned xs, Start start) {
    const unsigned width = per_lane == 4 ? 4 : 1, step = width * blockDim.x;
    const unsigned mine = width * threadIdx.x, nstaged = rows.nstaged();
    const unsigned to = xs + 4 * (r4_position(mine, per_lane) - mine);
    r4_place at = {0, mine};
#pragma unroll 1
    do {
        r4_place ahead = at;
        const unsigned short *from[R4_NHELD];
        bool there[R4_NHELD];
        uint2 held[R4_NHELD];
#pragma unroll
        for (unsigned i = 0; i < R4_NHELD; i++) {
            from[i] = rows.x_row(ahead.row) + ahead.column;
            there[i] = ahead.column < ncols;
            held[i] = make_uint2(0x80008000u, 0x80008000u);
            r4_step(ahead, nstaged, step);
        }
        if (width == 4) { /* apart, so that no load waits for one that is left out */
#pragma unroll
            for (unsigned i = 0; i < R4_NHELD; i++)
                if (there[i]) held[i] = *(const uint2 *)from[i];
        } else {
#pragma unroll
            for (unsigned i = 0; i < R4_NHELD; i++)
                if (there[i]) held[i].x = *from[i];
        }
        if (at.row == 0 && at.column == mine) start();
#pragma unroll
        for (unsigned i = 0; i < R4_NHELD; i++) {
            if (there[i] && width == 4) held[i] = rows.finish4(held[i], at.column);
            if (there[i] && width == 1) held[i].x = rows.finish1(held[i].x, at.column);
            r4_put_x(to + 4 * (at.row * npositions + at.column), held[i],
                     width == 4 && at.column < npositions, width == 1 && at.column < npositions);
            r4_step(at, nstaged, step);
        }
    } while (at.column < npositions);
}

/* ---- Products ---------------------------------------------------------------------------------
 */

enum { R4_SPAN_NCHUNKS = R4_SPAN_NBYTES / 16 };

/* A warp's copies to its ring, nstages - 1 spans ahead of what it multiplies. */
template <class Rows> struct r4_copies {
    typename Rows::Cursor at;
    const uint4 *from;
    int left; /* chunks of 16 bytes of the row */
    unsigned slot;
};

template <class Rows> struct r4_ring {
    static constexpr unsigned nbytes = Rows::nstages * R4_SPAN_NBYTES;

    __device__ static unsigned next(unsigned slot) {
        return slot == nbytes - R4_SPAN_NBYTES ? 0 : slot + R4_SPAN_NBYTES;
    }
};

template <class Rows>
static __device__ __forceinline__ void r4_begin_row(const Rows &rows, unsigned nslices,
                                                    unsigned lane, r4_copies<Rows> &copies) {
    copies.left = 0;
    if (!rows.has(copies.at)) return;
    copies.left = (int)(nslices * (R4_SLICE_NBYTES / 16));
    copies.from = (const uint4 *)rows.bytes(copies.at, nslices * R4_SLICE_NBYTES) + lane;
}

template <class Rows>
static __device__ __forceinline__ void r4_copy_span(const Rows &rows, unsigned nslices,
                                                    unsigned ring, unsigned lane,
                                                    r4_copies<Rows> &copies) {
    unsigned to = ring + copies.slot + 16 * lane;
    r4_copy_if<0>((int)lane, copies.left, to, copies.from);
    r4_copy_if<512>((int)lane + 32, copies.left, to, copies.from);
    r4_copy_if<1024>((int)lane + 64, copies.left, to, copies.from);
    r4_commit_copies();
    copies.slot = r4_ring<Rows>::next(copies.slot);
    copies.left -= R4_SPAN_NCHUNKS;
    copies.from += R4_SPAN_NCHUNKS;
    if (copies.left > 0) return;
    rows.advance(copies.at);
    r4_begin_row(rows, nslices, lane, copies);
}

/* A whole group, AT bytes behind the span's first. */
template <int AT>
static __device__ __forceinline__ float r4_add_whole(float sum, unsigned here, unsigned xs,
                                                     unsigned bases, unsigned lane) {
    unsigned pairs[8];
    r4_unpack(
        {r4_shared16<AT>(here + 16 * lane), r4_shared8<AT + R4_GROUP_CODES_AT>(here + 8 * lane)},
        bases, pairs);
    return r4_add_group<AT / R4_GROUP_NBYTES * R4_GROUP_NCOLS * 4>(sum, pairs, xs);
}

/* The I-th of the slices behind the last group, without escapes, and those behind it. */
template <int I = 0>
static __device__ __forceinline__ float r4_add_singles(float sum, unsigned here, unsigned xs,
                                                       unsigned nslices, unsigned bases,
                                                       unsigned lane) {
    constexpr int at = I * R4_SLICE_NBYTES;
    if (nslices == I) return sum;
    unsigned pairs[4];
    r4_unpack8(r4_shared4<at>(here + 4 * lane), 0,
               r4_join_codes(r4_shared2<at + R4_SLICE_CODES_AT>(here + 2 * lane), 0), bases, pairs);
    sum = r4_add4<I * R4_SLICE_NCOLS * 4>(sum, pairs[0], pairs[1], xs);
    if constexpr (I + 2 < R4_GROUP_NSLICES)
        return r4_add_singles<I + 1>(sum, here, xs, nslices, bases, lane);
    return sum;
}

/* The slices of a span without escapes; nslices: of the row, from there on. */
static __device__ __forceinline__ float r4_add_span(float sum, unsigned here, unsigned xs,
                                                    unsigned nslices, unsigned bases,
                                                    unsigned lane) {
    if (nslices >= 2 * R4_GROUP_NSLICES) {
        sum = r4_add_whole<0>(sum, here, xs, bases, lane);
        return r4_add_whole<R4_GROUP_NBYTES>(sum, here, xs, bases, lane);
    }
    if (nslices >= R4_GROUP_NSLICES) {
        sum = r4_add_whole<0>(sum, here, xs, bases, lane);
        here += R4_GROUP_NBYTES;
        xs += R4_GROUP_NCOLS * 4;
        nslices -= R4_GROUP_NSLICES;
    }
    return r4_add_singles(sum, here, xs, nslices, bases, lane);
}

/* The same of a flagged span, which begins with group g, with its escapes. */
static __device__ __forceinline__ float r4_add_flagged(float sum, unsigned here, unsigned xs,
                                                       unsigned g, unsigned nslices, unsigned bases,
                                                       unsigned lane, const unsigned *escapes,
                                                       r4_escapes &e) {
    int nleft = (int)min(nslices, 2u * R4_GROUP_NSLICES);
#pragma unroll 1
    for (; nleft > 0; nleft -= R4_GROUP_NSLICES, g++) {
        r4_share share;
        unsigned pairs[8];
        if (nleft >= R4_GROUP_NSLICES)
            share = {r4_shared16<0>(here + 16 * lane),
                     r4_shared8<R4_GROUP_CODES_AT>(here + 8 * lane)};
        else
            share = r4_read_singles((const unsigned char *)__cvta_shared_to_generic(here), lane,
                                    (unsigned)nleft);
        r4_unpack(share, bases, pairs);
        r4_patch_group(escapes, g, lane, bases, e, pairs);
        sum = r4_add_group<0>(sum, pairs, xs);
        here += R4_GROUP_NBYTES;
        xs += R4_GROUP_NCOLS * 4;
    }
    return sum;
}

/* xs: shared memory, 16-byte aligned: nstaged * ngroups * 512 floats, then a ring for each warp. */
template <class Rows>
static __device__ __forceinline__ void r4_multiply(const Rows &rows, unsigned ncols,
                                                   unsigned per_lane, float *xs) {
    const unsigned lane = r4_hide(threadIdx.x % 32), nslices = r4_nslices(ncols);
    const unsigned npositions = r4_ngroups(ncols) * R4_GROUP_NCOLS, shift = r4_mask_shift(ncols);
    const unsigned x_first = r4_hide((unsigned)__cvta_generic_to_shared(xs) + 16 * lane);
    const unsigned ring =
        r4_hide((unsigned)__cvta_generic_to_shared(xs + (size_t)rows.nstaged() * npositions) +
                r4_warp() * r4_ring<Rows>::nbytes);
    typename Rows::Cursor at = rows.first();
    r4_copies<Rows> copies = {at, nullptr, 0, 0};
    r4_escapes header = {0, 0, 0, 0, 0};
    unsigned slot = 0;

    auto start = [&] {
        if (rows.has(at)) header = rows.header(at);
        r4_begin_row(rows, nslices, lane, copies);
#pragma unroll
        for (int i = 0; i < Rows::nstages - 1; i++)
            r4_copy_span(rows, nslices, ring, lane, copies);
    };
    const bool has_started = rows.prepare(start);
    r4_stage_x(rows, ncols, per_lane, npositions, (unsigned)__cvta_generic_to_shared(xs), [&] {
        if (!has_started) start();
    });
    __syncthreads();

#pragma unroll 1
    while (rows.has(at)) {
        const unsigned bases = rows.bases(at);
        const unsigned *escapes = rows.escapes(at);
        typename Rows::Cursor next = at;
        r4_escapes e = header;
        unsigned x_here = x_first + rows.staged(at) * npositions * 4;
        float sum = 0;

        if (e.span_mask) r4_hold_escapes(escapes, lane, e);
        rows.advance(next);
        if (rows.has(next)) header = rows.header(next);
#pragma unroll 1
        for (unsigned slice = 0; slice < nslices; slice += 2 * R4_GROUP_NSLICES) {
            r4_wait_copies<Rows::nstages - 2>();
            __syncwarp();
            r4_copy_span(rows, nslices, ring, lane, copies);
            bool flagged = e.span_mask >> (slice / (2 * R4_GROUP_NSLICES) >> shift) & 1;
            const unsigned here = ring + slot, nleft = nslices - slice;
            if (!flagged)
                sum = r4_add_span(sum, here, x_here, nleft, bases, lane);
            else
                sum = r4_add_flagged(sum, here, x_here, slice / R4_GROUP_NSLICES, nleft, bases,
                                     lane, escapes, e);
            slot = r4_ring<Rows>::next(slot);
            x_here += R4_SPAN_NCOLS * 4;
        }
        rows.put(at, lane, r4_add_lanes(sum));
        at = next;
    }
}

#endif
