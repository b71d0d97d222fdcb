/* A gather gives each item its expert's product, whatever the order of experts; and products do not
 * change with the number of threads, or with calls from several threads at once.
 */
#include <fenv.h>
#include <pthread.h>
#include <time.h>

#include "base/team.h"
#include "check.h"
#include "cpu/r4_kernels.h"
#include "cpu/r4_product.h"
#include "r4_samples.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* ---- Gather -----------------------------------------------------------------------------------
 */

struct gather {
    size_t nexperts, rows, cols, nx, n;
    bool is_sorted, has_x_rows;
};

static int compare_ids(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool gathers(const struct r4_means *means, const struct gather *g, const struct sample *s,
                    const binade_r4 *w, const uint16_t *x, uint64_t seed) {
    size_t ldy = g->rows + 3;
    uint32_t *experts = malloc(4 * g->n + 1), *x_rows = malloc(4 * g->n + 1);
    uint16_t *y = calloc(g->n * ldy + 1, 2);
    struct r4_operands operands = {.x = x, .y = y, .ldx = g->cols, .ldy = ldy};
    bool ok = true;
    if (!experts || !x_rows || !y) exit(2);
    for (size_t i = 0; i < g->n; i++) {
        experts[i] = (uint32_t)random_below(&seed, g->nexperts);
        x_rows[i] = (uint32_t)random_below(&seed, g->nx);
    }
    if (g->is_sorted) qsort(experts, g->n, sizeof *experts, compare_ids);
    r4_gather(means, w, &operands, g->has_x_rows ? x_rows : NULL, experts, g->n);
    for (size_t i = 0; i < g->n; i++) {
        const uint16_t *x_row = x + (g->has_x_rows ? x_rows[i] : i) * g->cols;
        for (size_t r = 0; r < g->rows; r++) {
            size_t row = experts[i] * g->rows + r;
            const uint16_t *w_row = (const uint16_t *)(void *)s->bf16 + row * g->cols;
            ok &= y[i * ldy + r] == nearest_bf16(chain(x_row, w_row, g->cols));
        }
        for (size_t r = g->rows; r < ldy; r++)
            ok &= y[i * ldy + r] == 0;
    }
    free(experts);
    free(x_rows);
    free(y);
    return ok;
}

static void test_gather(const struct gather *g) {
    uint64_t seed = g->n;
    struct sample s = sample_open("pairs", g->nexperts * g->rows, g->cols);
    uint16_t *x = malloc(2 * g->nx * g->cols + 1);
    if (!x) exit(2);
    fill_pairs(&seed, x, g->nx, (void *)s.bf16, s.nrows, g->cols);
    s = sample_ranked(s);
    for (size_t i = 0; r4_kernels_at(i); i++) {
        struct guarded_r4 w =
            guarded_r4_open(r4_kernels_at(i), &s, g->nexperts, CODES_BY_RANK, &seed);
        for (unsigned nthreads = 1; nthreads <= 3; nthreads += 2) {
            struct r4_means means = {r4_kernels_at(i), nthreads};
            CHECK(gathers(&means, g, &s, &w.w, x, seed),
                  "%s, %zu experts, %zu x %zu, %zu items, sorted %u, rows chosen %u, %u threads",
                  means.set->name, g->nexperts, g->rows, g->cols, g->n, g->is_sorted, g->has_x_rows,
                  nthreads);
        }
        guarded_r4_close(&w);
    }
    sample_close(&s);
    free(x);
}

static void test_gathers(void) {
    static const struct gather shapes[] = {
        {4, 20, 64, 9, 0, false, true},       {1, 20, 64, 9, 7, false, true},
        {8, 33, 100, 5, 8, false, true},      {8, 33, 100, 64, 64, false, false},
        {8, 48, 36, 40, 300, false, true},    {8, 48, 36, 40, 300, true, true},
        {8, 48, 36, 300, 300, true, false},   {700, 5, 3, 9, 900, false, true},
        {700, 5, 3, 900, 900, true, false},   {3, 4, 5, 50, 9000, false, true},
        {3, 4, 5, 50, 9000, true, true},      {70000, 1, 2, 30, 200, false, true},
        {16, 256, 128, 20, 160, false, true},
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        test_gather(&shapes[i]);
}

/* ---- Threads ------------------------------------------------------------------------------------
 */

/* A product by the public functions, right or not. */
struct work {
    struct sample s;
    binade_r4 w;
    uint16_t *x, *expected; /* [M][K], [M][R] */
};
enum { WORK_M = 7, WORK_R = 400, WORK_K = 96 };

static struct work work_open(void) {
    uint64_t seed = 5;
    struct work w = {.s = sample_open("pairs", WORK_R, WORK_K),
                     .x = malloc(2 * WORK_M * WORK_K),
                     .expected = malloc(2 * WORK_M * WORK_R)};
    uint16_t *weights = (void *)w.s.bf16;
    if (!w.x || !w.expected) exit(2);
    fill_pairs(&seed, w.x, WORK_M, weights, WORK_R, WORK_K);
    for (size_t m = 0; m < WORK_M; m++)
        for (size_t r = 0; r < WORK_R; r++)
            w.expected[m * WORK_R + r] =
                nearest_bf16(chain(w.x + m * WORK_K, weights + r * WORK_K, WORK_K));
    if (binade_r4_make(weights, 1, WORK_R, WORK_K, 1, &w.w, NULL)) exit(2);
    return w;
}

static void work_close(struct work *w) {
    sample_close(&w->s);
    binade_r4_free(&w->w);
    free(w->x);
    free(w->expected);
}

static bool work_is_right(const struct work *w, size_t m) {
    uint16_t y[WORK_M * WORK_R];
    binade_r4_matmul(&w->w, 0, w->x, m, WORK_K, NULL, y, WORK_R);
    return memcmp(y, w->expected, 2 * m * WORK_R) == 0;
}

static void *work_often(void *user) {
    size_t nwrong = 0;
    for (unsigned i = 0; i < 300; i++)
        nwrong += !work_is_right(user, 1 + i % WORK_M);
    return (void *)nwrong;
}

static void test_callers(struct work *w) {
    pthread_t callers[3];
    for (size_t i = 0; i < COUNT_OF(callers); i++)
        if (pthread_create(&callers[i], NULL, work_often, w)) exit(2);
    for (size_t i = 0; i < COUNT_OF(callers); i++) {
        void *nwrong;
        pthread_join(callers[i], &nwrong);
        CHECK(nwrong == NULL, "caller %zu: %zu products of 300 wrong", i, (size_t)nwrong);
    }
}

/* The threads fall asleep between these. */
static void test_pauses(struct work *w) {
    for (unsigned i = 0; i < 50; i++) {
        const struct timespec pause = {0, 200000};
        nanosleep(&pause, NULL);
        CHECK(work_is_right(w, WORK_M), "after a pause");
    }
}

/* Threads round as their caller does. */
static void test_rounding(void) {
    static const int modes[] = {FE_TOWARDZERO, FE_UPWARD, FE_TONEAREST};
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        fesetround(modes[i]);
        struct work w = work_open();
        for (unsigned k = 0; k < 20; k++)
            CHECK(work_is_right(&w, WORK_M), "rounding mode %zu", i);
        work_close(&w);
    }
}

int main(void) {
    setenv("BINADE_NUM_THREADS", "3", 1);
    CHECK(team_nthreads() == 3, "%u threads", team_nthreads());
    test_gathers();
    struct work w = work_open();
    test_pauses(&w);
    test_callers(&w);
    work_close(&w);
    test_rounding();
    return check_end();
}
