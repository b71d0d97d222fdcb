/* r4_gemm_slots.cuh - where the warps of r4_gemm.cuh meet: a ring of slots in shared memory, each
 * with two barriers, `full` and `empty`. A slot takes a piece, 128 columns, a slice of R4: of x
 * [2][x_nrows][64], behind it of W [2][height][64], in units of 64 as wgmma wants them: rows of 128
 * bytes, their 16-byte chunks swizzled within each eight. Pieces count from column 0. What
 * multiplies reads more rows of x than there are: what lies there makes sums of its own, which
 * nobody reads.
 *
 * Shared memory: barriers; where experts begin, if there are any; slots.
 */
#ifndef BINADE_CUDA_R4_GEMM_SLOTS_CUH
#define BINADE_CUDA_R4_GEMM_SLOTS_CUH

#include "cuda/r4_gemm_items.cuh"
#include "cuda/r4_gemm_ptx.cuh"

enum { R4_PIECE_NUNITS = R4_SLICE_NCOLS / R4_UNIT_NCOLS };

/* Where a warp is in its sequence of slots: shared addresses. */
struct r4_slot {
    unsigned at, full, parity;

    __device__ unsigned empty() const { return full + 8; }
    __device__ void wait_empty() const { r4_wait(empty(), parity ^ 1); }
    __device__ void wait_full() const { r4_wait(full, parity); }
    /* This warp has read it. */
    __device__ void release(unsigned lane) const {
        if (lane == 0) r4_arrive(empty());
    }
};

template <int NX> struct r4_gemm_slots {
    unsigned at, barriers, n;       /* shared addresses; how many */
    unsigned height, x_unit_nbytes; /* height: of a tile, rows */
    unsigned unit0, unit1;          /* of K, that are multiplied */

    __device__ r4_gemm_slots(unsigned at, unsigned barriers, const r4_gemm_shape &shape,
                             unsigned unit0, unsigned unit1)
        : at(at), barriers(barriers), n((unsigned)shape.nslots), height((unsigned)shape.height),
          x_unit_nbytes((unsigned)shape.x_nrows * R4_UNIT_ROW_NBYTES), unit0(unit0), unit1(unit1) {}

    __device__ r4_slot first() const { return {at, barriers, 0}; }
    __device__ void advance(r4_slot &slot) const {
        slot.at += R4_PIECE_NUNITS * (x_unit_nbytes + unit_nbytes());
        slot.full += 16;
        if (slot.full == barriers + 16 * n) slot = {at, barriers, slot.parity ^ 1};
    }

    __device__ unsigned unit_nbytes() const { return height * R4_UNIT_ROW_NBYTES; }
    /* A unit of a slot, 0 or 1. */
    __device__ unsigned x_of(const r4_slot &slot, unsigned unit) const {
        return slot.at + unit * x_unit_nbytes;
    }
    __device__ unsigned w_of(const r4_slot &slot, unsigned unit) const {
        return slot.at + R4_PIECE_NUNITS * x_unit_nbytes + unit * unit_nbytes();
    }

    __device__ unsigned piece0() const { return unit0 / R4_PIECE_NUNITS; }
    __device__ unsigned piece1() const { return r4_divide_up(unit1, R4_PIECE_NUNITS); }
    __device__ bool has_unit(unsigned unit) const { return unit >= unit0 && unit < unit1; }
    /* Groups of R4 that have some of them. */
    __device__ unsigned group0() const { return unit0 * R4_UNIT_NCOLS / R4_GROUP_NCOLS; }
    __device__ unsigned group1() const { return r4_ngroups(unit1 * R4_UNIT_NCOLS); }

    /* By one thread. A slot is full once each decoder has written its part and the copies of each
     * thread that copies are there. */
    __device__ void init() const {
        for (unsigned i = 0; i < n; i++) {
            r4_init_barrier(barriers + 16 * i, R4_NDECODERS + 32 * R4_NCOPIERS);
            r4_init_barrier(barriers + 16 * i + 8, NX / 16);
        }
    }
};

#endif
