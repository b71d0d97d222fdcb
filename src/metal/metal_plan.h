/* metal_plan.h - how the kernels of metal_kernels.h are launched: template arguments, sizes, grid.
 *
 * Grids count threads, as MLX's metal_kernel does. The arrays are named in metal_kernels.c, which
 * also says what has to have at least 8 elements; facts of a weight are row0, taken, block_nrows,
 * base: rows row0 .. row0 + taken of each of its blocks of block_nrows rows.
 */
#ifndef BINADE_METAL_METAL_PLAN_H
#define BINADE_METAL_METAL_PLAN_H

#include "metal/metal_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { METAL_NPARTS = 3, METAL_NVALUES = 6 };

struct metal_plan {
    const char *kernel;
    int nvalues, values[METAL_NVALUES]; /* of its template, in the order of metal_kernels.c */
    int nsizes, sizes[METAL_NVALUES];
    int grid[3], threadgroup[3];
};

/* Whether one launch serves weights of taken[i] rows each, i < nparts, with this x and this K: MLX
 * runs the same kind of kernel for each. p->n is not looked at. */
bool metal_may_share(const struct metal_gpu *gpu, const struct metal_product *p, const int *taken,
                     int nparts);

/* One launch for all parts, or for one part that is split along K two: r4_gemm_split, which writes
 * `splits` [sizes[2], m, taken], and r4_add_splits. Returns how many; 0 where the weights are to be
 * rebuilt. */
int metal_plan_matmul(const struct metal_gpu *gpu, const struct metal_product *p, const int *taken,
                      int nparts, struct metal_plan plans[2]);

/* Items that meet experts, taken[i] rows of each, i < nparts <= 2. items_per_x: item i takes row i
 * / items_per_x of x; 0: lhs names it. x has nx rows. Returns 1, or 0: rebuild. */
int metal_plan_gather(const struct metal_gpu *gpu, const struct metal_items *items, int nitems,
                      int nx, int nexperts, int items_per_x, const int *taken, int nparts,
                      struct metal_plan *plan);

/* r4_rebuild of nrows rows of all blocks, r4_rows for as many ids. */
void metal_plan_rebuild(const char *kernel, int ncols, int nrows, struct metal_plan *plan);

/* r4_from_*, r4_measure_fixed, r4_count_fixed: rows by simdgroups; sizes are the caller's. */
void metal_plan_load(const char *kernel, int nrows, struct metal_plan *plan);

/* r4_scan of n values. */
void metal_plan_scan(int n, struct metal_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
