/* r4_gemm_decode.cuh - the warps of r4_gemm.cuh that turn R4 into BF16 in shared memory.
 *
 * A warp has every eighth row of a tile, so that its rows are swizzled alike. It holds a group of
 * these in registers and decodes it to four slots; a row of the next group is asked for as soon as
 * the last slice of one is decoded. Escapes are written over what the codes gave.
 */
#ifndef BINADE_CUDA_R4_GEMM_DECODE_CUH
#define BINADE_CUDA_R4_GEMM_DECODE_CUH

#include "cuda/r4_gemm_slots.cuh"
#include "cuda/r4_unpack.cuh"

template <int PER_LANE, int NX, int HEIGHT, class Items> struct r4_gemm_decoder {
    using Cursor = typename Items::Cursor;
    static constexpr unsigned nrows_most = HEIGHT / R4_NDECODERS;

    const r4_gemm_slots<NX> &slots;
    const Items &items;
    unsigned ncols, nrows, warp, lane; /* nrows: of the tile, this warp's */
    unsigned nheld, escapes_row;       /* see escapes */

    /* ---- R4 -----------------------------------------------------------------------------------
     */

    __device__ size_t row_nbytes() const { return (size_t)r4_nslices(ncols) * R4_SLICE_NBYTES; }

    /* A group of this warp's rows; `from`: in the first of them. */
    struct place {
        Cursor item;
        unsigned g;
        const unsigned char *from;
    };

    __device__ void settle(place &at) const {
        at.g = slots.group0();
        at.from = items.of(at.item.part, &r4_part::slices) + (at.item.row + warp) * row_nbytes() +
                  at.g * R4_GROUP_NBYTES;
    }
    __device__ place first() const {
        place at = {items.first(), 0, nullptr};
        settle(at);
        return at;
    }
    __device__ void advance(place &at) const {
        at.from += R4_GROUP_NBYTES;
        if (++at.g < slots.group1()) return;
        items.advance(at.item);
        settle(at);
    }
    __device__ unsigned nslices_of(const place &at) const { return r4_group_nslices(ncols, at.g); }

    __device__ r4_share read_row(const unsigned char *from) const {
        return {r4_read16(from + 16 * lane), r4_read8(from + R4_GROUP_CODES_AT + 8 * lane)};
    }
    /* Row I and those behind of n slices. */
    template <int I = 0>
    __device__ void read_rows(r4_share rows[nrows_most], const unsigned char *from,
                              unsigned n) const {
        rows[I] = n == R4_GROUP_NSLICES ? read_row(from) : r4_read_singles(from, lane, n);
        if constexpr (I + 1 < nrows_most)
            if (I + 1 < nrows)
                read_rows<I + 1>(rows, r4_hide(from + R4_NDECODERS * row_nbytes()), n);
    }

    /* ---- Escapes ------------------------------------------------------------------------------
     */

    /* Lane nheld * r + k holds escape k of the warp's row r, then every nheld-th behind; r is its
     * escapes_row. nheld is a power of two; lanes that are left over hold none. */
    struct escapes {
        const unsigned *all;
        unsigned held, after, next, end;
    };

    __device__ static unsigned piece_of(unsigned escape) { return (escape >> 8) / R4_SLICE_NCOLS; }

    /* Where the escapes of this lane's row begin and end. */
    __device__ uint2 read_header(const Cursor &item) const {
        if (!items.has(item) || escapes_row >= nrows) return make_uint2(0, 0);
        const r4_row *row =
            items.of(item.part, &r4_part::rows) + item.row + warp + escapes_row * R4_NDECODERS;
        return make_uint2(row[0].escape_start, row[1].escape_start);
    }

    /* To the next of this lane's, ~0 if there is none; the one after it is asked for, so that
     * nothing waits for memory. */
    __device__ void advance(escapes &e) const {
        e.held = e.after;
        e.after = ~0u;
        if (e.next < e.end) e.after = e.all[e.next];
        e.next += nheld;
    }

    __device__ escapes begin(const unsigned *all, uint2 header) const {
        escapes e = {all, ~0u, ~0u, header.x, header.y};
        unsigned end = slots.piece0() > 0 ? e.end : e.next;
        while (e.next < end) { /* the first that is not before this split of K */
            unsigned middle = e.next + (end - e.next) / 2;
            if (piece_of(all[middle]) < slots.piece0())
                e.next = middle + 1;
            else
                end = middle;
        }
        e.next += lane - escapes_row * nheld;
        advance(e);
        advance(e);
        return e;
    }

    /* ---- Decoding -----------------------------------------------------------------------------
     */

    /* Byte of a column of a tile's row within W of a slot. */
    __device__ unsigned byte_of(unsigned row, unsigned column) const {
        unsigned byte = 2 * (column % R4_UNIT_NCOLS);
        return column % R4_SLICE_NCOLS / R4_UNIT_NCOLS * slots.unit_nbytes() +
               row * R4_UNIT_ROW_NBYTES + (byte ^ row % 8 << 4);
    }

    __device__ void patch(unsigned w, unsigned piece, escapes &e) const {
#pragma unroll 1
        while (__any_sync(~0u, piece_of(e.held) == piece)) {
            if (piece_of(e.held) == piece) {
                unsigned row = warp + escapes_row * R4_NDECODERS;
                unsigned at = w + byte_of(row, r4_column(e.held >> 8, PER_LANE));
                unsigned weight = r4_shared2<0>(at);
                r4_put_shared2(at, (unsigned short)((weight & 0x807f) | (e.held & 0xff) << 7));
                advance(e);
            }
            __syncwarp();
        }
    }

    /* Puts slice S of a group, of this warp's row I, into a slot; `to`: this lane's bytes of the
     * warp's first row. */
    template <int S, int I>
    __device__ void put_row(const r4_share &share, unsigned bases, unsigned to) const {
        const unsigned keep = 0x807f807fu, in_place = 0x07800780u;
        constexpr int at = I * R4_NDECODERS * R4_UNIT_ROW_NBYTES;
        unsigned word = S == 0   ? share.raw.x
                        : S == 1 ? share.raw.y
                        : S == 2 ? share.raw.z
                                 : share.raw.w;
        unsigned codes = S < 2 ? share.codes.x : share.codes.y;
        unsigned first = S & 1 ? __funnelshift_r(codes, codes, 8) : codes;
        unsigned second = __funnelshift_r(codes, codes, S & 1 ? 12 : 4);
        unsigned pair0 = ((word & keep) | (first & in_place)) + bases;
        unsigned pair1 = ((__byte_perm(word, 0, 0x2301) & keep) | (second & in_place)) + bases;
        if constexpr (PER_LANE == 4) {
            r4_put_shared8<at>(to, pair0, pair1);
        } else {
            r4_put_shared4<at>(to, pair0);
            r4_put_shared4<at>(to + slots.unit_nbytes(), pair1);
        }
    }
    /* Rows I and I + 1 and those behind; two at a time wait less for each other. next: where rows
     * of the next group are read from as soon as these are decoded, if anywhere. */
    template <int S, int I>
    __device__ void put_rows(r4_share rows[nrows_most], unsigned bases, unsigned to,
                             const unsigned char *next) const {
        const size_t step = R4_NDECODERS * row_nbytes();
        put_row<S, I>(rows[I], bases, to);
        put_row<S, I + 1>(rows[I + 1], bases, to);
        if (S == R4_GROUP_NSLICES - 1 && next) {
            rows[I] = read_row(next);
            rows[I + 1] = read_row(next + step);
            next = r4_hide(next + 2 * step);
        }
        if constexpr (I + 2 < nrows_most)
            if (I + 2 < nrows) put_rows<S, I + 2>(rows, bases, to, next);
    }

    /* Whether this split of K has slice S of group g. */
    __device__ bool has(unsigned g, unsigned s) const {
        const unsigned piece = g * R4_GROUP_NSLICES + s;
        return piece >= slots.piece0() && piece < slots.piece1();
    }

    /* What group g gives to slots from its slice S on, as far as this split of K has it. */
    template <int S>
    __device__ void decode(r4_share rows[nrows_most], unsigned g, unsigned mine, unsigned bases,
                           escapes &e, r4_slot &slot, const unsigned char *next) const {
        if (has(g, S)) {
            const unsigned w = slots.w_of(slot, 0);
            slot.wait_empty();
            put_rows<S, 0>(rows, bases, w + mine, next);
            __syncwarp();
            patch(w, g * R4_GROUP_NSLICES + S, e);
            r4_publish();
            __syncwarp();
            if (lane == 0) r4_arrive(slot.full);
            slots.advance(slot);
        }
        if constexpr (S + 1 < R4_GROUP_NSLICES) decode<S + 1>(rows, g, mine, bases, e, slot, next);
    }

    __device__ void run() const {
        const unsigned mine = r4_hide(byte_of(warp, PER_LANE * lane));
        r4_slot slot = slots.first();
        place next = first();
        Cursor item = next.item;
        uint2 header = read_header(item);
        r4_share rows[nrows_most];
        bool have_rows = false;
#pragma unroll 1
        while (items.has(item)) {
            const unsigned base = items.of(item.part, &r4_part::base);
            const unsigned bases = r4_hide(base << 7 | base << 23);
            escapes e = begin(items.of(item.part, &r4_part::escapes), header);
            items.advance(item);
            header = read_header(item);
#pragma unroll 1
            for (unsigned g = slots.group0(); g < slots.group1(); g++) {
                if (!have_rows) read_rows(rows, next.from, nslices_of(next));
                advance(next);
                have_rows = items.has(next.item) && nslices_of(next) == R4_GROUP_NSLICES &&
                            has(g, R4_GROUP_NSLICES - 1);
                decode<0>(rows, g, mine, bases, e, slot, have_rows ? next.from : nullptr);
            }
        }
    }
};

#endif
