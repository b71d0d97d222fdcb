#include "cuda/r4_grid.h"

#include <limits.h>

#include "cuda/r4_gpu_layout.h"

enum {
    WARP = 32,
    NTHREADS_MOST = 1024,
    NTHREADS_LEAST = 128, /* the engine steps over whole slices of x */
    NTHREADS = 256,
    ITEM_NBYTES = 8,          /* r4_item of r4_gather.cuh */
    COUNT_NWEIGHTS = 1 << 14, /* of a block, where that fills the device */
    COUNT_NBLOCKS = 4,        /* of a multiprocessor */
};

static size_t staged_nbytes(unsigned ncols) {
    return (size_t)r4_ngroups(ncols) * R4_GROUP_NCOLS * sizeof(float);
}

static size_t rings_nbytes(unsigned nthreads, unsigned nstages) {
    return (size_t)(nthreads / WARP) * nstages * R4_SPAN_NBYTES;
}

static int put(struct r4_grid *grid, size_t nblocks, unsigned nthreads, unsigned shared_nbytes) {
    if (nblocks == 0 || nblocks > INT_MAX / nthreads) return 0;
    *grid = (struct r4_grid){(unsigned)nblocks, nthreads, shared_nbytes};
    return 1;
}

int r4_matvec_grid(const struct r4_device *device, unsigned ncols, size_t nrows,
                   struct r4_grid *grid) {
    if (nrows > INT_MAX) return 0;
    for (unsigned nthreads = NTHREADS_MOST; nthreads >= NTHREADS_LEAST; nthreads /= 2) {
        size_t nbytes = staged_nbytes(ncols) + rings_nbytes(nthreads, R4_MATVEC_NSTAGES);
        size_t nblocks = nrows < device->nprocessors ? nrows : device->nprocessors;
        if (nbytes <= device->shared_most) return put(grid, nblocks, nthreads, device->shared_most);
    }
    return 0;
}

int r4_matvec_any_grid(size_t nrows, struct r4_grid *grid) {
    return put(grid, r4_ceil_div(nrows, NTHREADS / WARP), NTHREADS, 0);
}

/* A run of m rows meets at most (m - 2) / taken + 2 items, so that with room for r items it may
 * have (r - 1) * taken + 1 rows. */
int r4_gather_grid(const struct r4_device *device, unsigned ncols, size_t nitems, size_t taken,
                   struct r4_grid *grid) {
    if (nitems == 0 || taken == 0 || taken > INT_MAX / nitems) return 0;
    for (unsigned nthreads = NTHREADS_MOST; nthreads >= NTHREADS_LEAST; nthreads /= 2) {
        size_t nrows = nitems * taken, rings = rings_nbytes(nthreads, R4_GATHER_NSTAGES);
        if (rings > device->shared_most) continue;
        size_t room = (device->shared_most - rings) / (staged_nbytes(ncols) + ITEM_NBYTES);
        size_t nblocks = nrows < device->nprocessors ? nrows : device->nprocessors;
        if (room < nitems) {
            if (room < 2) continue;
            size_t nneeded = r4_ceil_div(nrows, (room - 1) * taken + 1);
            if (nblocks < nneeded) nblocks = nneeded;
        }
        return put(grid, nblocks, nthreads, device->shared_most);
    }
    return 0;
}

static int put_rebuild(unsigned ncols, size_t nrows, unsigned ngroups, struct r4_grid *grid) {
    if (nrows > INT_MAX) return 0;
    size_t nwarps = nrows * r4_ceil_div(r4_ngroups(ncols), ngroups);
    return put(grid, r4_ceil_div(nwarps, NTHREADS / WARP), NTHREADS, 0);
}

int r4_rebuild_grid(unsigned ncols, size_t nout, struct r4_grid *grid) {
    return put_rebuild(ncols, nout, R4_REBUILD_NGROUPS, grid);
}

int r4_rows_grid(unsigned ncols, size_t nids, struct r4_grid *grid) {
    return put_rebuild(ncols, nids, R4_ROWS_NGROUPS, grid);
}

int r4_load_grid(size_t nrows, struct r4_grid *grid) {
    return put(grid, r4_ceil_div(nrows, R4_LOAD_NWARPS), R4_LOAD_NWARPS * WARP, 0);
}

int r4_scan_grid(size_t nrows, struct r4_grid *grid) {
    if (nrows > INT_MAX) return 0;
    return put(grid, nrows > 0, NTHREADS_MOST, 0);
}

int r4_count_grid(const struct r4_device *device, size_t nrows, unsigned ncols,
                  struct r4_grid *grid) {
    if (nrows > INT_MAX) return 0;
    size_t nblocks = r4_ceil_div(nrows * ncols, COUNT_NWEIGHTS);
    size_t most = (size_t)COUNT_NBLOCKS * device->nprocessors;
    return put(grid, nblocks < most ? nblocks : most, NTHREADS, 0);
}
