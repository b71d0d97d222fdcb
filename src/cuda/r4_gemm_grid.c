#include "cuda/r4_gemm_grid.h"

#include <limits.h>

#include "cuda/r4_gpu_layout.h"

enum {
    WARP = 32,
    TILE_NROWS = 64,
    UNIT_NCOLS = 64,
    BARRIERS_NBYTES = 1024,
    STARTS_NBYTES = 5 * 1024,
};

/* The slots of r4_gemm_slots.cuh, by rows of x. */
struct slots {
    unsigned nx, nslots, nunits, nthreads;
};

static const struct slots all_slots[] = {
    {16, 5, 4, (4 + 16 + 4) * WARP},
    {64, 3, 4, (4 + 16 + 4) * WARP},
    {128, 4, 2, (4 + 8 + 4) * WARP},
};

static unsigned slots_nbytes(const struct slots *s) {
    return s->nslots * s->nunits * (TILE_NROWS + s->nx) * UNIT_NCOLS * 2;
}

static size_t divide_up(size_t n, size_t by) {
    return n / by + (n % by > 0);
}

/* Whether each split has columns: the kernels would wait for ever for one that has none. */
static int have_columns(unsigned ncols, unsigned nsplits) {
    size_t split_nunits = divide_up(divide_up(ncols, nsplits), UNIT_NCOLS);
    return (nsplits - 1) * split_nunits * UNIT_NCOLS < ncols;
}

static size_t count_items(const struct r4_gemm_product *p, unsigned nx) {
    return divide_up(p->taken, TILE_NROWS) * divide_up(p->nx, nx);
}

/* The least that takes nx rows at once, or the largest. */
static const struct slots *find_slots(size_t nx) {
    const struct slots *s = all_slots, *last = s + sizeof all_slots / sizeof *s - 1;
    while (s < last && nx > s->nx)
        s++;
    return s;
}

static const struct slots *choose_slots(const struct r4_device *device,
                                        const struct r4_gemm_product *p) {
    if (p->tile) return find_slots(p->tile);
    if (p->nexperts) return find_slots(divide_up(p->nx, p->nexperts));
    /* Of a small product rather more blocks than more rows for each. */
    if (p->nx > 64 && count_items(p, 64) * p->nsplits <= device->nprocessors) return find_slots(64);
    return find_slots(p->nx);
}

int r4_gemm_grid(const struct r4_device *device, const struct r4_gemm_product *p,
                 struct r4_gemm_kernel *kernel, struct r4_grid *grid) {
    const unsigned nexperts = p->nexperts;

    if (p->nx == 0 || p->taken < TILE_NROWS || p->ncols == 0 || p->ncols % UNIT_NCOLS) return 0;
    if (p->ncols > R4_COLS_MOST - 256) return 0; /* no escape is in a piece like that of none */
    if (nexperts > R4_GEMM_EXPERTS_MOST || (nexperts == 0 && p->nsplits == 0)) return 0;
    if (nexperts == 0 && (p->nsplits > R4_GEMM_NSPLITS_MOST || p->nx > R4_GEMM_NX_MOST)) return 0;
    if (nexperts == 0 && !have_columns(p->ncols, p->nsplits)) return 0;

    const struct slots *s = choose_slots(device, p);
    const unsigned nshared = BARRIERS_NBYTES + (nexperts ? STARTS_NBYTES : 0) + slots_nbytes(s);
    size_t nblocks = count_items(p, s->nx);
    if (nexperts == 0 && p->nsplits > 1)
        nblocks *= p->nsplits; /* a cluster takes one item */
    else if (nexperts || nblocks > device->nprocessors)
        nblocks = device->nprocessors;
    if (nshared > device->shared_most || nblocks > INT_MAX / s->nthreads) return 0;

    *kernel = (struct r4_gemm_kernel){s->nx, r4_per_lane(p->ncols), nexperts ? 0 : p->nsplits};
    *grid = (struct r4_grid){(unsigned)nblocks, s->nthreads, nshared};
    return 1;
}
