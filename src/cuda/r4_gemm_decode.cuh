/* r4_gemm_decode.cuh - the warps of r4_gemm.cuh that turn R4 into BF16 in shared memory.
 *
 * A warp has every eighth or sixteenth row of a tile, so that its rows are swizzled alike. It loads
 * the next group of these while it decodes one. Escapes are written over what the codes gave.
 */
#ifndef BINADE_CUDA_R4_GEMM_DECODE_CUH
#define BINADE_CUDA_R4_GEMM_DECODE_CUH

#include "cuda/r4_gemm_slots.cuh"

template <int PER_LANE, int NX, class Items> struct r4_gemm_decoder {
    using Slots = r4_gemm_slots<NX>;
    static constexpr int nrows = Slots::decoder_nrows, ndecoders = Slots::ndecoders;
    static constexpr int nheld = 32 / nrows; /* escapes of a row that a warp holds */
    static constexpr int nunits = Slots::nunits;

    const Slots &slots;
    const Items &items;
    const r4_part &part;
    unsigned ncols, warp, lane;

    /* A group of this warp's rows; and where the escapes of this lane's row are, if it is the first
     * group of an item. */
    struct group {
        r4_share row[nrows];
        unsigned escape_start, escape_end;
        bool is_there;
    };

    /* ---- Loading ------------------------------------------------------------------------------
     */

    /* What is loaded next: group g, which is at `from` in the warp's first row. */
    struct place {
        typename Items::Cursor item;
        unsigned g;
        const unsigned char *from;
    };

    __device__ size_t row_nbytes() const { return (size_t)r4_nslices(ncols) * R4_SLICE_NBYTES; }
    __device__ unsigned group0() const { return slots.unit0 / R4_GROUP_NUNITS; }
    __device__ unsigned group1() const { return r4_divide_up(slots.unit1, R4_GROUP_NUNITS); }

    __device__ void settle(place &at) const {
        at.g = group0();
        at.from = part.slices + (at.item.row + warp) * row_nbytes() + at.g * R4_GROUP_NBYTES;
    }

    __device__ void load(group &to, place &at) const {
        to.is_there = items.has(at.item);
        if (!to.is_there) return;
        const size_t step = ndecoders * row_nbytes();
        const unsigned nleft = r4_nslices(ncols) - at.g * R4_GROUP_NSLICES;
        const unsigned char *from = at.from;
        if (at.g == group0()) {
            const r4_row *row = part.rows + at.item.row + warp + lane / nheld * ndecoders;
            to.escape_start = row[0].escape_start;
            to.escape_end = row[1].escape_start;
        }
        if (nleft >= R4_GROUP_NSLICES) {
            const unsigned char *raw = from + 16 * lane;
            const unsigned char *codes = from + R4_GROUP_CODES_AT + 8 * lane;
#pragma unroll
            for (int i = 0; i < nrows; i++) {
                to.row[i].raw = r4_read16(raw);
                to.row[i].codes = r4_read8(codes);
                raw += step;
                codes += step;
            }
        } else {
#pragma unroll
            for (int i = 0; i < nrows; i++) {
                to.row[i] = r4_read_singles(from, lane, nleft);
                from += step;
            }
        }
        at.from += R4_GROUP_NBYTES;
        if (++at.g < group1()) return;
        items.advance(at.item);
        settle(at);
    }

    /* ---- Escapes ------------------------------------------------------------------------------
     */

    /* Lane nheld * r + k holds escape k of the warp's row r, then every nheld-th behind. */
    struct escapes {
        unsigned held, next, end;
    };

    __device__ static unsigned piece_of(unsigned escape) {
        return (escape >> 8) / Slots::ncols;
    }

    /* The next of this lane's, ~0 if there is none. What is loaded is used at once: else the
     * compiler would wait for it, and for weights that are on their way, at every slot. */
    __device__ unsigned take(escapes &e) const {
        unsigned taken = ~0u;
        if (e.next < e.end) taken = part.escapes[e.next];
        e.next += nheld;
        return __shfl_sync(__activemask(), taken, lane);
    }

    __device__ escapes begin(const group &first) const {
        escapes e = {0, first.escape_start, first.escape_end};
        unsigned end = slots.piece0() > 0 ? e.end : e.next;
        while (e.next < end) { /* the first that is not before this split of K */
            unsigned middle = e.next + (end - e.next) / 2;
            if (piece_of(part.escapes[middle]) < slots.piece0())
                e.next = middle + 1;
            else
                end = middle;
        }
        e.next += lane % nheld;
        e.held = take(e);
        return e;
    }

    /* ---- Decoding -----------------------------------------------------------------------------
     */

    /* Byte of a column of a tile's row within W of a slot. */
    __device__ static unsigned byte_of(unsigned row, unsigned column) {
        unsigned byte = 2 * (column % R4_UNIT_NCOLS);
        return column % Slots::ncols / R4_UNIT_NCOLS * R4_W_NBYTES + row * R4_UNIT_ROW_NBYTES +
               (byte ^ row % 8 << 4);
    }

    __device__ void patch(unsigned w, unsigned piece, escapes &e) const {
#pragma unroll 1
        while (__any_sync(~0u, piece_of(e.held) == piece)) {
            if (piece_of(e.held) == piece) {
                unsigned row = warp + lane / nheld * ndecoders;
                unsigned at = w + byte_of(row, r4_column(e.held >> 8, PER_LANE));
                unsigned short weight = r4_read_shared2(at);
                r4_put_shared2(at, (unsigned short)((weight & 0x807f) | (e.held & 0xff) << 7));
                e.held = take(e);
            }
            __syncwarp();
        }
    }

    /* Puts slice S of a group, of this warp's row I and those behind, into a slot; `to`: this
     * lane's bytes of the warp's first row. */
    template <int S, int I>
    __device__ static void put_rows(const group &from, unsigned bases, unsigned to) {
        const unsigned keep = 0x807f807fu, in_place = 0x07800780u;
        constexpr int at = 2 * S % nunits * R4_W_NBYTES + I * ndecoders * R4_UNIT_ROW_NBYTES;
        const r4_share &share = from.row[I];
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
            r4_put_shared4<at + R4_W_NBYTES>(to, pair1);
        }
        if constexpr (I + 1 < nrows) put_rows<S, I + 1>(from, bases, to);
    }

    /* What a group gives to slots from its slice S on, as far as this split of K has it. piece0: of
     * the group. */
    template <int S>
    __device__ void decode(const group &from, unsigned piece0, unsigned mine, unsigned bases,
                           escapes &e, r4_slot &at) const {
        const unsigned piece = piece0 + 2 * S / nunits;
        if (piece >= slots.piece0() && piece < slots.piece1()) {
            const unsigned w = slots.w_at(at);
            slots.wait_empty(at);
            put_rows<S, 0>(from, bases, w + mine);
            if constexpr (nunits == 4) put_rows<S + 1, 0>(from, bases, w + mine);
            __syncwarp();
            patch(w, piece, e);
            slots.fill(at, lane);
            slots.advance(at);
        }
        if constexpr (S + nunits / 2 < R4_GROUP_NSLICES)
            decode<S + nunits / 2>(from, piece0, mine, bases, e, at);
    }

    __device__ void run() const {
        const unsigned bases = r4_hide(part.base << 7 | part.base << 23);
        const unsigned mine = r4_hide(byte_of(warp, PER_LANE * lane));
        place at = {items.first(), 0, nullptr};
        unsigned g = group0(); /* of what is decoded next */
        r4_slot slot = {0, 0};
        escapes e = {~0u, 0, 0};
        group even, odd;

        auto decode_all = [&](const group &from) {
            if (g == group0()) e = begin(from);
            decode<0>(from, g * R4_GROUP_NUNITS / nunits, mine, bases, e, slot);
            if (++g == group1()) g = group0();
        };
        if (slots.unit0 >= slots.unit1) return;
        settle(at);
        load(even, at);
#pragma unroll 1
        while (even.is_there) {
            load(odd, at);
            decode_all(even);
            if (!odd.is_there) return;
            load(even, at);
            decode_all(odd);
        }
    }
};

#endif
