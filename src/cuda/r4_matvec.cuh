/* r4_matvec.cuh - y = W x for some rows of one to three weights that share one row of x.
 *
 * Split: a warp for a row at a time; rows of all parts go round the blocks, then round their warps,
 * so that every multiprocessor gets as many. The grid is what is resident at once: one block a
 * multiprocessor (r4_grid.c).
 */
#ifndef BINADE_CUDA_R4_MATVEC_CUH
#define BINADE_CUDA_R4_MATVEC_CUH

#include "cuda/r4_engine.cuh"
#include "cuda/r4_parts.cuh"

template <int P> struct r4_plain_rows : r4_raw_x {
    static constexpr int nstages = R4_MATVEC_NSTAGES;

    r4_part parts[P];
    const unsigned short *x;
    unsigned stride, nrows; /* of all parts */

    struct Cursor {
        unsigned row;
    };

    __device__ r4_plain_rows(const r4_part (&given)[P], const unsigned short *x)
        : x(x), stride(blockDim.x / 32 * gridDim.x), nrows(0) {
#pragma unroll
        for (int i = 0; i < P; i++) {
            parts[i] = given[i];
            nrows += given[i].taken;
        }
    }

    __device__ Cursor first() const {
        return {r4_warp() * gridDim.x + blockIdx.x};
    }
    __device__ void advance(Cursor &at) const {
        at.row += stride;
    }
    __device__ bool has(Cursor at) const {
        return at.row < nrows;
    }

    /* The part of a row, which then counts from the part's first. */
    __device__ unsigned part_of(unsigned &row) const {
        unsigned part = 0;
#pragma unroll
        for (int i = 0; i + 1 < P; i++) {
            if (part != i || row < parts[i].taken) continue;
            row -= parts[i].taken;
            part++;
        }
        return part;
    }

    __device__ const unsigned char *bytes(Cursor at, unsigned row_nbytes) const {
        unsigned part = part_of(at.row), row = at.row + r4_pick(parts, part, &r4_part::row0);
        return r4_pick(parts, part, &r4_part::slices) + (size_t)row * row_nbytes;
    }
    __device__ r4_escapes header(Cursor at) const {
        unsigned part = part_of(at.row), row = at.row + r4_pick(parts, part, &r4_part::row0);
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
        return 1;
    }
    __device__ const unsigned short *x_row(unsigned) const {
        return x;
    }
    __device__ unsigned staged(Cursor) const {
        return 0;
    }

    /* Where the product of a row of the first part goes, and what it is. */
    __device__ size_t place(Cursor at) const {
        return at.row;
    }
    __device__ float finish(Cursor, float sum) const {
        return sum;
    }

    __device__ void put(Cursor at, unsigned lane, float sum) const {
        unsigned part = part_of(at.row);
        if (lane == 0) r4_pick(parts, part, &r4_part::y)[at.row] = r4_round_bf16(sum);
    }
};

#endif
