/* Products with R4 weights are the sums of the definition, bit for bit: every kernel set, shapes
 * from one weight to several chunks of columns, rows and blocks, weights whose exponents have codes
 * or none, with bias and gaps between rows, and every array ending at unmapped memory. Kernels that
 * add in another order, or fuse what must not be fused, fail the same comparison.
 */
#include "base/team.h"
#include "check.h"
#include "cpu/r4_kernels.h"
#include "cpu/r4_product.h"
#include "r4/r4_plain.h"
#include "r4_samples.h"

enum { GAP = 0x5a5a };

/* Operands of the largest shape with k columns, and all sums. */
struct problem {
    const char *name;
    uint64_t seed;
    size_t m, k;
    struct sample w; /* rows of W */
    uint16_t *x, *bias;
    float *sums; /* [m][w.nrows] */
};

static struct problem problem_open(const struct generator *g, size_t m, size_t n, size_t k,
                                   uint64_t seed) {
    struct problem p = {.name = g->name,
                        .seed = seed,
                        .m = m,
                        .k = k,
                        .w = sample_open(g->name, n, k),
                        .x = malloc(2 * m * k + 1),
                        .bias = malloc(2 * n),
                        .sums = malloc(m * n * sizeof(float))};
    uint16_t *w = (uint16_t *)(void *)p.w.bf16;
    if (!p.x || !p.bias || !p.sums) exit(2);
    g->fill(&seed, p.x, m, w, n, k);
    p.w = sample_ranked(p.w);
    for (size_t r = 0; r < n; r++)
        p.bias[r] = random_bf16(&seed, 110, 130);
    for (size_t i = 0; i < m; i++)
        for (size_t r = 0; r < n; r++)
            p.sums[i * n + r] = chain(p.x + i * k, w + r * k, k);
    return p;
}

static void problem_close(struct problem *p) {
    sample_close(&p->w);
    free(p->x);
    free(p->bias);
    free(p->sums);
}

/* How a product is asked for. */
struct manner {
    enum code_choice codes;
    size_t x_gap, y_gap; /* elements between rows */
    bool has_bias;
};

static bool is_product(const struct problem *p, const struct manner *how, const uint16_t *y,
                       size_t m, size_t n) {
    size_t ldy = n + how->y_gap;
    for (size_t i = 0; i < m; i++) {
        for (size_t r = 0; r < n; r++) {
            float sum = p->sums[i * p->w.nrows + r];
            if (how->has_bias) sum += float_of(p->bias[r]);
            if (y[i * ldy + r] != nearest_bf16(sum)) return false;
        }
        for (size_t r = n; r < ldy && i + 1 < m; r++)
            if (y[i * ldy + r] != GAP) return false;
    }
    return true;
}

static struct guarded x_memory, y_memory, bias_memory; /* for the largest shape */

/* The first m rows of x times the weight, the first rows of W. */
static bool multiplies(const struct r4_means *means, const struct problem *p, const binade_r4 *w,
                       size_t m, const struct manner *how) {
    size_t n = w->rows, ldx = p->k + how->x_gap, ldy = n + how->y_gap;
    size_t x_nbytes = m ? 2 * ((m - 1) * ldx + p->k) : 0;
    size_t y_nbytes = m ? 2 * ((m - 1) * ldy + n) : 0;
    uint8_t *x = guarded_take(&x_memory, x_nbytes, 0), *y = guarded_take(&y_memory, y_nbytes, 0);
    uint8_t *bias = guarded_take(&bias_memory, 2 * n, 0);
    struct r4_operands operands = {.x = (void *)x,
                                   .bias = how->has_bias ? (void *)bias : NULL,
                                   .y = (void *)y,
                                   .ldx = ldx,
                                   .ldy = ldy};
    memcpy(bias, p->bias, 2 * n);
    for (size_t i = 0; i < m; i++)
        memcpy(x + 2 * i * ldx, p->x + i * p->k, 2 * p->k);
    r4_matmul(means, w, 0, &operands, m);
    return is_product(p, how, operands.y, m, n) && guarded_is_intact(&y_memory, y, y_nbytes);
}

/* Weights of the first n rows of W, encoded by the set itself. */
static struct guarded_r4 take_rows(const struct r4_means *means, const struct problem *p, size_t n,
                                   enum code_choice codes) {
    struct sample rows = p->w;
    uint64_t seed = n;
    rows.nrows = n;
    return guarded_r4_open(means->set, &rows, 1, codes, &seed);
}

