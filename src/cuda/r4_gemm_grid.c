#include "cuda/r4_gemm_grid.h"

#include <limits.h>

#include "cuda/r4_gpu_layout.h"
#include "cuda/r4_skinny_grid.h"

enum {
    WARP = 32,
    NX_LEAST = 64,
    NX_MOST = 128,
    NSLOTS_LEAST = 2,
    NSLOTS_USEFUL = 8,
};

/* ---- Shared memory --------------------------------------------------------------------------- */

/* Kernels by mma.sync have 64 rows of x, and those with two accumulators half of the registers. */
static unsigned height_most(enum r4_gemm_way way, unsigned nx) {
    if (way == R4_GEMM_WGMMA) return R4_WGMMA_HEIGHT_MOST(nx);
    if (nx != NX_LEAST) return 0;
    return R4_MMA_HEIGHT_MOST(way == R4_GEMM_MMA ? 1 : 2);
}

/* Blocks for one item: a cluster of as many as there are splits. */
static unsigned count_blocks(const struct r4_gemm_product *p) {
    return p->nexperts == 0 && r4_gemm_has_clusters(p->way) ? p->nsplits : 1;
}

/* Rows of x that a slot has room for: those that there are, unless a warpgroup, which reads all of
 * its 64, would read behind the slot. */
static unsigned count_x_rows(const struct r4_gemm_product *p, unsigned nx, unsigned height) {
    unsigned nrows = (p->nx + 7) / 8 * 8;
    if (p->nexperts || p->nx >= nx || nrows + 2 * height < nx) return nx;
    return nrows;
}

/* As many slots as there is room for, and use. 0 where memory does not do. */
static int share_out(const struct r4_device *device, const struct r4_gemm_product *p, unsigned nx,
                     unsigned height, struct r4_gemm_shape *shape) {
    size_t used = R4_BARRIERS_NBYTES + (p->nexperts ? R4_STARTS_NBYTES : 0);
    unsigned x_nrows = count_x_rows(p, nx, height);
    size_t slot_nbytes = (size_t)(x_nrows + height) * R4_SLICE_NCOLS * 2;
    size_t nslots = used < device->shared_most ? (device->shared_most - used) / slot_nbytes : 0;
    if (nslots > NSLOTS_USEFUL) nslots = NSLOTS_USEFUL;
    *shape = (struct r4_gemm_shape){(int)height, (int)x_nrows, (int)nslots, 0, 0};
    return nslots >= NSLOTS_LEAST;
}

/* ---- Time ------------------------------------------------------------------------------------
 * Cycles of a multiprocessor, as fitted to times of all tiles of a few products on an H200
 * (`bench_cuda_gemm tiles`). Only which is least matters.
 */

/* To decode and multiply a piece, while its W comes from memory. */
static double piece_cycles(unsigned nx, unsigned height) {
    return nx == NX_LEAST ? 550 + 8.5 * height : 600 + 13.3 * height;
}

static size_t count_items(const struct r4_gemm_product *p, unsigned nx, unsigned height) {
    return r4_ceil_div(p->taken, height) * p->nparts * r4_ceil_div(p->nx, nx);
}

size_t r4_clusters_at_once(const struct r4_device *device, unsigned n) {
    static const unsigned of_132[R4_GEMM_NSPLITS_MOST + 1] = {0, 132, 66, 39, 30, 22};
    size_t clusters = (size_t)of_132[n] * device->nprocessors / 132;
    return clusters > 0 ? clusters : 1;
}

static double cycles(const struct r4_device *device, const struct r4_gemm_product *p, unsigned nx,
                     unsigned height) {
    const double next_item = 500, next_cluster = 7000; /* to end one and begin another */
    const unsigned nblocks = count_blocks(p);
    double npieces = p->ncols / (double)R4_SLICE_NCOLS / nblocks;
    double item = npieces * piece_cycles(nx, height) + (nblocks > 1 ? next_cluster : next_item);
    if (p->nexperts) {
        double nrows = p->nx / (double)p->nexperts;
        double nx_tiles = nrows < nx ? 1 : nrows / nx + 0.5;
        return nx_tiles * p->nexperts * p->nparts * (double)r4_ceil_div(p->taken, height) /
               device->nprocessors * item;
    }
    return (double)r4_ceil_div(count_items(p, nx, height), r4_clusters_at_once(device, nblocks)) *
           item;
}

