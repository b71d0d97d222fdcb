#include "metal/metal_rules.h"

#include <string.h>

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t divide_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

/* ---- GPUs ------------------------------------------------------------------------------------
 */

static int digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : 0;
}

struct metal_gpu metal_gpu_of(const char *architecture, bool has_nax_system) {
    struct metal_gpu gpu = {0};
    size_t n = strlen(architecture);

    if (n == 0) return gpu;
    gpu.class_letter = architecture[n - 1];
    if (n >= 3) gpu.generation = 10 * digit_of(architecture[n - 3]) + digit_of(architecture[n - 2]);
    gpu.has_nax = has_nax_system && gpu.generation >= (gpu.class_letter == 'p' ? 18 : 17);
    return gpu;
}

/* ---- gemv ------------------------------------------------------------------------------------
 */

/* k columns, `nout` outputs; of a matrix stored [k, nout] if it is transposed. A gathered product
 * knows no other split of k than the common one. */
static struct metal_mlx gemv_rule(enum metal_kernel_name name, int64_t nout, int64_t k,
                                  bool is_transposed, bool is_gathered) {
    struct metal_mlx mlx = {.name = name, .bm = 1, .bn = 1, .sm = 1, .sn = 32, .tm = 4, .tn = 4};

    if (is_transposed) {
        bool is_large = k >= 8192 && nout >= 2048;
        mlx.name = name == METAL_GEMV ? METAL_GEMV_T : name;
        mlx.sm = is_large ? 4 : 8;
        mlx.sn = is_large ? 8 : 4;
        mlx.bn = nout >= 2048 ? 16 : nout >= 512 ? 4 : 2;
        if (nout < 4) mlx.tn = 1;
        return mlx;
    }
    mlx.bm = nout >= 4096 ? 8 : 4;
    if (!is_gathered && k <= 64) {
        mlx.bm = 1;
        mlx.sm = 8;
        mlx.sn = 4;
    } else if (!is_gathered && k >= 16 * nout) {
        mlx.bm = 1;
        mlx.bn = 8;
    }
    if (nout < 4) mlx.tm = 1;
    return mlx;
}

/* False where gemv_wide does not run. */
static bool wide_rule(const struct metal_gpu *gpu, int64_t m, int64_t n, int64_t k, bool is_aligned,
                      struct metal_mlx *mlx) {
    int64_t passes = divide_up(m, 5);

    if (gpu->generation < 15 || m <= 1 || n <= 1 || k % 4 != 0 || !is_aligned || passes > 3)
        return false;
    *mlx = (struct metal_mlx){
        .name = METAL_GEMV_WIDE,
        .passes = (int)passes,
        .nvecs = (int)divide_up(m, passes),
        .nlanes = passes == 1 || n <= 64 ? 32 : 16,
        .grid_x = n >= 65536 ? 1 : (int)passes,
    };
    return true;
}

/* ---- Tiles -----------------------------------------------------------------------------------
 */

static struct metal_mlx tile(enum metal_kernel_name name, int bm, int bn, int bk, int wm, int wn) {
    return (struct metal_mlx){.name = name, .bm = bm, .bn = bn, .bk = bk, .wm = wm, .wn = wn};
}

/* is_nt: x [m, k] and W [n, k] as they are. */
static struct metal_mlx steel_rule(const struct metal_gpu *gpu, enum metal_kernel_name name,
                                   int64_t batch, int64_t m, int64_t n, int64_t k, bool is_nt) {
    switch (gpu->class_letter) {
    case 'g':
    case 'p':
        return is_nt ? tile(name, 64, 32, 32, 2, 2) : tile(name, 64, 64, 16, 1, 2);
    case 'd':
        if (batch * m * n >= 1 << 20 && 2 * most(m, n) > k) return tile(name, 64, 64, 16, 1, 2);
        if (is_nt) return tile(name, 64, 32, 32, 2, 2);
        return batch * m * n >= 1 << 20 ? tile(name, 32, 64, 16, 1, 2)
                                        : tile(name, 64, 64, 16, 1, 2);
    default:
        return tile(name, 64, 64, 16, 2, 2);
    }
}

static struct metal_mlx nax_rule(const struct metal_gpu *gpu, int64_t m, int64_t n, int64_t k) {
    bool is_large = gpu->class_letter && strchr("scd", gpu->class_letter);
    if (!is_large) return tile(METAL_NAX_FUSED, 128, 128, 512, 4, 4);
    return tile(METAL_NAX_FUSED, 64, 128, k >= 8192 && k > m + n ? 64 : 256, 2, 4);
}

