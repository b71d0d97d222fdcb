/* test_metal_rules.c - which kernel MLX runs for a product on an Apple GPU, and which of ours
 * stands for it. Each table states what MLX 0.32.2 does; a second, naive account of the rules is
 * compared over a grid of shapes.
 */
#include <string.h>

#include "check.h"
#include "metal/metal_rules.h"

static const struct metal_gpu m1 = {13, 'g', false}, m2_max = {14, 's', false};
static const struct metal_gpu m3_max = {15, 's', false}, m4 = {16, 'g', false};
static const struct metal_gpu m4_ultra = {16, 'd', false}, m5 = {17, 'g', true};
static const struct metal_gpu m5_max = {17, 's', true}, m5_old_system = {17, 's', false};

static struct metal_product shape(int64_t m, int64_t n, int64_t k) {
    return (struct metal_product){.m = m, .n = n, .k = k, .batch = 1, .is_aligned = true};
}

/* ---- GPUs ------------------------------------------------------------------------------------
 */

static void test_gpus(void) {
    static const struct {
        const char *name;
        bool system_has_nax;
        struct metal_gpu gpu;
    } cases[] = {
        {"applegpu_g13g", false, {13, 'g', false}},
        {"applegpu_g14d", true, {14, 'd', false}},
        {"applegpu_g15s", true, {15, 's', false}},
        {"applegpu_g16p", true, {16, 'p', false}},
        {"applegpu_g17s", true, {17, 's', true}},
        {"applegpu_g17s", false, {17, 's', false}},
        {"applegpu_g17p", true, {17, 'p', false}},
        {"applegpu_g18p", true, {18, 'p', true}},
        {"g", true, {0, 'g', false}},
        {"", true, {0, 0, false}},
        {"xyz", true, {0, 'z', false}},
        {"16s", false, {16, 's', false}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metal_gpu got = metal_gpu_of(cases[i].name, cases[i].system_has_nax);
        CHECK(got.generation == cases[i].gpu.generation &&
                  got.class_letter == cases[i].gpu.class_letter &&
                  got.has_nax == cases[i].gpu.has_nax,
              "%s: generation %d, class %c, nax %d", cases[i].name, got.generation,
              got.class_letter ? got.class_letter : '-', got.has_nax);
    }
}

/* ---- Kernels ---------------------------------------------------------------------------------
 */

static void expect(const struct metal_gpu *gpu, struct metal_product p, enum metal_kernel_name name,
                   enum metal_ours ours, enum metal_proof proof) {
    struct metal_mlx mlx = metal_matmul_rule(gpu, &p);
    struct metal_choice choice = metal_matmul_choice(gpu, &p);
    CHECK(mlx.name == name && choice.kernel == ours && choice.proof == proof,
          "g%d%c %lld x %lld x %lld: MLX %d, ours %d, proof %d", gpu->generation, gpu->class_letter,
          (long long)p.m, (long long)p.n, (long long)p.k, mlx.name, choice.kernel, choice.proof);
    CHECK(choice.why && *choice.why, "a choice has its reason");
}

static void test_one_row(void) {
    const struct metal_gpu *const all[] = {&m1, &m2_max, &m3_max, &m4, &m4_ultra, &m5, &m5_max};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool known = all[i]->generation == 15 || all[i]->generation == 16;
        expect(all[i], shape(1, 4096, 4096), METAL_GEMV, METAL_OURS_MATVEC,
               known ? METAL_PUBLISHED : METAL_EMULATED);
        expect(all[i], shape(1, 4096, 4100), METAL_GEMV, METAL_OURS_MATVEC, METAL_EMULATED);
        expect(all[i], shape(1, 4096, 64), METAL_GEMV, METAL_OURS_MATVEC_SHORT, METAL_EMULATED);
        expect(all[i], shape(1, 256, 4096), METAL_GEMV, METAL_OURS_MATVEC_LONG, METAL_EMULATED);
        expect(all[i], shape(1, 1, 4096), METAL_DOT, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
        expect(all[i], shape(1, 4096, 7), METAL_GEMV, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
        expect(all[i], shape(40, 1, 4096), METAL_GEMV, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
    }
    struct metal_product p = shape(1, 1, 256);
    p.has_bias = true; /* addmm knows no dot product */
    expect(&m4, p, METAL_GEMV, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
    p = shape(1, 4096, 4096);
    p.has_bias = true;
    expect(&m4, p, METAL_GEMV, METAL_OURS_MATVEC, METAL_EMULATED);
    p.w_stored_kn = true;
    expect(&m4, p, METAL_GEMV_T, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
    p = shape(1, 4096, 1 << 24);
    expect(&m4, p, METAL_GEMV, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
}

static void expect_gemv(struct metal_product p, int bm, int bn, int sm, int sn, int tm, int tn) {
    struct metal_mlx mlx = metal_matmul_rule(&m4, &p);
    CHECK(mlx.bm == bm && mlx.bn == bn && mlx.sm == sm && mlx.sn == sn && mlx.tm == tm &&
              mlx.tn == tn,
          "gemv of %lld x %lld: bm %d bn %d sm %d sn %d tm %d tn %d", (long long)p.n,
          (long long)p.k, mlx.bm, mlx.bn, mlx.sm, mlx.sn, mlx.tm, mlx.tn);
}

static void test_gemv(void) {
    expect_gemv(shape(1, 4096, 4096), 8, 1, 1, 32, 4, 4);
    expect_gemv(shape(1, 4095, 4096), 4, 1, 1, 32, 4, 4);
    expect_gemv(shape(1, 4096, 65), 8, 1, 1, 32, 4, 4);
    expect_gemv(shape(1, 4096, 64), 1, 1, 8, 4, 4, 4);
    expect_gemv(shape(1, 2, 64), 1, 1, 8, 4, 1, 4); /* K <= 64 before K >= 16 N */
    expect_gemv(shape(1, 256, 4096), 1, 8, 1, 32, 4, 4);
    expect_gemv(shape(1, 256, 4095), 4, 1, 1, 32, 4, 4);
    expect_gemv(shape(1, 3, 4096), 1, 8, 1, 32, 1, 4);

    struct metal_product p = shape(1, 2048, 8192);
    p.w_stored_kn = true;
    expect_gemv(p, 1, 16, 4, 8, 4, 4);
    p.n = 2047;
    expect_gemv(p, 1, 4, 8, 4, 4, 4);
    p.n = 511;
    expect_gemv(p, 1, 2, 8, 4, 4, 4);
    p.n = 3;
    expect_gemv(p, 1, 2, 8, 4, 4, 1);
}

static void test_wide(void) {
    static const struct {
        int64_t m, n;
        int passes, nvecs, nlanes, grid_x;
    } cases[] = {
        {2, 100, 1, 2, 32, 1},      {5, 100, 1, 5, 32, 1},   {6, 100, 2, 3, 16, 2},
        {9, 100, 2, 5, 16, 2},      {10, 100, 2, 5, 16, 2},  {11, 100, 3, 4, 16, 3},
        {15, 100, 3, 5, 16, 3},     {15, 64, 3, 5, 32, 3},   {6, 64, 2, 3, 32, 2},
        {6, 65, 2, 3, 16, 2},       {6, 65536, 2, 3, 16, 1}, {6, 65535, 2, 3, 16, 2},
        {13, 1 << 17, 3, 5, 16, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metal_product p = shape(cases[i].m, cases[i].n, 1024);
        struct metal_mlx mlx = metal_matmul_rule(&m3_max, &p);
        CHECK(mlx.name == METAL_GEMV_WIDE && mlx.passes == cases[i].passes &&
                  mlx.nvecs == cases[i].nvecs && mlx.nlanes == cases[i].nlanes &&
                  mlx.grid_x == cases[i].grid_x,
              "wide %lld x %lld: %d passes, %d rows, %d lanes, %d wide", (long long)p.m,
              (long long)p.n, mlx.passes, mlx.nvecs, mlx.nlanes, mlx.grid_x);
    }
    expect(&m3_max, shape(2, 4096, 4096), METAL_GEMV_WIDE, METAL_OURS_WIDE, METAL_EMULATED);
    expect(&m5_max, shape(15, 4096, 4096), METAL_GEMV_WIDE, METAL_OURS_WIDE, METAL_EMULATED);
    expect(&m3_max, shape(16, 6000, 512), METAL_FUSED, METAL_OURS_GEMM, METAL_PUBLISHED);
    expect(&m2_max, shape(2, 65536, 4096), METAL_FUSED, METAL_OURS_GEMM, METAL_EMULATED);
    expect(&m2_max, shape(2, 4096, 4096), METAL_SPLIT_K, METAL_OURS_GEMM_SPLIT, METAL_EMULATED);
    expect(&m3_max, shape(2, 4096, 4098), METAL_SPLIT_K, METAL_OURS_GEMM_SPLIT, METAL_EMULATED);
    struct metal_product p = shape(4, 4096, 4096);
    p.is_aligned = false;
    expect(&m3_max, p, METAL_SPLIT_K, METAL_OURS_GEMM_SPLIT, METAL_EMULATED);
    p = shape(4, 4096, 4096);
    p.x_transposed = true;
    expect(&m3_max, p, METAL_SPLIT_K, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
}

static void expect_tile(const struct metal_gpu *gpu, struct metal_product p, int bm, int bn, int bk,
                        int wm, int wn) {
    struct metal_mlx mlx = metal_matmul_rule(gpu, &p);
    CHECK(mlx.bm == bm && mlx.bn == bn && mlx.bk == bk && mlx.wm == wm && mlx.wn == wn,
          "g%d%c %lld x %lld x %lld: kernel %d, %d x %d x %d, %d x %d", gpu->generation,
          gpu->class_letter, (long long)p.m, (long long)p.n, (long long)p.k, mlx.name, mlx.bm,
          mlx.bn, mlx.bk, mlx.wm, mlx.wn);
}

static void test_tiles(void) {
    struct metal_product large = shape(512, 14336, 4096), transposed = large;
    transposed.w_stored_kn = true;
    expect_tile(&m1, large, 64, 32, 32, 2, 2);
    expect_tile(&m4, large, 64, 32, 32, 2, 2);
    expect_tile(&m4, transposed, 64, 64, 16, 1, 2);
    expect_tile(&m3_max, large, 64, 64, 16, 2, 2);
    expect_tile(&m5_old_system, large, 64, 64, 16, 2, 2);
    expect_tile(&m4_ultra, large, 64, 64, 16, 1, 2);
    expect_tile(&m4_ultra, shape(64, 16384, 4096), 64, 64, 16, 1, 2); /* 2^20, and 2 N > K */
    expect_tile(&m4_ultra, shape(63, 16384, 4096), 64, 32, 32, 2, 2);
    struct metal_product batch = shape(512, 2048, 4096);
    batch.batch = 2;
    expect_tile(&m4_ultra, batch, 64, 32, 32, 2, 2); /* 2 max(M, N) is not above K */
    batch.k = 4095;
    expect_tile(&m4_ultra, batch, 64, 64, 16, 1, 2);
    batch.k = 4096;
    batch.w_stored_kn = true;
    expect_tile(&m4_ultra, batch, 32, 64, 16, 1, 2);

    expect_tile(&m5, large, 128, 128, 512, 4, 4);
    expect_tile(&m5_max, large, 64, 128, 256, 2, 4);
    expect_tile(&m5_max, shape(512, 4096, 8192), 64, 128, 64, 2, 4);
    expect(&m5_max, large, METAL_NAX_FUSED, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
    expect(&m5_old_system, large, METAL_FUSED, METAL_OURS_GEMM, METAL_EMULATED);
    expect(&m4, large, METAL_FUSED, METAL_OURS_GEMM, METAL_PUBLISHED);
    large.k = 4112; /* K % 32: the rest comes first, which the package does not know */
    expect(&m4, large, METAL_FUSED, METAL_OURS_GEMM, METAL_EMULATED);
}

static void test_split(void) {
    static const struct {
        int64_t m, n, k;
        int bm, bn;
        int64_t nsplits, split_ncols;
    } cases[] = {
        {32, 4096, 4096, 16, 32, 2, 2048}, {16, 32, 2048, 16, 16, 32, 64},
        {40, 39, 1024, 32, 16, 16, 64},    {64, 64, 128, 32, 32, 2, 64},
        {16, 16, 144, 16, 16, 16, 0},      {100, 500, 1000, 32, 32, 2, 496},
        {33, 96, 4100, 16, 32, 32, 128},   {17, 31, 12288, 16, 16, 32, 384},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metal_product p = shape(cases[i].m, cases[i].n, cases[i].k);
        struct metal_mlx mlx = metal_matmul_rule(&m4, &p);
        CHECK(mlx.name == METAL_SPLIT_K && mlx.bm == cases[i].bm && mlx.bn == cases[i].bn &&
                  mlx.nsplits == cases[i].nsplits && mlx.split_ncols == cases[i].split_ncols,
              "split %lld x %lld x %lld: kernel %d, %d x %d, %lld of %lld", (long long)p.m,
              (long long)p.n, (long long)p.k, mlx.name, mlx.bm, mlx.bn, (long long)mlx.nsplits,
              (long long)mlx.split_ncols);
    }
    /* Its limits: tiles by class, eight steps of 16, K the longest side. */
    expect(&m4, shape(16, 16384, 16384), METAL_SPLIT_K, METAL_OURS_GEMM_SPLIT, METAL_EMULATED);
    expect(&m4, shape(17, 16384, 16384), METAL_FUSED, METAL_OURS_GEMM, METAL_PUBLISHED);
    expect(&m3_max, shape(17, 16384, 16384), METAL_SPLIT_K, METAL_OURS_GEMM_SPLIT, METAL_EMULATED);
    expect(&m4_ultra, shape(33, 16384, 16384), METAL_FUSED, METAL_OURS_GEMM, METAL_PUBLISHED);
    expect(&m4, shape(32, 64, 127), METAL_FUSED, METAL_OURS_GEMM, METAL_EMULATED);
    expect(&m4, shape(32, 64, 128), METAL_SPLIT_K, METAL_OURS_GEMM_SPLIT, METAL_EMULATED);
    expect(&m4, shape(32, 4097, 4096), METAL_FUSED, METAL_OURS_GEMM, METAL_PUBLISHED);
    struct metal_product batch = shape(32, 512, 4096);
    batch.batch = 2;
    expect(&m4, batch, METAL_FUSED, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
}

static void test_nax_split(void) {
    static const struct {
        int64_t m, n, k, nsplits, split_ncols;
        int bm, bk;
    } cases[] = {
        {256, 300, 901, 3, 450, 64, 256},  {256, 256, 1024, 2, 512, 64, 256},
        {64, 600, 2048, 2, 1024, 64, 256}, {64, 1000, 4096, 2, 2048, 64, 256},
        {64, 900, 8192, 2, 4096, 64, 256}, {700, 700, 14336, 4, 4096, 128, 512},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metal_product p = shape(cases[i].m, cases[i].n, cases[i].k);
        struct metal_mlx mlx = metal_matmul_rule(&m5_max, &p);
        CHECK(mlx.name == METAL_NAX_SPLIT_K && mlx.nsplits == cases[i].nsplits &&
                  mlx.split_ncols == cases[i].split_ncols && mlx.bm == cases[i].bm &&
                  mlx.bk == cases[i].bk,
              "nax split %lld x %lld x %lld: kernel %d, %lld of %lld, bm %d, bk %d", (long long)p.m,
              (long long)p.n, (long long)p.k, mlx.name, (long long)mlx.nsplits,
              (long long)mlx.split_ncols, mlx.bm, mlx.bk);
        expect(&m5_max, p, METAL_NAX_SPLIT_K, METAL_OURS_REBUILD, METAL_BY_CONSTRUCTION);
    }
    expect(&m5_max, shape(64, 1025, 3074), METAL_NAX_FUSED, METAL_OURS_REBUILD,
           METAL_BY_CONSTRUCTION);
    expect(&m5_max, shape(64, 1024, 2048), METAL_NAX_FUSED, METAL_OURS_REBUILD,
           METAL_BY_CONSTRUCTION);
}

/* ---- Experts ---------------------------------------------------------------------------------
 */

static void test_gather(void) {
    static const struct {
        const struct metal_gpu *gpu;
        struct metal_items items;
        enum metal_kernel_name name;
        enum metal_ours ours;
        enum metal_proof proof;
    } cases[] = {
        {&m4,
         {1, 704, 2816, true, true},
         METAL_GATHER_RHS,
         METAL_OURS_GEMM_EXPERTS,
         METAL_PUBLISHED},
        {&m4,
         {1, 704, 2820, true, true},
         METAL_GATHER_RHS,
         METAL_OURS_GEMM_EXPERTS,
         METAL_EMULATED},
        {&m1,
         {1, 704, 2816, true, true},
         METAL_GATHER_RHS,
         METAL_OURS_GEMM_EXPERTS,
         METAL_EMULATED},
        {&m5_max,
         {1, 704, 2816, true, true},
         METAL_NAX_GATHER_RHS,
         METAL_OURS_REBUILD,
         METAL_BY_CONSTRUCTION},
        {&m4, {1, 704, 2816, false, true}, METAL_GATHER_MV, METAL_OURS_GATHER, METAL_PUBLISHED},
        {&m5_max, {1, 704, 2816, false, true}, METAL_GATHER_MV, METAL_OURS_GATHER, METAL_EMULATED},
        {&m4, {1, 704, 64, false, true}, METAL_GATHER_MV, METAL_OURS_GATHER, METAL_EMULATED},
        {&m4, {1, 16, 4096, false, true}, METAL_GATHER_MV, METAL_OURS_GATHER, METAL_PUBLISHED},
        {&m4,
         {3, 1, 4096, false, true},
         METAL_GATHER_MV,
         METAL_OURS_REBUILD,
         METAL_BY_CONSTRUCTION},
        {&m4,
         {3, 704, 2816, false, true},
         METAL_GATHER_WIDE,
         METAL_OURS_REBUILD,
         METAL_BY_CONSTRUCTION},
        {&m4,
         {3, 704, 2816, false, false},
         METAL_GATHER_STEEL,
         METAL_OURS_REBUILD,
         METAL_BY_CONSTRUCTION},
        {&m1,
         {3, 704, 2816, false, true},
         METAL_GATHER_STEEL,
         METAL_OURS_REBUILD,
         METAL_BY_CONSTRUCTION},
        {&m5_max,
         {16, 704, 2816, false, true},
         METAL_GATHER_STEEL,
         METAL_OURS_REBUILD,
         METAL_BY_CONSTRUCTION},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metal_mlx mlx = metal_gather_rule(cases[i].gpu, &cases[i].items);
        struct metal_choice choice = metal_gather_choice(cases[i].gpu, &cases[i].items);
        CHECK(mlx.name == cases[i].name && choice.kernel == cases[i].ours &&
                  choice.proof == cases[i].proof,
              "gather %zu: MLX %d, ours %d, proof %d", i, mlx.name, choice.kernel, choice.proof);
    }
    struct metal_items narrow = {1, 16, 4096, false, true};
    struct metal_mlx mlx = metal_gather_rule(&m4, &narrow);
    CHECK(mlx.bn == 1 && mlx.sn == 32, "gathered products never split K over simdgroups");
}

/* ---- A second account ------------------------------------------------------------------------
 * Rows 1 to 7 of the order in which MLX asks, for x [m, k] and a matrix W [n, k], said once more.
 */

static enum metal_kernel_name naive_rule(const struct metal_gpu *gpu, int64_t m, int64_t n,
                                         int64_t k) {
    int64_t side = m > n ? m : n, tiles = ((m + 15) / 16) * ((n + 15) / 16);
    int64_t limit = strchr("sd", gpu->class_letter) ? 2048 : 1024;

    if (m == 1 && n == 1) return METAL_DOT;
    if (gpu->generation >= 15 && m >= 2 && m <= 15 && n > 1 && k % 4 == 0) return METAL_GEMV_WIDE;
    if (m == 1 || n == 1) return METAL_GEMV;
    if (gpu->has_nax) {
        if (k >= 3 * side || (side <= 1024 && k > 2 * side)) return METAL_NAX_SPLIT_K;
        return METAL_NAX_FUSED;
    }
    if (tiles <= limit && k / 16 >= 8 && k >= side) return METAL_SPLIT_K;
    return METAL_FUSED;
}

static void test_grid(void) {
    static const int64_t ms[] = {1, 2, 5, 6, 10, 15, 16, 17, 31, 32, 39, 40, 64, 100, 512, 4096};
    static const int64_t ns[] = {1, 2, 3, 16, 64, 65, 256, 704, 1024, 4095, 4096, 14336, 65536};
    static const int64_t ks[] = {8, 16, 64, 65, 127, 128, 144, 1000, 2816, 4096, 8192, 14336};
    const struct metal_gpu *const gpus[] = {&m1, &m2_max, &m3_max, &m4, &m4_ultra, &m5, &m5_max};
    for (size_t g = 0; g < 7; g++)
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
            for (size_t j = 0; j < sizeof ns / sizeof *ns; j++)
                for (size_t l = 0; l < sizeof ks / sizeof *ks; l++) {
                    struct metal_product p = shape(ms[i], ns[j], ks[l]);
                    enum metal_kernel_name want = naive_rule(gpus[g], p.m, p.n, p.k);
                    struct metal_mlx mlx = metal_matmul_rule(gpus[g], &p);
                    CHECK(mlx.name == want, "g%d%c %lld x %lld x %lld: %d, not %d",
                          gpus[g]->generation, gpus[g]->class_letter, (long long)p.m,
                          (long long)p.n, (long long)p.k, mlx.name, want);
                }
}

int main(void) {
    test_gpus();
    test_one_row();
    test_gemv();
    test_wide();
    test_tiles();
    test_split();
    test_nax_split();
    test_gather();
    test_grid();
    return check_end();
}
