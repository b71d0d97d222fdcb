/* r4_skinny_block.cuh - what all warps of r4_skinny.cuh know. */
#ifndef BINADE_CUDA_R4_SKINNY_BLOCK_CUH
#define BINADE_CUDA_R4_SKINNY_BLOCK_CUH

#include "cuda/r4_gemm_ptx.cuh"
#include "cuda/r4_gemm_shape.h"
#include "cuda/r4_parts.cuh"

/* Rows of a weight, `height` at a time: what a cluster of NSPLITS blocks multiplies one after
 * another. The last ones take rows of those before, so that they are whole: these get the same bits
 * twice. */
template <int NSPLITS> struct r4_skinny_items {
    const r4_part &part;
    unsigned nx, height;

    __device__ unsigned first() const { return blockIdx.x / NSPLITS; }
    __device__ unsigned next(unsigned item) const { return item + gridDim.x / NSPLITS; }
    __device__ bool has(unsigned item) const { return item * height < part.taken; }
    /* Its first row, from part.row0 on. */
    __device__ unsigned row_of(unsigned item) const {
        return min(item * height, part.taken - height);
    }
};

static __device__ __forceinline__ unsigned r4_log2(unsigned power) {
    return (unsigned)__ffs((int)power) - 1;
}

/* What all warps of a block know. Units, of 64 columns, halves, of 256, and groups count from
 * column 0. Shared memory: barriers of slots, then of tiles; slots; sums that are handed on, and
 * stages, of each tile. */
template <int NX> struct r4_skinny_block {
    unsigned shared, ncols, unit0, unit1; /* units of this split of K */
    unsigned nslots, nstages, nturns;     /* nturns: warps of a tile */

    __device__ unsigned group0() const { return unit0 * R4_UNIT_NCOLS / R4_GROUP_NCOLS; }
    __device__ unsigned group1() const { return r4_ngroups(unit1 * R4_UNIT_NCOLS); }
    __device__ unsigned nhalves() const { return 2 * (group1() - group0()); }
    __device__ bool has_unit(unsigned unit) const { return unit >= unit0 && unit < unit1; }

    /* Barriers, each 8 bytes. A slot is full once all copies are there, and empty once each tile
     * has read it; a stage likewise, of which two turns read a half each. */
    __device__ unsigned slot_full(unsigned slot) const { return shared + 16 * slot; }
    __device__ unsigned tile_barriers(unsigned tile) const {
        return shared + 16 * R4_SKINNY_NSLOTS_MOST + R4_SKINNY_TILE_BARRIERS_NBYTES * tile;
    }
    __device__ unsigned stage_full(unsigned tile, unsigned stage) const {
        return tile_barriers(tile) + 16 * stage;
    }
    __device__ unsigned turn(unsigned tile, unsigned turn) const {
        return tile_barriers(tile) + 16 * R4_SKINNY_NSTAGES_MOST + 8 * turn;
    }

    __device__ unsigned slot(unsigned i) const {
        return shared + R4_SKINNY_BARRIERS_NBYTES + i * NX * R4_SKINNY_X_ROW_NBYTES;
    }
    __device__ unsigned tile(unsigned i) const {
        return slot(nslots) + i * (NX * R4_SKINNY_SUMS_NBYTES + nstages * R4_SKINNY_STAGE_NBYTES);
    }
    __device__ unsigned stages(unsigned i) const { return tile(i) + NX * R4_SKINNY_SUMS_NBYTES; }

    /* By one thread of each warp: one after another they would take as long as the first reads. */
    __device__ void init(unsigned warp, unsigned ntiles) const {
        const unsigned nwarps = blockDim.x / 32;
        const unsigned tile = warp >> r4_log2(nturns), mine = warp & (nturns - 1);
#pragma unroll 1
        for (unsigned i = warp; i < nslots; i += nwarps) {
            r4_init_barrier(slot_full(i), 32 * R4_SKINNY_NCOPIERS(NX));
            r4_init_barrier(slot_full(i) + 8, ntiles);
        }
        if (tile >= ntiles) return;
        r4_init_barrier(turn(tile, mine), 1);
#pragma unroll 1
        for (unsigned i = mine; i < nstages; i += nturns) {
            r4_init_barrier(stage_full(tile, i), 32);
            r4_init_barrier(stage_full(tile, i) + 8, 2);
        }
    }
};

#endif
