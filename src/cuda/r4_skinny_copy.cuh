/* r4_skinny_copy.cuh - how x comes to slots and R4 to stages, for r4_skinny.cuh. */
#ifndef BINADE_CUDA_R4_SKINNY_COPY_CUH
#define BINADE_CUDA_R4_SKINNY_COPY_CUH

#include "cuda/r4_ptx.cuh"
#include "cuda/r4_skinny_block.cuh"

/* A warp that copies x to slots: row by row, a lane 16 bytes. */
template <int NX, int NSPLITS>
static __device__ __forceinline__ void
r4_skinny_copy_x(const r4_skinny_block<NX> &block, const r4_skinny_items<NSPLITS> &items,
                 const unsigned short *x, unsigned copier, unsigned lane) {
    constexpr unsigned ncopiers = R4_SKINNY_NCOPIERS(NX);
    unsigned slot = 0, parity = 0;
#pragma unroll 1
    for (unsigned item = items.first(); items.has(item); item = items.next(item)) {
        const unsigned short *from =
            x + copier * (size_t)block.ncols + block.group0() * R4_GROUP_NCOLS + 8 * lane;
        unsigned unit = block.group0() * 2 * R4_SKINNY_NUNITS + lane / 8;
#pragma unroll 1
        for (unsigned half = 0; half < block.nhalves(); half++) {
            unsigned to = block.slot(slot) + copier * R4_SKINNY_X_ROW_NBYTES + 16 * lane;
            r4_wait(block.slot_full(slot) + 8, parity ^ 1);
            if (block.has_unit(unit)) {
                const unsigned short *at = from;
#pragma unroll 8
                for (unsigned row = 0; row < NX; row += ncopiers) {
                    r4_copy_if<0>((int)(row + copier), (int)items.nx, to, (const uint4 *)at);
                    to += ncopiers * R4_SKINNY_X_ROW_NBYTES;
                    at += ncopiers * (size_t)block.ncols;
                }
            }
            r4_arrive_after_copies(block.slot_full(slot));
            from += R4_GROUP_NCOLS / 2;
            unit += R4_SKINNY_NUNITS;
            if (++slot == block.nslots) slot = 0, parity ^= 1;
        }
    }
}

/* What a warp knows of its tile, and how it copies R4 of it: whose turn is the second half of a
 * group, and so knows that it is read, copies the group that comes to the same stage. */
template <int NX, int NSPLITS> struct r4_skinny_stages {
    const r4_skinny_block<NX> &block;
    const r4_skinny_items<NSPLITS> &items;
    unsigned tile, turn, lane; /* turn: of this warp among those of the tile */

    __device__ size_t row_nbytes() const {
        return (size_t)r4_nslices(block.ncols) * R4_SLICE_NBYTES;
    }
    __device__ unsigned nslices_of(unsigned group) const {
        return r4_group_nslices(block.ncols, group);
    }

    /* Of the weight, the tile's. */
    __device__ size_t first_row(unsigned item) const {
        return items.part.row0 + items.row_of(item) + R4_SKINNY_NROWS * tile;
    }

    /* Whether this warp copies, each time copy_step groups on. */
    __device__ bool copies() const { return block.nturns == 1 || turn % 2 == 1; }
    __device__ unsigned copy_step() const { return max(block.nturns / 2, 1u); }

    /* A group of an item, to a stage. */
    struct place {
        unsigned item, group, nth; /* nth: counted through all items */
    };

    /* n groups on. */
    __device__ void advance(place &at, unsigned n) const {
        at.nth += n;
        at.group += n;
        while (at.group >= block.group1() && items.has(at.item)) {
            at.group -= block.group1() - block.group0();
            at.item = items.next(at.item);
        }
    }

    /* A half-warp copies a row, 256 bytes at a time. */
    template <int ROW = 0>
    __device__ void copy_whole(unsigned to, const unsigned char *from) const {
        constexpr int at = ROW * R4_SKINNY_ROW_NBYTES;
        r4_copy<at, 0>(to, from);
        r4_copy<at + 256, 256>(to, from);
        r4_copy<at + 512, 512>(to, from);
        if constexpr (ROW + 2 < R4_SKINNY_NROWS) copy_whole<ROW + 2>(to, from + 2 * row_nbytes());
    }
    __device__ void copy_singles(unsigned to, const unsigned char *from, unsigned nslices) const {
#pragma unroll 1
        for (unsigned row = 0; row < R4_SKINNY_NROWS; row += 2) {
            for (unsigned i = 0; i < R4_GROUP_NBYTES / 256; i++)
                r4_copy_if<0>((int)(lane % 16 + 16 * i), R4_SLICE_NBYTES / 16 * (int)nslices,
                              to + 256 * i, (const uint4 *)(from + 256 * i));
            to += 2 * R4_SKINNY_ROW_NBYTES;
            from += 2 * row_nbytes();
        }
    }
    __device__ unsigned stage_of(const place &at) const {
        return at.nth & (block.nstages - 1);
    }

    /* Asks for a group, of which there is one. */
    __device__ void ask(const place &at) const {
        const unsigned to = block.stages(tile) + stage_of(at) * R4_SKINNY_STAGE_NBYTES +
                            lane / 16 * R4_SKINNY_ROW_NBYTES + lane % 16 * 16;
        const unsigned char *from = items.part.slices +
                                    (first_row(at.item) + lane / 16) * row_nbytes() +
                                    at.group * R4_GROUP_NBYTES + lane % 16 * 16;
        if (nslices_of(at.group) == R4_GROUP_NSLICES)
            copy_whole(to, from);
        else
            copy_singles(to, from, nslices_of(at.group));
    }
    __device__ void tell(place &at) const {
        r4_arrive_after_copies(block.stage_full(tile, stage_of(at)));
        advance(at, copy_step());
    }
    /* If there is a group, once its stage is empty. */
    __device__ void copy(place &at) const {
        if (!items.has(at.item)) return;
        r4_wait(block.stage_full(tile, stage_of(at)) + 8,
                (at.nth >> r4_log2(block.nstages) & 1) ^ 1);
        ask(at);
        tell(at);
    }
};

#endif
