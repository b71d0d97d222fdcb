/* r4_gather.cuh - products of items with rows of their experts: what MLX's gather_mv gives.
 *
 * Split: an item's rows are those of all parts, and items follow each other. A block takes a run of
 * these, so that it meets few items and stages only their rows of x; within the run, rows go round
 * its warps. r4_grid.c chooses a grid whose blocks have room for the items that a run may meet.
 *
 * An item whose index is out of range reads row 0 of x or of the weight in its place and gets NaN.
 */
#ifndef BINADE_CUDA_R4_GATHER_CUH
#define BINADE_CUDA_R4_GATHER_CUH

#include "cuda/r4_engine.cuh"
#include "cuda/r4_parts.cuh"

/* What is staged of an item, behind the rings: its row of x, and its expert. */
struct r4_item {
    unsigned x_row, expert; /* R4_NO_EXPERT: an index is out of range */
};

enum { R4_NO_EXPERT = ~0u };

template <int P> struct r4_expert_rows : r4_raw_x {
    static constexpr int nstages = R4_GATHER_NSTAGES;

    r4_part parts[P];
    const unsigned short *x;
    unsigned ncols, nrows; /* nrows: of an item */
    unsigned item0, first_row, stride, run, nitems;
    r4_item *items; /* shared memory */

    /* A row of all parts, of an item that the run meets; `i` counts rows of the run. */
    struct Cursor {
        unsigned i, item, row;
    };

    /* are_gated: rows of the second part come with those of the first. */
    __device__ r4_expert_rows(const r4_part (&given)[P], const unsigned short *x, unsigned n,
                              unsigned ncols, float *xs, bool are_gated = false)
        : x(x), ncols(ncols), nrows(0), stride(blockDim.x / 32) {
#pragma unroll
        for (int i = 0; i < P; i++) {
            parts[i] = given[i];
            if (i == 0 || !are_gated) nrows += given[i].taken;
        }
        unsigned each = n * nrows / gridDim.x, nmore = n * nrows % gridDim.x;
        unsigned start = blockIdx.x * each + min(blockIdx.x, nmore);
        run = each + (blockIdx.x < nmore);
        item0 = start / nrows;
        first_row = start % nrows;
        nitems = (first_row + run + nrows - 1) / nrows;
        items = (r4_item *)(xs + (size_t)nitems * r4_ngroups(ncols) * R4_GROUP_NCOLS +
                            blockDim.x / 32 * (r4_ring<r4_expert_rows>::nbytes / 4));
    }

    /* Without lhs, each row of x has items_per_x items. */
    __device__ void read_items(const unsigned *lhs, const unsigned *rhs, unsigned nx,
                               unsigned items_per_x, unsigned nexperts) const {
        for (unsigned i = threadIdx.x; i < nitems; i += blockDim.x) {
            unsigned x_row = lhs ? lhs[item0 + i] : (item0 + i) / items_per_x,
                     expert = rhs[item0 + i];
            items[i] = {x_row < nx ? x_row : 0,
                        x_row < nx && expert < nexperts ? expert : R4_NO_EXPERT};
        }
        __syncthreads();
    }

    __device__ void settle(Cursor &at) const {
#pragma unroll 1
        while (at.row >= nrows) {
            at.row -= nrows;
            at.item++;
        }
    }
    __device__ Cursor first() const {
        Cursor at = {r4_warp(), 0, first_row + r4_warp()};
        settle(at);
        return at;
    }
    __device__ void advance(Cursor &at) const {
        at.i += stride;
        at.row += stride;
        settle(at);
    }
    __device__ bool has(Cursor at) const {
        return at.i < run;
    }

    __device__ unsigned part_of(unsigned &row) const {
        if (P == 1 || row < parts[0].taken) return 0;
        row -= parts[0].taken;
        return 1;
    }
    __device__ unsigned weight_row(Cursor at, unsigned &part) const {
        unsigned expert = items[at.item].expert;
        part = part_of(at.row);
        return (expert == R4_NO_EXPERT ? 0 : expert) * r4_pick(parts, part, &r4_part::block_nrows) +
               r4_pick(parts, part, &r4_part::row0) + at.row;
    }
    __device__ const unsigned char *bytes(Cursor at, unsigned row_nbytes) const {
        unsigned part, row = weight_row(at, part);
        return r4_pick(parts, part, &r4_part::slices) + (size_t)row * row_nbytes;
    }
    __device__ r4_escapes header(Cursor at) const {
        unsigned part, row = weight_row(at, part);
        return r4_read_header(r4_pick(parts, part, &r4_part::rows), row);
    }
    __device__ const unsigned *escapes(Cursor at) const {
        return r4_pick(parts, part_of(at.row), &r4_part::escapes);
    }
    __device__ unsigned bases(Cursor at) const {
        unsigned base = r4_pick(parts, part_of(at.row), &r4_part::base);
        return base << 7 | base << 23;
    }

    __device__ unsigned nstaged() const {
        return nitems;
    }
    __device__ const unsigned short *x_row(unsigned i) const {
        return x + (size_t)items[i].x_row * ncols;
    }
    __device__ unsigned staged(Cursor at) const {
        return at.item;
    }

    /* Where the product of a row of the first part goes, and what it is. */
    __device__ size_t place(Cursor at) const {
        return (size_t)(item0 + at.item) * parts[0].taken + at.row;
    }
    __device__ float finish(Cursor at, float sum) const {
        return items[at.item].expert == R4_NO_EXPERT ? __uint_as_float(0x7fffffffu) : sum;
    }

    __device__ void put(Cursor at, unsigned lane, float sum) const {
        if (lane > 0) return;
        unsigned part = part_of(at.row);
        size_t row = (size_t)(item0 + at.item) * r4_pick(parts, part, &r4_part::taken) + at.row;
        r4_pick(parts, part, &r4_part::y)[row] = r4_round_bf16(finish(at, sum));
    }
};

#endif
