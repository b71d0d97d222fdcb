/* r4_launch.cuh - R4 weights on a GPU for C++ programs that bring their own memory.
 *
 * All pointers are device memory. Work goes to `stream`; nothing waits unless it says so. A failure
 * is the cudaError_t of the call that failed.
 */
#ifndef BINADE_CUDA_R4_LAUNCH_CUH
#define BINADE_CUDA_R4_LAUNCH_CUH

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/r4_transcode.cuh"

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

/* Threads of a block of the matvec: what fits, as x is staged in shared memory, at most 1024. 0: K
 * is too large for this device, and the weight is to be rebuilt. */
unsigned r4_matvec_nthreads(unsigned ncols);

/* y [nrows] = W x. x is 8-byte aligned if per_lane is 4. nthreads 0: r4_matvec_nthreads. */
cudaError_t r4_gpu_matvec(const r4_gpu &w, const uint16_t *x, uint16_t *y, cudaStream_t stream,
                          unsigned nthreads = 0);

/* out[b * taken + i] = row b * block_nrows + row0 + i, i < taken, of every block of block_nrows
 * rows. out is 16-byte aligned. */
cudaError_t r4_gpu_rebuild(const r4_gpu &w, unsigned row0, unsigned taken, unsigned block_nrows,
                           uint16_t *out, cudaStream_t stream);

/* Step 1 fills slices and rows; kept: scratch [nrows][R4_KEPT]. Then the caller reads
 * rows[nrows].escape_start, allocates escapes, and step 2 fills them. faults: one word, zeroed by
 * the caller, 1 after step 1 if the stream is damaged. */
cudaError_t r4_gpu_from_rice(const r4_gpu &w, const r4_rice_source &source, unsigned *kept,
                             unsigned *faults, int step, cudaStream_t stream);
cudaError_t r4_gpu_from_fixed(const r4_gpu &w, const r4_fixed_source &source, unsigned *kept,
                              unsigned *faults, int step, cudaStream_t stream);
cudaError_t r4_gpu_from_bf16(const r4_gpu &w, const uint16_t *bf16, unsigned *kept, int step,
                             cudaStream_t stream);

#endif
