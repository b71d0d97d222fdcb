/* r4_gemm_slots.cuh - where the warps of r4_gemm.cuh meet: a ring of slots in shared memory, each
 * with two barriers, `full` and `empty`. A slot has W [nunits][64][64] and x [nunits][NX][64],
 * units of 64 columns as wgmma wants them: rows of 128 bytes, their 16-byte chunks swizzled within
 * each eight.
 *
 * A piece is what a slot takes, nunits * 64 columns; pieces count from column 0.
 */
#ifndef BINADE_CUDA_R4_GEMM_SLOTS_CUH
#define BINADE_CUDA_R4_GEMM_SLOTS_CUH

#include "cuda/r4_gemm_items.cuh"
#include "cuda/r4_gemm_ptx.cuh"
#include "cuda/r4_unpack.cuh"

enum {
    R4_NCOPIERS = 4, /* warps */
    R4_NMULTIPLIERS = 4,
    R4_UNIT_NCOLS = 64, /* half a slice; splits of K begin and end there */
    R4_UNIT_ROW_NBYTES = 2 * R4_UNIT_NCOLS,
    R4_GROUP_NUNITS = R4_GROUP_NCOLS / R4_UNIT_NCOLS,
    R4_W_NBYTES = R4_TILE_NROWS * R4_UNIT_ROW_NBYTES, /* of a unit */
    R4_BARRIERS_NBYTES = 1024,                        /* slots are aligned to that */
    R4_STARTS_NBYTES = 5 * 1024,                      /* of r4_expert_items, behind the barriers */
};

/* Where a warp is in its sequence of slots. */
struct r4_slot {
    unsigned number, parity;
};

template <int NX> struct r4_gemm_slots {
    static constexpr int nunits = NX <= 64 ? 4 : 2; /* of a slot */
    static constexpr int nslots = NX <= 16 ? 5 : NX <= 64 ? 3 : 4;
    static constexpr int ncols = nunits * R4_UNIT_NCOLS;
    static constexpr int x_nbytes = NX * R4_UNIT_ROW_NBYTES; /* of a unit */
    static constexpr int nbytes = nunits * (R4_W_NBYTES + x_nbytes);
    /* Warps that decode: as many as there are registers for; and their rows of a tile. */
    static constexpr int ndecoders = NX <= 64 ? 16 : 8;
    static constexpr int decoder_nrows = R4_TILE_NROWS / ndecoders;
    static constexpr int nthreads = 32 * (R4_NMULTIPLIERS + ndecoders + R4_NCOPIERS);

    unsigned barriers, slots; /* shared addresses */
    unsigned unit0, unit1;    /* of K, that are multiplied */

    __device__ unsigned full(const r4_slot &at) const { return barriers + 8 * at.number; }
    __device__ unsigned empty(const r4_slot &at) const { return full(at) + 8 * nslots; }
    __device__ unsigned w_at(const r4_slot &at) const { return slots + at.number * nbytes; }
    __device__ unsigned x_at(const r4_slot &at) const { return w_at(at) + nunits * R4_W_NBYTES; }

    __device__ static void advance(r4_slot &at) {
        if (++at.number < nslots) return;
        at.number = 0;
        at.parity ^= 1;
    }

    __device__ unsigned piece0() const { return unit0 / nunits; }
    __device__ unsigned piece1() const { return r4_divide_up(unit1, nunits); }
    __device__ bool has_unit(unsigned unit) const { return unit >= unit0 && unit < unit1; }

    /* By all threads, once. */
    __device__ void init() const {
        if (threadIdx.x == 0) {
            for (r4_slot at = {0, 0}; at.parity == 0; advance(at)) {
                r4_init_barrier(full(at), ndecoders + R4_NCOPIERS);
                r4_init_barrier(empty(at), R4_NMULTIPLIERS);
            }
        }
        __syncthreads();
    }

    __device__ void wait_empty(const r4_slot &at) const { r4_wait(empty(at), at.parity ^ 1); }
    __device__ void wait_full(const r4_slot &at) const { r4_wait(full(at), at.parity); }

    /* This warp has written its part of a slot. */
    __device__ void fill(const r4_slot &at, unsigned lane) const {
        r4_publish();
        __syncwarp();
        if (lane == 0) r4_arrive(full(at));
    }
};

#endif
