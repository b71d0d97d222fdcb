#include "metal/metal_plan.h"

#include <string.h>

enum { NLANES = 32, BLOCK_NROWS = 4, SPAN_NCOLS = 4 * 512, LOAD_NSIMDS = 8 };

static int divide_up(int64_t n, int64_t by) {
    return (int)(n / by + (n % by != 0));
}

static void add_value(struct metal_plan *plan, int value) {
    plan->values[plan->nvalues++] = value;
}

static void add_size(struct metal_plan *plan, int64_t size) {
    plan->sizes[plan->nsizes++] = (int)size;
}

/* ngroups threadgroups of x by y simdgroups' threads. */
static void set_grid(struct metal_plan *plan, const int ngroups[3], const int threadgroup[3]) {
    for (int d = 0; d < 3; d++) {
        plan->grid[d] = ngroups[d] * threadgroup[d];
        plan->threadgroup[d] = threadgroup[d];
    }
}

static int count_blocks(const int *taken, int nparts, int block_nrows) {
    int n = 0;
    for (int i = 0; i < nparts; i++)
        n += divide_up(taken[i], block_nrows);
    return n;
}

/* nsimds simdgroups side by side, as many in a threadgroup as MLX takes: 8 where rows are many. */
static void set_simds(struct metal_plan *plan, int nsimds, int ny) {
    int each = nsimds * BLOCK_NROWS >= 4096 ? 8 : 4;
    set_grid(plan, (int[]){divide_up(nsimds, each), ny, 1}, (int[]){NLANES * each, 1, 1});
}

/* ---- Products --------------------------------------------------------------------------------
 */

static struct metal_product of_part(const struct metal_product *p, int taken) {
    struct metal_product part = *p;
    part.n = taken;
    return part;
}

bool metal_may_share(const struct metal_gpu *gpu, const struct metal_product *p, const int *taken,
                     int nparts) {
    const struct metal_product first = of_part(p, taken[0]);
    const struct metal_mlx mlx = metal_matmul_rule(gpu, &first);
    const enum metal_ours kernel = metal_matmul_choice(gpu, &first).kernel;

    if (nparts > METAL_NPARTS) return false;
    if (nparts > 1 && kernel != METAL_OURS_MATVEC && kernel != METAL_OURS_WIDE &&
        kernel != METAL_OURS_GEMM)
        return false;
    for (int i = 1; i < nparts; i++) {
        const struct metal_product part = of_part(p, taken[i]);
        const struct metal_mlx other = metal_matmul_rule(gpu, &part);
        if (metal_matmul_choice(gpu, &part).kernel != kernel) return false;
        if (other.nlanes != mlx.nlanes || other.bk != mlx.bk) return false;
    }
    return kernel != METAL_OURS_REBUILD;
}

static void add_tile(struct metal_plan *plan, struct metal_tile tile) {
    add_value(plan, tile.bm);
    add_value(plan, tile.bn);
    add_value(plan, tile.wm);
    add_value(plan, tile.wn);
}

static void set_tiles(struct metal_plan *plan, struct metal_tile tile, int nx, int ny, int nz) {
    set_grid(plan, (int[]){nx, ny, nz}, (int[]){NLANES * tile.wm * tile.wn, 1, 1});
}

static void plan_wide(const struct metal_mlx *mlx, const int *taken, int nparts,
                      struct metal_plan *plan) {
    add_value(plan, mlx->nvecs);
    add_value(plan, mlx->nlanes);
    set_grid(plan, (int[]){mlx->grid_x, count_blocks(taken, nparts, BLOCK_NROWS), 1},
             (int[]){NLANES, mlx->nlanes / 8, 1});
}

static void plan_gemm(const struct metal_product *p, const struct metal_mlx *mlx, const int *taken,
                      int nparts, struct metal_plan *plan) {
    const struct metal_tile tile = metal_tile_for(p->m);
    add_tile(plan, tile);
    add_value(plan, mlx->bk);
    set_tiles(plan, tile, count_blocks(taken, nparts, tile.bn), divide_up(p->m, tile.bm), 1);
}

static void plan_split(const struct metal_product *p, const struct metal_mlx *mlx, int taken,
                       struct metal_plan plans[2]) {
    const struct metal_tile tile = metal_tile_for(p->m);

    plans[0].kernel = "r4_gemm_split";
    add_tile(&plans[0], tile);
    add_size(&plans[0], mlx->nsplits);
    add_size(&plans[0], mlx->split_ncols);
    set_tiles(&plans[0], tile, divide_up(taken, tile.bn), divide_up(p->m, tile.bm),
              (int)mlx->nsplits);
    plans[1] = (struct metal_plan){.kernel = "r4_add_splits"};
    add_value(&plans[1], p->has_bias);
    add_size(&plans[1], p->m);
    add_size(&plans[1], taken);
    add_size(&plans[1], mlx->nsplits);
    set_grid(&plans[1], (int[]){taken, (int)p->m, 1}, (int[]){1, 1, 1});
    plans[1].threadgroup[0] = taken < 256 ? taken : 256;
}