/* ---- Split-K ---------------------------------------------------------------------------------
 */

static bool splits(const struct metal_gpu *gpu, const struct metal_product *p) {
    bool is_large = gpu->class_letter == 's' || gpu->class_letter == 'd';
    int64_t ntiles = divide_up(p->m, 16) * divide_up(p->n, 16);

    return p->batch == 1 && ntiles <= (is_large ? 2048 : 1024) && p->k / 16 >= 8 &&
           p->k >= most(p->m, p->n);
}

static struct metal_mlx split_rule(const struct metal_product *p) {
    struct metal_mlx mlx = tile(METAL_SPLIT_K, p->m < 40 ? 16 : 32, p->n < 40 ? 16 : 32, 16, 2, 2);
    int64_t steps = p->k / 16, each = steps / (divide_up(p->m, 32) * divide_up(p->n, 32));

    for (mlx.nsplits = 2; mlx.nsplits < each && mlx.nsplits < 32;)
        mlx.nsplits *= 2;
    mlx.split_ncols = steps / mlx.nsplits * 16;
    return mlx;
}

static bool nax_splits(const struct metal_product *p) {
    int64_t side = most(p->m, p->n);
    return p->batch == 1 && (p->k >= 3 * side || (side <= 1024 && p->k > 2 * side));
}

static struct metal_mlx nax_split_rule(const struct metal_product *p) {
    bool is_small = (p->m + p->n) / 2 < 512 || p->k <= 4096;
    struct metal_mlx mlx = is_small ? tile(METAL_NAX_SPLIT_K, 64, 64, 256, 2, 2)
                                    : tile(METAL_NAX_SPLIT_K, 128, 128, 512, 4, 4);

    mlx.split_ncols = p->k <= 1024 ? p->k / 2 : p->k <= 2048 ? 1024 : p->k <= 4096 ? 2048 : 4096;
    mlx.nsplits = divide_up(p->k, mlx.split_ncols);
    return mlx;
}

/* ---- Rules -----------------------------------------------------------------------------------
 */

struct metal_mlx metal_matmul_rule(const struct metal_gpu *gpu, const struct metal_product *p) {
    bool is_nt = !p->x_transposed && !p->w_stored_kn;
    struct metal_mlx mlx = {0};

    if (p->m == 1 && p->n == 1 && p->batch == 1 && !p->has_bias)
        return (struct metal_mlx){.name = METAL_DOT};
    if (is_nt && wide_rule(gpu, p->m, p->n, p->k, p->is_aligned, &mlx)) return mlx;
    if (p->n == 1) return gemv_rule(METAL_GEMV, p->m, p->k, p->x_transposed, false);
    if (p->m == 1) return gemv_rule(METAL_GEMV, p->n, p->k, p->w_stored_kn, false);
    if (!gpu->has_nax && splits(gpu, p)) return split_rule(p);
    if (gpu->has_nax && nax_splits(p)) return nax_split_rule(p);
    if (gpu->has_nax) return nax_rule(gpu, p->m, p->n, p->k);
    return steel_rule(gpu, METAL_FUSED, p->batch, p->m, p->n, p->k, is_nt);
}

struct metal_mlx metal_gather_rule(const struct metal_gpu *gpu, const struct metal_items *items) {
    struct metal_mlx mlx = {0};

    if (items->m == 1 && items->is_sorted) {
        /* NAX: bm and wm go by rows an expert, which is not known here; they change no order. */
        return gpu->has_nax ? tile(METAL_NAX_GATHER_RHS, 0, 128, 128, 0, 4)
                            : tile(METAL_GATHER_RHS, 16, 64, 16, 1, 2);
    }
    if (items->m == 1) return gemv_rule(METAL_GATHER_MV, items->n, items->k, false, true);
    if (items->n == 1) return gemv_rule(METAL_GATHER_MV, items->m, items->k, false, true);
    if (wide_rule(gpu, items->m, items->n, items->k, items->is_aligned, &mlx)) {
        mlx.name = METAL_GATHER_WIDE;
        return mlx;
    }
    /* An ultra's tile goes by the number of items; with m > 1 nothing of ours depends on it. */
    return steel_rule(gpu, METAL_GATHER_STEEL, 1, items->m, items->n, items->k, true);
}

