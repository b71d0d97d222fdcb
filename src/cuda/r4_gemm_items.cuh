/* r4_gemm_items.cuh - what blocks of r4_gemm.cuh multiply one after another: `height` rows of a
 * weight with up to NX rows of x. All warps of a block go through the same items, each with a
 * cursor of its own:
 *
 *   Cursor             part: of those that share x; row: the weight's first row of the tile; y_row:
 *                      the same within the part; m0, m1: rows of x
 *   first(), advance(cursor), has(cursor)
 *
 * Items that share rows of the weight follow each other, so that L2 still has these. The last tile
 * of a part takes rows of the one before, so that it is whole: they get the same bits twice.
 */
#ifndef BINADE_CUDA_R4_GEMM_ITEMS_CUH
#define BINADE_CUDA_R4_GEMM_ITEMS_CUH

#include "cuda/r4_gemm_shape.h"
#include "cuda/r4_parts.cuh"

static __device__ __forceinline__ unsigned r4_divide_up(unsigned n, unsigned by) {
    return (n + by - 1) / by;
}

/* Parts that share x, and the height of a tile of their rows. */
template <int P> struct r4_gemm_parts {
    const r4_part (&parts)[P];
    unsigned height;

    /* A member of one of them. */
    template <class T> __device__ T of(unsigned part, T r4_part::*member) const {
        return r4_pick(parts, part, member);
    }
    /* The first row of a tile. */
    __device__ unsigned row_of(unsigned part, unsigned tile) const {
        return min(tile * height, of(part, &r4_part::taken) - height);
    }
};

/* All rows of x [nx] and of P parts, of which a cluster of NSPLITS blocks takes an item. `tile`
 * counts through the parts, `x_tile` the rows of x by NX: it goes round first. */
template <int P, int NX, int NSPLITS> struct r4_gemm_items : r4_gemm_parts<P> {
    unsigned nx, nx_tiles, ntiles[P], nclusters, tile_step, x_tile_step;

    struct Cursor {
        unsigned tile, x_tile, part, row, y_row, m0, m1;
    };

    __device__ r4_gemm_items(const r4_part (&parts)[P], unsigned height, unsigned nx)
        : r4_gemm_parts<P>{parts, height}, nx(nx), nx_tiles(r4_divide_up(nx, NX)),
          nclusters(gridDim.x / NSPLITS), tile_step(nclusters / nx_tiles),
          x_tile_step(nclusters % nx_tiles) {
#pragma unroll
        for (int i = 0; i < P; i++)
            ntiles[i] = r4_divide_up(parts[i].taken, height);
    }

    __device__ void settle(Cursor &at) const {
        unsigned tile = at.tile;
        at.part = 0;
#pragma unroll
        for (unsigned i = 0; i + 1 < P; i++) {
            if (at.part != i || tile < ntiles[i]) continue;
            tile -= ntiles[i];
            at.part++;
        }
        at.y_row = this->row_of(at.part, tile);
        at.row = this->of(at.part, &r4_part::row0) + at.y_row;
        at.m0 = at.x_tile * NX;
        at.m1 = min(at.m0 + NX, nx);
    }
    __device__ Cursor first() const {
        const unsigned i = blockIdx.x / NSPLITS;
        Cursor at = {i / nx_tiles, i % nx_tiles, 0, 0, 0, 0, 0};
        settle(at);
        return at;
    }
    __device__ void advance(Cursor &at) const {
        at.tile += tile_step;
        at.x_tile += x_tile_step;
        if (at.x_tile >= nx_tiles) {
            at.x_tile -= nx_tiles;
            at.tile++;
        }
        settle(at);
    }
    __device__ bool has(const Cursor &at) const {
        unsigned n = 0;
#pragma unroll
        for (int i = 0; i < P; i++)
            n += ntiles[i];
        return at.tile < n;
    }
};

/* Experts, one row of x for each of n sorted indices; P parts of as many rows each. starts: shared,
 * [nexperts + 1], where the rows of each begin. Rows of an index that is out of range, or not in
 * order, are left as they are.
 */
template <int P, int NX> struct r4_expert_items : r4_gemm_parts<P> {
    unsigned nexperts, ntiles; /* of a part */
    unsigned *starts;

    /* `left`: items from the expert's first to this one. */
    struct Cursor {
        unsigned expert, left, part, row, y_row, m0, m1;
    };

    __device__ r4_expert_items(const r4_part (&parts)[P], unsigned height, unsigned nexperts,
                               unsigned *starts)
        : r4_gemm_parts<P>{parts, height}, nexperts(nexperts),
          ntiles(r4_divide_up(parts[0].taken, height)), starts(starts) {}

    /* By all threads of the block. */
    __device__ void find_starts(const unsigned *indices, unsigned n) const {
        for (unsigned i = threadIdx.x; i <= n; i += blockDim.x) {
            unsigned before = i > 0 ? min(indices[i - 1], nexperts) + 1 : 0;
            unsigned here = i < n ? min(indices[i], nexperts) : nexperts;
            for (unsigned e = before; e <= here; e++) /* none behind the first out of range */
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
            if (at.left >= nx_tiles * ntiles * P) {
                at.left -= nx_tiles * ntiles * P;
                continue;
            }
            unsigned tile = at.left / nx_tiles;
            static_assert(P <= 2, "a tile is in one of two parts");
            at.part = tile >= ntiles;
            at.y_row = this->row_of(at.part, at.part ? tile - ntiles : tile);
            at.row = at.expert * this->of(at.part, &r4_part::block_nrows) +
                     this->of(at.part, &r4_part::row0) + at.y_row;
            at.m0 = starts[at.expert] + at.left % nx_tiles * NX;
            at.m1 = min(at.m0 + NX, starts[at.expert] + nx);
            return;
        }
    }
    __device__ Cursor first() const {
        Cursor at = {0, blockIdx.x, 0, 0, 0, 0, 0};
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