static bool multiplies_shape(const struct r4_means *means, const struct problem *p, size_t m,
                             size_t n, const struct manner *how) {
    struct guarded_r4 w = take_rows(means, p, n, how->codes);
    bool ok = multiplies(means, p, &w.w, m, how);
    guarded_r4_close(&w);
    return ok;
}

/* ---- The grid -------------------------------------------------------------------------------- */

static const size_t grid_m[] = {0, 1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 100};
static const size_t grid_n[] = {1, 3, 8, 17, 64, 300};
static const size_t grid_k[] = {0, 1, 2, 3, 4, 5, 8, 64, 100, 127, 128, 129, 576, 704, 1536};
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Products of so many weights and rows of x take all the time, so that each is tried with a few of
 * the generators only. */
enum { LARGE = 1 << 20 };

static void test_problem(const struct problem *p) {
    unsigned turn = 0; /* so that manners meet all shapes */
    for (size_t s = 0; r4_kernels_at(s); s++) {
        for (size_t j = 0; j < COUNT_OF(grid_n); j++, turn++) {
            size_t n = grid_n[j];
            enum code_choice codes = (turn + (unsigned)p->k) % NCODE_CHOICES;
            struct r4_means means = {r4_kernels_at(s), 1};
            struct guarded_r4 w = take_rows(&means, p, n, codes);
            for (size_t i = 0; i < COUNT_OF(grid_m); i++, turn++) {
                if (grid_m[i] * n * p->k > LARGE && (i + p->seed) % 4) continue;
                struct manner how = {codes, turn % 3, turn % 5, turn % 2};
                means.nthreads = turn % 4 ? 1 : team_nthreads();
                CHECK(multiplies(&means, p, &w.w, grid_m[i], &how),
                      "%s, %s, M %zu, N %zu, K %zu, codes %u, bias %u, %u threads", means.set->name,
                      p->name, grid_m[i], n, p->k, codes, how.has_bias, means.nthreads);
            }
            guarded_r4_close(&w);
        }
    }
}

static void test_grid(void) {
    for (size_t i = 0; i < COUNT_OF(grid_k); i++) {
        for (size_t g = 0; g < NGENERATORS; g++) {
            struct problem p = problem_open(&generators[g], 100, 300, grid_k[i], 100 * i + g);
            test_problem(&p);
            problem_close(&p);
        }
    }
}

/* More columns, rows of x, and blocks than one task or one chunk takes. */
static void test_large_shapes(void) {
    static const size_t shapes[][3] = {{1, 20, 20001}, {3, 33, 9001}, {520, 70, 260}, {1, 2100, 9}};
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const size_t *s = shapes[i];
        struct problem p = problem_open(&generators[2], s[0], s[1], s[2], i);
        for (size_t k = 0; r4_kernels_at(k); k++) {
            struct r4_means means = {r4_kernels_at(k), team_nthreads()};
            struct manner how = {.codes = CODES_BY_RANK, .has_bias = true};
            CHECK(multiplies_shape(&means, &p, s[0], s[1], &how), "%s, M %zu, N %zu, K %zu",
                  means.set->name, s[0], s[1], s[2]);
        }
        problem_close(&p);
    }
}

/* ---- Wrong kernels ------------------------------------------------------------------------------
 * Each is right but for one thing. They stand in for the plain set, whose decoding they use.
 */

static void reversed_gemm(const float *w, size_t nblocks, size_t ncols, const float *x, size_t ldx,
                          size_t nrows, float *sums) {
    for (size_t col = ncols; col-- > 0;)
        r4_gemm_plain(w + col * R4_PANEL, nblocks, 1, x + col, ldx, nrows, sums);
}

/* A sum for every eighth column, added up at the end of each chunk, as dot products like to. */
static void partial_sums_gemm(const float *w, size_t nblocks, size_t ncols, const float *x,
                              size_t ldx, size_t nrows, float *sums) {
    float parts[8][R4_PANEL];
    for (size_t m = 0; m < nrows; m++) {
        memset(parts, 0, sizeof parts);
        for (size_t col = 0; col < ncols; col++)
            r4_gemm_plain(w + col * R4_PANEL, nblocks, 1, x + m * ldx + col, ldx, 1,
                          parts[col % 8]);
        for (size_t part = 0; part < 8; part++)
            for (size_t r = 0; r < nblocks * R4_NROWS; r++)
                sums[m * R4_PANEL + r] += parts[part][r];
    }
}

