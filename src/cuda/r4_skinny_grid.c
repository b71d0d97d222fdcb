#include "cuda/r4_skinny_grid.h"

#include "cuda/r4_gpu_layout.h"

/* Of a kernel with room for nx: 8, 16 or 32. */
static unsigned count_x_rows(unsigned nx) {
    return nx <= 8 ? 8 : nx <= 16 ? 16 : 32;
}

/* Cycles of a multiprocessor for a product, as fitted to times of all tiles of a few products on an
 * H200 (`bench_cuda_gemm tiles`). Only which is least matters. Turns of a tile follow each other,
 * and a warp has all of its own to do; all tiles share the multiprocessor. */
static double cycles(const struct r4_device *device, const struct r4_gemm_product *p, unsigned nx,
                     const struct r4_gemm_shape *shape) {
    const double start = 7000, next_item = 600;
    const int ntiles = shape->height / R4_SKINNY_NROWS;
    const double turn = 510 + 6.5 * nx, alone = (1850 + 10.0 * nx) / shape->nturns;
    const double shared = (330 + 1.6 * nx) * ntiles;
    const double nhalves = p->ncols / (R4_GROUP_NCOLS / 2.0) / p->nsplits;
    double half = turn > alone ? turn : alone;
    if (shared > half) half = shared;
    double nrounds = (double)r4_ceil_div(r4_ceil_div(p->taken, (size_t)shape->height),
                                         r4_clusters_at_once(device, p->nsplits));
    double next = p->nsplits > 1 ? start : next_item;
    return start + nrounds * nhalves * half + (nrounds - 1) * next;
}

_Static_assert(16 * R4_SKINNY_NSLOTS_MOST +
                       (R4_SKINNY_NWARPS_MOST - 1) * R4_SKINNY_TILE_BARRIERS_NBYTES <=
                   R4_SKINNY_BARRIERS_NBYTES,
               "there is room for all barriers");

/* As many stages and then slots as there is room for, and use: with more than two tiles, more than
 * two stages of each were slower. All numbers are powers of two, as kernels mask them; slots, and
 * halves of stages, are whole rounds of turns: so a warp meets the same barrier in each round, and
 * no wait passes because of an earlier phase. Two slots for each turn, so that some are filled
 * meanwhile. 0 where memory or warps do not do. */
static int share_out(const struct r4_device *device, unsigned nx, unsigned height, unsigned nturns,
                     struct r4_gemm_shape *shape) {
    const size_t ntiles = height / R4_SKINNY_NROWS;
    if (R4_SKINNY_NWARPS(nx, height, nturns) > R4_SKINNY_NWARPS_MOST) return 0;
    for (unsigned nstages = ntiles > 2 ? 2 : R4_SKINNY_NSTAGES_MOST;
         nstages > 0 && 2 * nstages >= nturns; nstages /= 2)
        for (unsigned nslots = R4_SKINNY_NSLOTS_MOST; nslots >= 4 && nslots >= 2 * nturns;
             nslots /= 2) {
            size_t nbytes =
                R4_SKINNY_BARRIERS_NBYTES + (size_t)nslots * nx * R4_SKINNY_X_ROW_NBYTES +
                ntiles * (nx * R4_SKINNY_SUMS_NBYTES + (size_t)nstages * R4_SKINNY_STAGE_NBYTES);
            if (nbytes > device->shared_most) continue;
            *shape = (struct r4_gemm_shape){(int)height, 0, (int)nslots, (int)nturns, (int)nstages};
            return 1;
        }
    return 0;
}

int r4_skinny_choose(const struct r4_device *device, const struct r4_gemm_product *p, unsigned *nx,
                     struct r4_gemm_shape *shape) {
    const unsigned n = p->tile_nx ? p->tile_nx : count_x_rows(p->nx);
    const unsigned nhalves = 2 * r4_ngroups(p->ncols);
    struct r4_gemm_shape tried;
    double least = 0;
    int found = 0;
    if (n < p->nx || n != count_x_rows(n)) return 0;
    for (unsigned height = R4_SKINNY_NROWS;
         height <= p->taken && height < R4_SKINNY_NROWS * R4_SKINNY_NWARPS_MOST;
         height += R4_SKINNY_NROWS) {
        if (p->tile_height && height != p->tile_height) continue;
        /* A warp's next turn is in the same item or the next. */
        for (unsigned nturns = R4_SKINNY_NTURNS_MOST; nturns > 0; nturns /= 2) {
            if (nturns > nhalves || !share_out(device, n, height, nturns, &tried)) continue;
            double here = cycles(device, p, n, &tried);
            if (found && here >= least) continue;
            found = 1;
            least = here;
            *nx = n;
            *shape = tried;
        }
    }
    return found;
}