/* ---- Ours ------------------------------------------------------------------------------------
 */

static struct metal_choice rebuild(const char *why) {
    return (struct metal_choice){METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION, why};
}

static struct metal_choice emulated(enum metal_ours kernel, const char *why) {
    return (struct metal_choice){kernel, METAL_EMULATED, why};
}

/* The package ran on M3 and M4. */
static struct metal_choice published(const struct metal_gpu *gpu, enum metal_ours kernel,
                                     const char *why) {
    struct metal_choice choice = emulated(kernel, why);
    if (gpu->generation == 15 || gpu->generation == 16) choice.proof = METAL_PUBLISHED;
    return choice;
}

/* Escapes have 24 bits for a position, and all ones stands for none; MLX passes what has fewer than
 * 8 elements in another address space, which rows of x and biases are not expected in. */
static bool has_room(int64_t n, int64_t k, bool has_bias) {
    return k >= 8 && k <= (1 << 24) - 128 && (!has_bias || n >= 8);
}

static struct metal_choice gemv_choice(const struct metal_gpu *gpu, const struct metal_product *p,
                                       const struct metal_mlx *mlx) {
    if (mlx->sn == 4) return emulated(METAL_OURS_MATVEC_SHORT, "gemv with 4 lanes along K");
    if (mlx->bn == 8) return emulated(METAL_OURS_MATVEC_LONG, "gemv with 8 simdgroups along K");
    if (p->has_bias || p->k % 128 != 0)
        return emulated(METAL_OURS_MATVEC, "gemv with 32 lanes along K");
    return published(gpu, METAL_OURS_MATVEC, "gemv with 32 lanes along K");
}

struct metal_choice metal_matmul_choice(const struct metal_gpu *gpu,
                                        const struct metal_product *p) {
    const struct metal_mlx mlx = metal_matmul_rule(gpu, p);

    if (p->batch != 1 || p->x_transposed || p->w_stored_kn)
        return rebuild("x or W lies in another way than kernels read it");
    if (!has_room(p->n, p->k, p->has_bias)) return rebuild("the shape is not one for kernels");
    switch (mlx.name) {
    case METAL_GEMV:
        if (p->n == 1) return rebuild("MLX takes x as the matrix");
        return gemv_choice(gpu, p, &mlx);
    case METAL_GEMV_WIDE:
        return emulated(METAL_OURS_WIDE, "gemv_wide");
    case METAL_SPLIT_K:
        return emulated(METAL_OURS_GEMM_SPLIT, "steel GEMM over parts of K");
    case METAL_FUSED:
        if (p->has_bias || p->k % 32 != 0) return emulated(METAL_OURS_GEMM, "steel GEMM");
        return published(gpu, METAL_OURS_GEMM, "steel GEMM");
    case METAL_DOT:
        return rebuild("MLX multiplies one row by one in an order of its own");
    default:
        return rebuild("MLX uses matrix units whose order is not known");
    }
}

struct metal_choice metal_gather_choice(const struct metal_gpu *gpu,
                                        const struct metal_items *items) {
    const struct metal_mlx mlx = metal_gather_rule(gpu, items);

    if (!has_room(items->n, items->k, false)) return rebuild("the shape is not one for kernels");
    switch (mlx.name) {
    case METAL_GATHER_MV:
        if (items->m != 1) return rebuild("MLX takes x as the matrix");
        if (items->k % 128 != 0) return emulated(METAL_OURS_GATHER, "gather_mv");
        return published(gpu, METAL_OURS_GATHER, "gather_mv");
    case METAL_GATHER_RHS:
        if (items->k % 16 != 0) return emulated(METAL_OURS_GEMM_EXPERTS, "gather_mm_rhs");
        return published(gpu, METAL_OURS_GEMM_EXPERTS, "gather_mm_rhs");
    case METAL_NAX_GATHER_RHS:
        return rebuild("MLX uses matrix units whose order is not known");
    default:
        return rebuild("MLX multiplies several rows of an item in another order");
    }
}

/* As few empty rows as a tile of 64 can have; the package chose so on an M4 Max. */
struct metal_tile metal_tile_for(int64_t nrows) {
    int64_t rest = nrows % 64;

    if (nrows <= 16) return (struct metal_tile){16, 32, 1, 2};
    if (nrows <= 32 || (rest > 0 && rest <= 32)) return (struct metal_tile){32, 64, 2, 2};
    return (struct metal_tile){64, 64, 2, 2};
}