/* Columns in pairs, the second first. */
static void swapping_matvec(const struct r4_lookup *lookup, const uint8_t *groups,
                            size_t block_nbytes, const uint8_t **escapes, size_t nblocks,
                            const float *x, size_t ncols, float *sums) {
    for (size_t col = 0; col < ncols; col += R4_NCOLS) {
        float swapped[R4_NCOLS] = {0}, w[R4_NCOLS][R4_NROWS];
        for (size_t i = 0; i < ncols - col && i < R4_NCOLS; i++)
            swapped[i] = x[col + i];
        for (size_t b = 0; b < nblocks; b++) {
            const uint8_t *group = groups + b * block_nbytes + col / R4_NCOLS * R4_NBYTES;
            r4_decode_plain(lookup, group, 1, &escapes[b], w[0], R4_NROWS);
            for (size_t i = 0; i < R4_NCOLS; i++)
                for (size_t r = 0; r < R4_NROWS; r++)
                    sums[b * R4_NROWS + r] += swapped[i ^ 1] * w[i ^ 1][r];
        }
    }
}

/* Fused where the definition is not, and the other way round. */
static void other_rounding_gemm(const float *w, size_t nblocks, size_t ncols, const float *x,
                                size_t ldx, size_t nrows, float *sums) {
    for (size_t m = 0; m < nrows; m++) {
        for (size_t col = 0; col < ncols; col++) {
            for (size_t r = 0; r < nblocks * R4_NROWS; r++) {
                float *sum = &sums[m * R4_PANEL + r], factor = x[m * ldx + col];
                float weight = w[col * R4_PANEL + r];
#if defined(__aarch64__)
                volatile float product = factor * weight;
                *sum += product;
#else
                *sum = __builtin_fmaf(factor, weight, *sum);
#endif
            }
        }
    }
}

static void test_wrong_kernels(void) {
    static const struct {
        const char *name, *generator;
        r4_gemm_kernel *gemm;
        r4_matvec_kernel *matvec;
    } wrongs[] = {
        {"reversed", "pairs", reversed_gemm, NULL},
        {"reversed", "powers in w", reversed_gemm, NULL},
        {"reversed", "powers in x", reversed_gemm, NULL},
        {"partial sums", "pairs", partial_sums_gemm, NULL},
        {"partial sums", "powers in w", partial_sums_gemm, NULL},
        {"partial sums", "powers in x", partial_sums_gemm, NULL},
        {"other rounding", "tiny", other_rounding_gemm, NULL},
        {"other rounding", "huge", other_rounding_gemm, NULL},
        {"swapping", "pairs", NULL, swapping_matvec},
        {"swapping", "powers in w", NULL, swapping_matvec},
        {"swapping", "powers in x", NULL, swapping_matvec},
    };
    for (size_t i = 0; i < COUNT_OF(wrongs); i++) {
        size_t g = 0, last = 0;
        while (strcmp(generators[g].name, wrongs[i].generator) != 0)
            g++;
        while (r4_kernels_at(last + 1))
            last++;
        struct r4_kernels wrong = *r4_kernels_at(last), right = wrong;
        size_t m = wrongs[i].gemm ? 8 : 1;
        if (wrongs[i].gemm) wrong.gemm = wrongs[i].gemm;
        if (wrongs[i].matvec) wrong.matvec = wrongs[i].matvec;
        struct r4_means means = {&right, 1};
        struct manner how = {.codes = CODES_BY_RANK};
        struct problem p = problem_open(&generators[g], 8, 17, 100, i);
        CHECK(multiplies_shape(&means, &p, m, 17, &how), "plain, %s", wrongs[i].generator);
        means.set = &wrong;
        CHECK(!multiplies_shape(&means, &p, m, 17, &how), "%s kernel not caught by %s",
              wrongs[i].name, wrongs[i].generator);
        problem_close(&p);
    }
}

int main(void) {
    setenv("BINADE_NUM_THREADS", "3", 1);
    x_memory = guarded_open(1 << 20);
    y_memory = guarded_open(1 << 20);
    bias_memory = guarded_open(1 << 14);
    test_grid();
    test_large_shapes();
    test_wrong_kernels();
    return check_end();
}