/* 0 where there is none. */
static int choose(const struct r4_device *device, const struct r4_gemm_product *p, unsigned *nx,
                  struct r4_gemm_shape *shape) {
    struct r4_gemm_shape tried;
    double least = 0;
    int found = 0;
    for (unsigned n = NX_LEAST; n <= NX_MOST; n *= 2)
        for (unsigned height = R4_HEIGHT_STEP; height <= height_most(p->way, n);
             height += R4_HEIGHT_STEP) {
            if (height > p->taken || (p->tile_nx && n != p->tile_nx) ||
                (p->tile_height && height != p->tile_height))
                continue;
            double here = cycles(device, p, n, height);
            if ((found && here >= least) || !share_out(device, p, n, height, &tried)) continue;
            found = 1;
            least = here;
            *nx = n;
            *shape = tried;
        }
    return found;
}

/* ---- Launches ---------------------------------------------------------------------------------
 */

/* Whether each split has columns: the kernels would wait for ever for one that has none. */
static int have_columns(unsigned ncols, unsigned nsplits) {
    size_t split_nunits = r4_ceil_div(r4_ceil_div(ncols, nsplits), R4_UNIT_NCOLS);
    return (nsplits - 1) * split_nunits * R4_UNIT_NCOLS < ncols;
}

static int can_split(const struct r4_gemm_product *p) {
    if (p->nexperts) return p->way == R4_GEMM_WGMMA || p->way == R4_GEMM_MMA;
    if (r4_gemm_has_clusters(p->way))
        return p->nsplits > 0 && p->nsplits <= R4_GEMM_NSPLITS_MOST &&
               have_columns(p->ncols, p->nsplits);
    return p->way == R4_GEMM_MMA_SPLITS ? p->nsplits > 0 : p->nsplits == 1;
}

int r4_gemm_grid(const struct r4_device *device, const struct r4_gemm_product *p,
                 struct r4_gemm_kernel *kernel, struct r4_grid *grid) {
    const unsigned nexperts = p->nexperts;
    struct r4_gemm_shape shape;
    unsigned nx = 0;

    if (p->nx == 0 || p->taken % 2 || p->ncols == 0 || p->ncols % R4_UNIT_NCOLS) return 0;
    if (p->ncols > R4_COLS_MOST - 256) return 0; /* none is in a half like no escape */
    if (p->nparts == 0 || p->nparts > (nexperts ? 2 : 1)) return 0;
    if (nexperts > R4_GEMM_EXPERTS_MOST || (nexperts == 0 && p->nx > R4_GEMM_NX_MOST)) return 0;
    if (!can_split(p)) return 0;
    const int is_skinny = p->way == R4_GEMM_SKINNY;
    if (!(is_skinny ? r4_skinny_choose : choose)(device, p, &nx, &shape)) return 0;

    const unsigned nwarps =
        is_skinny ? R4_SKINNY_NWARPS(nx, (unsigned)shape.height, (unsigned)shape.nturns)
                  : R4_GEMM_NWARPS(nx);
    const unsigned nthreads = nwarps * WARP;
    size_t nblocks = count_items(p, nx, (unsigned)shape.height) * count_blocks(p);
    /* A cluster takes one item, other blocks one after another. */
    if (nexperts || (count_blocks(p) == 1 && nblocks > device->nprocessors))
        nblocks = device->nprocessors;
    if (nblocks > INT_MAX / nthreads) return 0;

    *kernel = (struct r4_gemm_kernel){
        nx, r4_per_lane(p->ncols), nexperts ? 0 : p->nsplits, p->nparts, shape, p->way};
    *grid = (struct r4_grid){(unsigned)nblocks, nthreads, device->shared_most};
    return 1;
}

unsigned r4_gemm_list_shape(const struct r4_gemm_kernel *k, int numbers[R4_GEMM_SHAPE_MOST]) {
    const struct r4_gemm_shape *s = &k->shape;
    const int is_skinny = k->way == R4_GEMM_SKINNY;
    numbers[0] = s->height;
    numbers[1] = is_skinny ? s->nturns : s->x_nrows;
    numbers[2] = s->nslots;
    numbers[3] = s->nstages;
    return is_skinny ? 4 : 3;
}
