/* r4_gemm_rules.h - what has to hold of a kernel for several rows of x, its shape and its grid, as
 * r4_gemm_grid.h finds them: what the kernels are written for, stated once more. */
#ifndef BINADE_TESTS_R4_GEMM_RULES_H
#define BINADE_TESTS_R4_GEMM_RULES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda/r4_gemm_grid.h"
#include "r4_skinny_rules.h"

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum {
    HEIGHT_STEP = 16, /* a pair of rows for each of 8 warps that decode */
    NSLOTS_LEAST = 2, /* with one, those that fill it and those that multiply would take turns */
    NSLOTS_MOST = 64,
    BARRIERS_NBYTES = 16 * NSLOTS_MOST, /* two for each slot */
    STARTS_NBYTES = 5 * 1024,           /* of 1,024 experts, and where the last one ends */
    ROW_NBYTES = 2 * 128,               /* of x or of W in a slot: 128 columns of BF16 */
    NCOLS_MOST = (1 << 24) - 256,
};
_Static_assert((BARRIERS_NBYTES | STARTS_NBYTES) % 1024 == 0 &&
                   STARTS_NBYTES >= 4 * (R4_GEMM_EXPERTS_MOST + 1),
               "slots stay aligned behind them");

/* Rows of W at a time, as registers for the sums allow: of kernels by mma.sync, which multiply 64
 * rows of x at a time, all but MMA have two sums for each output. For few rows of x as there are
 * warps, if tiles have one each. */
static const struct size {
    enum r4_gemm_way way;
    unsigned nx, height_most;
} sizes[] = {
    {R4_GEMM_WGMMA, 64, 144},     {R4_GEMM_WGMMA, 128, 112},        {R4_GEMM_MMA, 64, 112},
    {R4_GEMM_MMA_SPLITS, 64, 64}, {R4_GEMM_MMA_TWO_SLICES, 64, 64}, {R4_GEMM_SKINNY, 8, 240},
    {R4_GEMM_SKINNY, 16, 240},    {R4_GEMM_SKINNY, 32, 224},
};

/* 0: no kernel. */
static unsigned height_most(enum r4_gemm_way way, unsigned nx) {
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i].way == way && sizes[i].nx == nx) return sizes[i].height_most;
    return 0;
}

/* The most rows of x that there may be, by kernels with nx of them at a time: those for few rows
 * take all at once. */
static unsigned nx_most(enum r4_gemm_way way, unsigned nx) {
    return way == R4_GEMM_SKINNY ? nx : R4_GEMM_NX_MOST;
}

/* Ways that have a cluster for splits. */
static bool has_clusters(enum r4_gemm_way way) {
    return way == R4_GEMM_WGMMA || way == R4_GEMM_SKINNY;
}

static bool has_experts(enum r4_gemm_way way) {
    return way == R4_GEMM_WGMMA || way == R4_GEMM_MMA;
}

/* A warp for each 16 rows of x multiplies, 8 decode, 4 copy; for few rows of x other ones do. */
static unsigned nthreads_of(const struct r4_gemm_kernel *k) {
    if (k->way == R4_GEMM_SKINNY)
        return 32 * skinny_nwarps(k->nx, (unsigned)k->shape.height, (unsigned)k->shape.nturns);
    return 32 * (k->nx / 16 + 8 + 4);
}

static size_t divide_up(size_t n, size_t by) {
    return (n + by - 1) / by;
}

/* Whether the last of the splits, each of as many whole units of 64, has columns. */
static bool has_columns(unsigned ncols, unsigned nsplits) {
    return (nsplits - 1) * (divide_up(divide_up(ncols, nsplits), 64) * 64) < ncols;
}

static struct r4_gemm_product rows_of(enum r4_gemm_way way, unsigned nx, unsigned ncols,
                                      unsigned taken, unsigned nsplits) {
    struct r4_gemm_product p = {0};
    p.way = way, p.nx = nx, p.ncols = ncols, p.taken = taken, p.nsplits = nsplits, p.nparts = 1;
    return p;
}

static struct r4_gemm_product experts_of(enum r4_gemm_way way, unsigned nx, unsigned ncols,
                                         unsigned taken, unsigned nparts, unsigned nexperts) {
    struct r4_gemm_product p = rows_of(way, nx, ncols, taken, 1);
    p.nparts = nparts, p.nexperts = nexperts;
    return p;
}