int metal_plan_matmul(const struct metal_gpu *gpu, const struct metal_product *p, const int *taken,
                      int nparts, struct metal_plan plans[2]) {
    static const char *const matvecs[] = {"r4_matvec_1", "r4_matvec_2", "r4_matvec_3"};
    static const char *const wides[] = {"r4_wide_1", "r4_wide_2", "r4_wide_3"};
    static const char *const gemms[] = {"r4_gemm_1", "r4_gemm_2", "r4_gemm_3"};
    const struct metal_product first = of_part(p, taken[0]);
    const struct metal_mlx mlx = metal_matmul_rule(gpu, &first);
    struct metal_plan *plan = &plans[0];

    if (!metal_may_share(gpu, p, taken, nparts)) return 0;
    *plan = (struct metal_plan){0};
    add_size(plan, p->k);
    if (p->m > 1) add_size(plan, p->m);
    switch (metal_matmul_choice(gpu, &first).kernel) {
    case METAL_OURS_MATVEC:
        plan->kernel = matvecs[nparts - 1];
        set_simds(plan, count_blocks(taken, nparts, BLOCK_NROWS), 1);
        break;
    case METAL_OURS_MATVEC_SHORT:
        plan->kernel = "r4_matvec_short";
        set_simds(plan, divide_up(taken[0], 8 * BLOCK_NROWS), 1);
        break;
    case METAL_OURS_MATVEC_LONG:
        plan->kernel = "r4_matvec_long";
        set_grid(plan, (int[]){divide_up(taken[0], BLOCK_NROWS), 1, 1}, (int[]){NLANES * 8, 1, 1});
        break;
    case METAL_OURS_WIDE:
        plan->kernel = wides[nparts - 1];
        plan_wide(&mlx, taken, nparts, plan);
        break;
    case METAL_OURS_GEMM:
        plan->kernel = gemms[nparts - 1];
        plan_gemm(p, &mlx, taken, nparts, plan);
        break;
    case METAL_OURS_GEMM_SPLIT:
        plan_split(p, &mlx, taken[0], plans);
        return 2;
    default:
        return 0;
    }
    add_value(plan, p->has_bias);
    return 1;
}

int metal_plan_gather(const struct metal_gpu *gpu, const struct metal_items *items, int nitems,
                      int nx, int nexperts, int items_per_x, const int *taken, int nparts,
                      struct metal_plan *plan) {
    static const char *const gathers[] = {"r4_gather_1", "r4_gather_2"};
    static const char *const gemms[] = {"r4_gemm_experts_1", "r4_gemm_experts_2"};
    const enum metal_ours kernel = metal_gather_choice(gpu, items).kernel;

    *plan = (struct metal_plan){0};
    if (nparts > 2) return 0;
    add_size(plan, items->k);
    if (kernel == METAL_OURS_GATHER) {
        plan->kernel = gathers[nparts - 1];
        add_size(plan, nx);
        add_size(plan, nexperts);
        add_size(plan, items_per_x);
        set_simds(plan, count_blocks(taken, nparts, BLOCK_NROWS), nitems);
        return 1;
    }
    if (kernel != METAL_OURS_GEMM_EXPERTS) return 0;
    const struct metal_tile tile = metal_tile_for(nexperts > 0 ? divide_up(nitems, nexperts) : 0);
    plan->kernel = gemms[nparts - 1];
    add_tile(plan, tile);
    add_size(plan, nitems);
    add_size(plan, nexperts);
    set_tiles(plan, tile, count_blocks(taken, nparts, tile.bn), divide_up(nitems, tile.bm), 1);
    return 1;
}

/* ---- The rest --------------------------------------------------------------------------------
 */

void metal_plan_rebuild(const char *kernel, int ncols, int nrows, struct metal_plan *plan) {
    *plan = (struct metal_plan){.kernel = kernel};
    add_size(plan, ncols);
    add_size(plan, nrows);
    set_grid(plan, (int[]){divide_up(ncols, SPAN_NCOLS), divide_up(nrows, 8), 1},
             (int[]){NLANES, 8, 1});
}

void metal_plan_load(const char *kernel, int nrows, struct metal_plan *plan) {
    *plan = (struct metal_plan){.kernel = kernel};
    set_grid(plan, (int[]){divide_up(nrows, LOAD_NSIMDS), 1, 1},
             (int[]){NLANES * LOAD_NSIMDS, 1, 1});
}

void metal_plan_scan(int n, struct metal_plan *plan) {
    *plan = (struct metal_plan){.kernel = "r4_scan"};
    add_size(plan, n);
    set_grid(plan, (int[]){1, 1, 1}, (int[]){1024, 1, 1});
}
