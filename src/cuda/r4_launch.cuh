/* r4_launch.cuh - R4 weights on a GPU for C++ programs that bring their own memory.
 *
 * All pointers are device memory. Work goes to `stream`; nothing waits unless it says so. A failure
 * is the cudaError_t of the call that failed; cudaErrorInvalidValue where r4_grid.h knows no
 * launch.
 */
#ifndef BINADE_CUDA_R4_LAUNCH_CUH
#define BINADE_CUDA_R4_LAUNCH_CUH

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/r4_gpu_layout.h"
#include "cuda/r4_grid.h"

/* What cudaLaunchKernel takes as a kernel, and as one whose clusters have NBLOCKS blocks. Where
 * kernels are emulated it is another. */
#ifndef R4_ENTRY
#define R4_ENTRY(KERNEL) ((const void *)KERNEL)
#define R4_CLUSTER_ENTRY(KERNEL, NBLOCKS) R4_ENTRY(KERNEL)
#endif

struct r4_gpu {
    unsigned nrows, ncols; /* all experts' rows; ncols >= 1 */
    unsigned per_lane;     /* r4_per_lane(ncols) */
    unsigned base;         /* exponent of code 0, at most R4_BASE_MOST */
    unsigned char *slices; /* [nrows][r4_nslices(ncols) * 192], 16-byte aligned */
    r4_row *rows;          /* [nrows + 1] */
    unsigned *escapes;     /* [rows[nrows].escape_start] */
};

inline size_t r4_gpu_slices_nbytes(const r4_gpu &w) {
    return (size_t)w.nrows * r4_nslices(w.ncols) * R4_SLICE_NBYTES;
}

/* Rows row0 .. row0 + taken of a weight, or of each of its blocks of block_nrows; their products.
 */
struct r4_view {
    r4_gpu w;
    unsigned row0, taken, block_nrows;
    uint16_t *y;
};

/* Of the current device. */
const r4_device &r4_gpu_device();

/* What a launch does besides, as r4_epilogue.cuh and r4_normed.cuh say; null: not that. */
struct r4_fused {
    const uint16_t *added; /* [taken], of one part */
    const uint16_t *act;   /* [65536], of two parts with as many rows; y is that of the first */
    const uint16_t *norm;  /* [ncols], not with added: the weight of x's RMS norm */
    float eps;
};

/* y [taken] of each of nparts (1..3) parts, the weights of which share ncols and per_lane. x is
 * 8-byte aligned if per_lane is 4. nthreads: fewer than r4_matvec_grid's, for tests. */
cudaError_t r4_gpu_matvec(const r4_view *parts, unsigned nparts, const uint16_t *x,
                          cudaStream_t stream, unsigned nthreads = 0,
                          const r4_fused &fused = r4_fused());

/* The same for one part and any x; n: elements that a lane takes at once. */
cudaError_t r4_gpu_matvec_any(const r4_view &part, const uint16_t *x, unsigned n,
                              cudaStream_t stream);

/* Items: x[lhs[i]] of nx rows, without lhs x[i / items_per_x], times block rhs[i] of nexperts. */
struct r4_items {
    const uint16_t *x;
    const uint32_t *lhs, *rhs;
    unsigned n, nx, nexperts, items_per_x;
};

/* y [n][taken] of each of nparts (1..2). nblocks: more than r4_gather_grid's, for tests. act: as in
 * r4_fused. */
cudaError_t r4_gpu_gather(const r4_view *parts, unsigned nparts, const r4_items &items,
                          cudaStream_t stream, unsigned nblocks = 0, const uint16_t *act = nullptr);

/* The same for one part and any x; n: elements that a lane takes at once. */
cudaError_t r4_gpu_gather_any(const r4_view &part, const r4_items &items, unsigned n,
                              cudaStream_t stream);

/* out[b * taken + i] = row b * block_nrows + row0 + i, i < taken, of every block. */
cudaError_t r4_gpu_rebuild(const r4_view &part, uint16_t *out, cudaStream_t stream);

/* out[i] = row ids[i] of the rows row0 .. row0 + taken. */
cudaError_t r4_gpu_rows(const r4_view &part, const void *ids, unsigned nids, unsigned id_nbytes,
                        bool is_signed, uint16_t *out, cudaStream_t stream);

/* What loading needs besides: all of it is written. Fixed-width codes need the last two. */
struct r4_scratch {
    unsigned *counts;                      /* [nrows][2] */
    unsigned *kept;                        /* [nrows][R4_KEPT] */
    unsigned *faults;                      /* [nrows]: 1 where a row is damaged; not of BF16 */
    unsigned *found;                       /* [nrows] */
    unsigned *code_starts, *escape_starts; /* [nrows + 1] */
};

struct r4_rice_arrays {
    const unsigned char *raw, *table, *meta;
    const unsigned *bits, *row_starts;
    unsigned nwords;
};

struct r4_fixed_arrays {
    const unsigned char *raw, *table, *meta;
    const unsigned *idx;
    const unsigned char *esc;
    unsigned nwords, nescapes;
};

/* Step 1 fills slices and rows. Then the caller reads rows[nrows].escape_start, which is ~0 if
 * there are too many, and allocates escapes; step 2 fills them. */
cudaError_t r4_gpu_from_rice(const r4_gpu &w, const r4_rice_arrays &source, const r4_scratch &s,
                             int step, cudaStream_t stream);
cudaError_t r4_gpu_from_fixed(const r4_gpu &w, const r4_fixed_arrays &source, const r4_scratch &s,
                              int step, cudaStream_t stream);
cudaError_t r4_gpu_from_bf16(const r4_gpu &w, const uint16_t *bf16, const r4_scratch &s, int step,
                             cudaStream_t stream);

/* counts [nblocks of r4_count_grid][256]. */
cudaError_t r4_gpu_count(const uint16_t *bf16, unsigned nrows, unsigned ncols, unsigned *counts,
                         cudaStream_t stream);

#endif