static struct r4_gemm_product with_tile(struct r4_gemm_product p, unsigned nx, unsigned height) {
    p.tile_nx = nx, p.tile_height = height;
    return p;
}

/* A slot holds half the columns of its rows of x, then the other half, then W likewise, and nx rows
 * are read of each half, however many there are. */
static bool reads_behind_slot(size_t nx, size_t height, size_t x_nrows) {
    return x_nrows + nx > 2 * (x_nrows + height);
}

/* Shared memory of a block: barriers, starts of experts, slots. */
static size_t count_bytes(bool is_of_experts, size_t height, size_t x_nrows, size_t nslots) {
    return BARRIERS_NBYTES + (is_of_experts ? STARTS_NBYTES : 0) +
           nslots * (x_nrows + height) * ROW_NBYTES;
}

/* With as few slots as the kernels can do with, of rows of x as they are shared out: the whole
 * eights that there are, unless what multiplies nx rows would then read behind a slot. */
static unsigned least_bytes(const struct r4_gemm_product *p, unsigned nx, unsigned height) {
    if (p->way == R4_GEMM_SKINNY)
        return (unsigned)skinny_nbytes(nx, height, SKINNY_NSLOTS_LEAST, 1);
    size_t x_nrows = p->nexperts || p->nx >= nx ? nx : divide_up(p->nx, 8) * 8;
    if (reads_behind_slot(nx, height, x_nrows)) x_nrows = nx;
    return (unsigned)count_bytes(p->nexperts > 0, height, x_nrows, NSLOTS_LEAST);
}

/* Whether the device has room for a tile of all these rows of W, or if height is 0 for any. */
static bool has_tile(const struct r4_device *device, const struct r4_gemm_product *p,
                     unsigned tile_nx, unsigned height) {
    if (!tile_nx) tile_nx = p->way == R4_GEMM_SKINNY ? skinny_nx(p->nx) : 64;
    unsigned most = height_most(p->way, tile_nx);
    return most > 0 && height <= most && height <= p->taken && p->nx <= nx_most(p->way, tile_nx) &&
           least_bytes(p, tile_nx, height ? height : HEIGHT_STEP) <= device->shared_most;
}

/* ---- What has to hold ------------------------------------------------------------------------ */

struct found {
    struct r4_gemm_kernel kernel;
    struct r4_grid grid;
};

static int find(const struct r4_device *device, const struct r4_gemm_product *p,
                struct found *found) {
    memset(found, 0xa5, sizeof *found);
    return r4_gemm_grid(device, p, &found->kernel, &found->grid);
}

static void fail_product(const struct r4_device *device, const struct r4_gemm_product *p,
                         const struct found *f, const char *what) {
    const struct r4_gemm_kernel *k = &f->kernel;
    fail_msg("%s: way %d, x [%u, %u], %u rows of %u parts, %u splits, %u experts, tile %u x %u on "
             "%u multiprocessors with %u bytes: kernel %d %u %u %u %u, height %d, %d rows of x in "
             "each of %d slots, %d turns, %d stages, grid %u %u %u",
             what, (int)p->way, p->nx, p->ncols, p->taken, p->nparts, p->nsplits, p->nexperts,
             p->tile_nx, p->tile_height, device->nprocessors, device->shared_most, (int)k->way,
             k->nx, k->per_lane, k->nsplits, k->nparts, k->shape.height, k->shape.x_nrows,
             k->shape.nslots, k->shape.nturns, k->shape.nstages, f->grid.nblocks, f->grid.nthreads,
             f->grid.shared_nbytes);
}

/* What is wrong with a kernel's numbers, or NULL. */
static const char *check_kernel(const struct r4_gemm_product *p, const struct r4_gemm_kernel *k) {
    unsigned height = (unsigned)k->shape.height;
    if (k->way != p->way) return "another way";
    if (k->per_lane != (p->ncols % 128 ? 2 : 4)) return "columns a lane";
    if (k->nsplits != (p->nexperts ? 0 : p->nsplits)) return "splits";
    if (k->nparts != p->nparts) return "parts";
    if (p->tile_nx && k->nx != p->tile_nx) return "another tile_nx";
    if (p->tile_height && height != p->tile_height) return "another tile_height";
    if (k->way == R4_GEMM_SKINNY && p->nx > k->nx) return "rows of x that are left out";
    if (k->way == R4_GEMM_SKINNY && !p->tile_nx && k->nx != skinny_nx(p->nx))
        return "a smaller kernel would do";
    if (height % HEIGHT_STEP || height < HEIGHT_STEP) return "no whole 16 rows";
    if (height > height_most(k->way, k->nx)) return "no such kernel, or too few registers";
    if (height > p->taken) return "more rows than there are";
    return NULL;
}

