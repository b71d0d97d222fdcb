/* r4_grid.h - how each kernel of R4 on a GPU is launched. Each function returns 0, and writes
 * nothing, for what the kernel cannot do: no rows, or more than 2^31 - 1 threads or rows.
 */
#ifndef BINADE_CUDA_R4_GRID_H
#define BINADE_CUDA_R4_GRID_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of a device: its multiprocessors, and the dynamic shared memory that a block may opt in to. */
struct r4_device {
    unsigned nprocessors, shared_most;
};

/* nthreads of a block; shared_nbytes of dynamic shared memory, the same for all launches of a
 * kernel on a device. */
struct r4_grid {
    unsigned nblocks, nthreads, shared_nbytes;
};

/* n / by, rounded up. */
static inline size_t r4_ceil_div(size_t n, size_t by) {
    return n / by + (n % by > 0);
}

/* nrows: of all parts. Also 0 where x is too large to stage: then binade_r4_matvec_any. */
int r4_matvec_grid(const struct r4_device *device, unsigned ncols, size_t nrows,
                   struct r4_grid *grid);
int r4_matvec_any_grid(size_t nrows, struct r4_grid *grid);

/* taken: rows of an item, of all parts. Also 0 where the x of the items that a block may meet are
 * too large to stage. */
int r4_gather_grid(const struct r4_device *device, unsigned ncols, size_t nitems, size_t taken,
                   struct r4_grid *grid);

int r4_rebuild_grid(unsigned ncols, size_t nout, struct r4_grid *grid);
int r4_rows_grid(unsigned ncols, size_t nids, struct r4_grid *grid);

/* binade_r4_from_*, measure_fixed and count_fixed. */
int r4_load_grid(size_t nrows, struct r4_grid *grid);
int r4_scan_grid(size_t nrows, struct r4_grid *grid);
int r4_count_grid(const struct r4_device *device, size_t nrows, unsigned ncols,
                  struct r4_grid *grid);

#ifdef __cplusplus
}
#endif
#endif
