/* r4_gemm_copy.cuh - the warps of r4_gemm.cuh that copy x to slots. Each copies eight rows in turn,
 * a thread 16 bytes of every second row. */
#ifndef BINADE_CUDA_R4_GEMM_COPY_CUH
#define BINADE_CUDA_R4_GEMM_COPY_CUH

#include "cuda/r4_gemm_slots.cuh"
#include "cuda/r4_ptx.cuh"

template <int NX, class Items> struct r4_gemm_copier {
    const r4_gemm_slots<NX> &slots;
    const Items &items;
    const unsigned short *x; /* [..][ncols] */
    unsigned ncols, copier, lane;

    __device__ unsigned chunk() const { return lane % 8; }
    __device__ unsigned unit() const { return lane / 8 % R4_PIECE_NUNITS; }
    __device__ unsigned row() const { return lane / (8 * R4_PIECE_NUNITS); }

    /* This thread's first 16 bytes of a piece. */
    __device__ const unsigned short *from(unsigned m, unsigned piece) const {
        return x + (m + 8 * copier + row()) * (size_t)ncols + piece * R4_SLICE_NCOLS +
               unit() * R4_UNIT_NCOLS + 8 * chunk();
    }

    /* nrows: of the item, from this copier's first on; they may be 0 or less. */
    __device__ void copy(unsigned to, const unsigned short *from, int nrows) const {
#pragma unroll 1
        for (; nrows > 0; nrows -= 8 * R4_NCOPIERS) {
#pragma unroll
            for (unsigned r = 0; r < 8; r += 2)
                r4_copy_if<0>((int)(row() + r), nrows,
                              to + (row() + r) * R4_UNIT_ROW_NBYTES +
                                  ((chunk() ^ (row() + r)) << 4),
                              (const uint4 *)(from + r * (size_t)ncols));
            to += 8 * R4_NCOPIERS * R4_UNIT_ROW_NBYTES;
            from += 8 * R4_NCOPIERS * (size_t)ncols;
        }
    }

    __device__ void run() const {
        const unsigned to = unit() * slots.x_unit_nbytes + 8 * copier * R4_UNIT_ROW_NBYTES;
        r4_slot slot = slots.first();
#pragma unroll 1
        for (auto item = items.first(); items.has(item); items.advance(item)) {
            const int nrows = (int)(item.m1 - item.m0) - 8 * (int)copier;
            const unsigned short *at = from(item.m0, slots.piece0());
#pragma unroll 1
            for (unsigned piece = slots.piece0(); piece < slots.piece1();
                 piece++, at += R4_SLICE_NCOLS) {
                slot.wait_empty();
                if (slots.has_unit(R4_PIECE_NUNITS * piece + unit())) copy(slot.at + to, at, nrows);
                r4_arrive_after_copies(slot.full);
                slots.advance(slot);
            }
        }
    }
};

#endif
