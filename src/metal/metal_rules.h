/* metal_rules.h - which kernel MLX 0.32.2 runs on an Apple GPU for a BF16 product, and which of
 * ours gives the same bits.
 *
 * MLX chooses by the GPU's generation and class, by shapes and by layout; each choice has an order
 * of sums of its own. Where no kernel of ours has that order, the weight is rebuilt and MLX's own
 * operation called, which is exact by construction.
 */
#ifndef BINADE_METAL_RULES_H
#define BINADE_METAL_RULES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- GPUs ------------------------------------------------------------------------------------
 */

struct metal_gpu {
    int generation;    /* 13 M1, 14 M2, 15 M3, 16 M4, 17 M5 */
    char class_letter; /* p phone, g base and pro, s max, d ultra, c another */
    bool has_nax;      /* MLX uses matrix units of their own */
};

/* From what Metal calls the architecture, as applegpu_g16s; MLX looks at its last three characters.
 * has_nax_system: macOS 26.2 or later, and an MLX built for it. */
struct metal_gpu metal_gpu_of(const char *architecture, bool has_nax_system);

/* ---- Products --------------------------------------------------------------------------------
 */

/* x [m, k] times W^T, W [n, k]. MLX makes m of all leading dimensions of x where W has but two. */
struct metal_product {
    int64_t m, n, k;
    int64_t batch;     /* products side by side, each with its own W; 1 for a matrix W */
    bool has_bias;     /* addmm with alpha and beta 1 */
    bool x_transposed; /* x is stored [k, m] */
    bool w_stored_kn;  /* W is stored [k, n]; R4 never is */
    bool is_aligned;   /* offsets of x and W are multiples of 8 bytes, rows of 4 elements */
};

/* Items that meet experts: x [items, m, k], W [experts, n, k]. */
struct metal_items {
    int64_t m, n, k;
    bool is_sorted;  /* sorted_indices, and no lhs_indices */
    bool is_aligned; /* as above */
};

enum metal_kernel_name {
    METAL_DOT,
    METAL_GEMV,
    METAL_GEMV_T,
    METAL_GEMV_WIDE,
    METAL_SPLIT_K,
    METAL_FUSED,
    METAL_NAX_SPLIT_K,
    METAL_NAX_FUSED,
    METAL_GATHER_RHS,
    METAL_NAX_GATHER_RHS,
    METAL_GATHER_MV,
    METAL_GATHER_WIDE,
    METAL_GATHER_STEEL,
};

/* What MLX runs. Members that the kernel has no use for are 0. */
struct metal_mlx {
    enum metal_kernel_name name;
    int bm, bn, bk, wm, wn; /* steel: a threadgroup's tile and its simdgroups */
    int sm, sn, tm, tn;     /* gemv: lanes and a lane's elements; bm x bn are simdgroups there */
    int passes, nvecs, nlanes, grid_x; /* gemv_wide: of x's rows; lanes of a row of W */
    int64_t nsplits, split_ncols;      /* split-K: parts, columns of each but the last */
};

struct metal_mlx metal_matmul_rule(const struct metal_gpu *gpu, const struct metal_product *p);
struct metal_mlx metal_gather_rule(const struct metal_gpu *gpu, const struct metal_items *items);

/* ---- Ours ------------------------------------------------------------------------------------
 */

enum metal_ours {
    METAL_OURS_REBUILD,
    METAL_OURS_MATVEC,
    METAL_OURS_MATVEC_SHORT,
    METAL_OURS_MATVEC_LONG,
    METAL_OURS_WIDE,
    METAL_OURS_GEMM,
    METAL_OURS_GEMM_SPLIT,
    METAL_OURS_GATHER,
    METAL_OURS_GEMM_EXPERTS,
};

/* How it is known that a kernel gives MLX's bits. */
enum metal_proof {
    METAL_BY_CONSTRUCTION, /* rebuilt */
    METAL_EMULATED,        /* both kernels emulated and compared here */
    METAL_PUBLISHED,       /* that too, and the package ran the same order on such a GPU */
};

struct metal_choice {
    enum metal_ours kernel;
    enum metal_proof proof;
    const char *why; /* one clause */
};

struct metal_choice metal_matmul_choice(const struct metal_gpu *gpu, const struct metal_product *p);
struct metal_choice metal_gather_choice(const struct metal_gpu *gpu,
                                        const struct metal_items *items);

/* A threadgroup's tile in our GEMMs, for about so many rows of x with the same W. It changes no
 * bits. */
struct metal_tile {
    int bm, bn, wm, wn;
};
struct metal_tile metal_tile_for(int64_t nrows);

#ifdef __cplusplus
}
#endif
#endif