static const char *check_shape(const struct r4_device *device, const struct r4_gemm_product *p,
                               const struct found *f) {
    const struct r4_gemm_shape *s = &f->kernel.shape;
    unsigned nx = f->kernel.nx, height = (unsigned)s->height, x_nrows = (unsigned)s->x_nrows;
    size_t nslots = (size_t)s->nslots;
    if (f->grid.shared_nbytes != device->shared_most) return "shared memory differs by launch";
    if (p->way == R4_GEMM_SKINNY) return check_skinny_shape(device, p, &f->kernel);
    if (s->x_nrows < 0 || x_nrows % 8) return "x is copied, and swizzled, eight rows at a time";
    if (x_nrows > nx) return "more rows of x than are multiplied";
    if (x_nrows < (p->nx < nx ? p->nx : nx)) return "rows of x without a place";
    if (reads_behind_slot(nx, height, x_nrows)) return "x is read behind the slot";
    if (s->nslots < NSLOTS_LEAST) return "one slot";
    if (nslots > NSLOTS_MOST) return "more slots than barriers";
    if (count_bytes(p->nexperts > 0, height, x_nrows, nslots) > device->shared_most)
        return "too much memory";
    return NULL;
}

/* Items: tiles of W with those of x; with clusters, each split is a block's. */
static size_t count_items(const struct r4_gemm_product *p, const struct r4_gemm_kernel *k) {
    return divide_up(p->taken, (size_t)k->shape.height) * divide_up(p->nx, k->nx) *
           (has_clusters(p->way) ? p->nsplits : 1);
}

/* A cluster takes one item. Else no multiprocessor has two blocks, and none is idle that could have
 * one; how many experts have rows is not known. */
static size_t count_blocks(const struct r4_device *device, const struct r4_gemm_product *p,
                           const struct r4_gemm_kernel *k) {
    size_t nitems = count_items(p, k);
    if (p->nexperts) return device->nprocessors;
    if (has_clusters(p->way) && p->nsplits > 1) return nitems;
    return nitems < device->nprocessors ? nitems : device->nprocessors;
}

static struct found take(const struct r4_device *device, struct r4_gemm_product p) {
    struct found f;
    if (!find(device, &p, &f)) fail_product(device, &p, &f, "refused");
    const char *wrong = check_kernel(&p, &f.kernel);
    if (!wrong) wrong = check_shape(device, &p, &f);
    if (!wrong && f.grid.nthreads != nthreads_of(&f.kernel)) wrong = "threads";
    if (!wrong && f.grid.nblocks != count_blocks(device, &p, &f.kernel)) wrong = "blocks";
    if (wrong) fail_product(device, &p, &f, wrong);
    return f;
}

static void refuse(const struct r4_device *device, struct r4_gemm_product p) {
    struct found f, untouched;
    memset(&untouched, 0xa5, sizeof untouched);
    if (find(device, &p, &f)) fail_product(device, &p, &f, "taken");
    if (memcmp(&f, &untouched, sizeof f)) fail_product(device, &p, &f, "refused, but written");
}

static void take_if(bool is_taken, const struct r4_device *device, struct r4_gemm_product p) {
    if (is_taken)
        take(device, p);
    else
        refuse(device, p);
}

/* Slots and, for few rows of x, turns that more memory has made as many as are of use. */
static void check_most(const struct r4_device *device, const struct r4_gemm_product *p,
                       const struct found *f) {
    const struct r4_gemm_shape *s = &f->kernel.shape;
    unsigned height = (unsigned)s->height, nturns = (unsigned)s->nturns;
    if (p->way != R4_GEMM_SKINNY) {
        if (s->nslots <= NSLOTS_LEAST) fail_product(device, p, f, "no more slots");
        return;
    }
    if (s->nslots != SKINNY_NSLOTS_MOST) fail_product(device, p, f, "not all slots");
    if (nturns < 4 && skinny_nwarps(f->kernel.nx, height, 2 * nturns) <= SKINNY_NWARPS_MOST)
        fail_product(device, p, f, "warps for more turns");
}

#endif
