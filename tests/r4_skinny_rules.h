/* r4_skinny_rules.h - what has to hold of a kernel for few rows of x and of its shape, for
 * r4_gemm_rules.h: what r4_skinny.cuh is written for, stated once more. */
#ifndef BINADE_TESTS_R4_SKINNY_RULES_H
#define BINADE_TESTS_R4_SKINNY_RULES_H

#include <stddef.h>

#include "cuda/r4_gemm_grid.h"

enum {
    SKINNY_NX_MOST = 32,
    SKINNY_TILE_NROWS = 16, /* of W, of mma.sync */
    SKINNY_NWARPS_MOST = 16,
    SKINNY_NSLOTS_LEAST = 4,
    SKINNY_NSLOTS_MOST = 8,
    SKINNY_BARRIERS_NBYTES = 2048,
    SKINNY_X_ROW_NBYTES = 2 * 256 + 32,            /* of a slot: 256 columns of BF16, and a shift */
    SKINNY_STAGE_NBYTES = 16 * (512 * 3 / 2 + 32), /* 512 columns of R4, likewise */
    SKINNY_SUMS_NBYTES = 16 * 4,                   /* that a tile hands on, for each row of x */
};

/* Rows of x of the smallest kernel that takes so many; 0: none does. */
static unsigned skinny_nx(unsigned nx) {
    for (unsigned n = 8; n <= SKINNY_NX_MOST; n *= 2)
        if (nx <= n) return n;
    return 0;
}

static unsigned skinny_ncopiers(unsigned nx) {
    return nx == 32 ? 2 : 1;
}

/* Each tile has a warp for each turn. */
static unsigned skinny_nwarps(unsigned nx, unsigned height, unsigned nturns) {
    return height / SKINNY_TILE_NROWS * nturns + skinny_ncopiers(nx);
}

/* Shared memory of a block: barriers, slots, and of each tile sums and stages. */
static size_t skinny_nbytes(size_t nx, size_t height, size_t nslots, size_t nstages) {
    return SKINNY_BARRIERS_NBYTES + nslots * nx * SKINNY_X_ROW_NBYTES +
           height / SKINNY_TILE_NROWS * (nx * SKINNY_SUMS_NBYTES + nstages * SKINNY_STAGE_NBYTES);
}

/* Of 256 columns: of a group that is cut short too there are two. */
static unsigned skinny_nhalves(unsigned ncols) {
    return 2 * ((ncols + 511) / 512);
}

static int is_1_2_or_4(int n) {
    return n == 1 || n == 2 || n == 4;
}

/* What is wrong with a shape, or NULL. */
static const char *check_skinny_shape(const struct r4_device *device,
                                      const struct r4_gemm_product *p,
                                      const struct r4_gemm_kernel *k) {
    const struct r4_gemm_shape *s = &k->shape;
    if (s->x_nrows != 0) return "x_nrows mean nothing here";
    if (!is_1_2_or_4(s->nturns)) return "turns are masked and shifted";
    if ((unsigned)s->nturns > skinny_nhalves(p->ncols)) return "a turn would skip an item";
    if (s->nslots != SKINNY_NSLOTS_LEAST && s->nslots != SKINNY_NSLOTS_MOST)
        return "no such number of slots";
    if (s->nslots < 2 * s->nturns) return "all slots are read at once, and none is filled";
    if (!is_1_2_or_4(s->nstages)) return "no such number of stages";
    if (2 * s->nstages < s->nturns) return "turns, two to a stage, without one";
    if (skinny_nwarps(k->nx, (unsigned)s->height, (unsigned)s->nturns) > SKINNY_NWARPS_MOST)
        return "too many warps";
    if (skinny_nbytes(k->nx, (size_t)s->height, (size_t)s->nslots, (size_t)s->nstages) >
        device->shared_most)
        return "too much memory";
    return NULL;
}

#endif
