/* r4_gemm_items.cuh - what blocks of r4_gemm.cuh multiply one after another: 64 rows of a weight
 * with up to NX rows of x. All warps of a block go through the same items, each with a cursor of
 * its own:
 *
 *   Cursor             row: the weight's first row of the tile; y_row: the same within the part;
 *                      m0, m1: rows of x
 *   first(), advance(cursor), has(cursor)
 *
 * Items that share rows of the weight follow each other, so that L2 still has these. The last tile
 * of a part takes rows of the one before, so that it is whole: they get the same bits twice.
 */
#ifndef BINADE_CUDA_R4_GEMM_ITEMS_CUH
#define BINADE_CUDA_R4_GEMM_ITEMS_CUH

#include "cuda/r4_parts.cuh"

enum { R4_TILE_NROWS = 64 };

static __device__ __forceinline__ unsigned r4_divide_up(unsigned n, unsigned by) {
    return (n + by - 1) / by;
}

static __device__ __forceinline__ unsigned r4_tile_row(const r4_part &part, unsigned tile) {
    return min(tile * R4_TILE_NROWS, part.taken - R4_TILE_NROWS);
}

/* All rows of x [nx] and of a weight's part, of which a cluster of NSPLITS blocks takes an item. */
template <int NX, int NSPLITS> struct r4_gemm_items {
    const r4_part &part;
    unsigned nx, nx_tiles, nitems;

    struct Cursor {
        unsigned i, row, y_row, m0, m1;
    };

    __device__ r4_gemm_items(const r4_part &part, unsigned nx)
        : part(part), nx(nx), nx_tiles(r4_divide_up(nx, NX)),
          nitems(r4_divide_up(part.taken, R4_TILE_NROWS) * nx_tiles) {}

    __device__ void settle(Cursor &at) const {
        at.y_row = r4_tile_row(part, at.i / nx_tiles);
        at.row = part.row0 + at.y_row;
        at.m0 = at.i % nx_tiles * NX;
        at.m1 = min(at.m0 + NX, nx);
    }
    __device__ Cursor first() const {
        Cursor at = {blockIdx.x / NSPLITS, 0, 0, 0, 0};
        settle(at);
        return at;
    }
    __device__ void advance(Cursor &at) const {
        at.i += gridDim.x / NSPLITS;
        settle(at);
    }
    __device__ bool has(const Cursor &at) const { return at.i < nitems; }
};

/* Experts, one row of x for each of n sorted indices. starts: shared, [nexperts + 1], where the
 * rows of each begin. Rows of an index that is out of range, or not in order, are left as they are.
 */
template <int NX> struct r4_expert_items {
    const r4_part &part;
    unsigned nexperts, ntiles;
    unsigned *starts;

    /* `left`: items from the expert's first to this one. */
    struct Cursor {
        unsigned expert, left, row, y_row, m0, m1;
    };

    __device__ r4_expert_items(const r4_part &part, unsigned nexperts, unsigned *starts)
        : part(part), nexperts(nexperts), ntiles(r4_divide_up(part.taken, R4_TILE_NROWS)),
          starts(starts) {}

    /* By all threads of the block. */
    __device__ void find_starts(const unsigned *indices, unsigned n) const {
        for (unsigned i = threadIdx.x; i <= n; i += blockDim.x) {
            unsigned before = i > 0 ? min(indices[i - 1] + 1, nexperts) : 0;
            unsigned here = i < n ? min(indices[i], nexperts) : nexperts;
            for (unsigned e = before; e <= here; e++)
                starts[e] = i;
        }
        __syncthreads();
    }

    __device__ unsigned nx_of(unsigned expert) const {
        unsigned start = starts[expert], end = starts[expert + 1];
        return end > start ? end - start : 0;
    }
    __device__ void settle(Cursor &at) const {
        for (; at.expert < nexperts; at.expert++) {
            unsigned nx = nx_of(at.expert), nx_tiles = r4_divide_up(nx, NX);
            if (at.left >= nx_tiles * ntiles) {
                at.left -= nx_tiles * ntiles;
                continue;
            }
            at.y_row = r4_tile_row(part, at.left / nx_tiles);
            at.row = at.expert * part.block_nrows + part.row0 + at.y_row;
            at.m0 = starts[at.expert] + at.left % nx_tiles * NX;
            at.m1 = min(at.m0 + NX, starts[at.expert] + nx);
            return;
        }
    }
    __device__ Cursor first() const {
        Cursor at = {0, blockIdx.x, 0, 0, 0, 0};
        settle(at);
        return at;
    }
    __device__ void advance(Cursor &at) const {
        at.left += gridDim.x;
        settle(at);
    }
    __device__ bool has(const Cursor &at) const { return at.expert < nexperts; }
};

#endif
