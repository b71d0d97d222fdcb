/* bench_r4.c - times products with an R4 weight, and making and loading R4; prints JSON.
 *
 *   bench_r4 ROWS COLS [PACKED]
 *
 * BINADE_CPU and BINADE_NUM_THREADS in the environment choose kernels and threads. Times are the
 * best of at least three, in seconds. PACKED is a packed checkpoint, all of which is loaded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "binade_r4.h"

enum { NREPEATS_LEAST = 3 };
static const double seconds_least = 0.5;
static const size_t ms[] = {1, 2, 4, 8, 16, 32, 64, 128, 512};
enum { NMS = sizeof ms / sizeof *ms };

static unsigned nthreads; /* 0: one per CPU */

static void stop(const char *message) {
    fprintf(stderr, "bench_r4: %s\n", message);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_of(void (*run)(void *user), void *user) {
    double start = now(), best = 1e30;
    for (unsigned i = 0; i < NREPEATS_LEAST || now() - start < seconds_least; i++) {
        double before = now();
        run(user);
        double seconds = now() - before;
        if (seconds < best) best = seconds;
    }
    return best;
}

/* Weights of many sizes, as models have them: the product of two uniform numbers. */
static uint16_t *random_weights(size_t n) {
    uint16_t *weights = malloc(2 * n);
    uint64_t state = 1;
    if (!weights) stop("out of memory");
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        float a = (float)(int32_t)(state >> 32) * 0x1p-31f, b = (float)(state >> 8 & 0xffff);
        float weight = a * b * 0x1p-20f;
        uint32_t bits;
        memcpy(&bits, &weight, sizeof bits);
        weights[i] = (uint16_t)(bits >> 16);
    }
    return weights;
}

struct product {
    const binade_r4 *w;
    const uint16_t *x;
    uint16_t *y;
    size_t m;
};

static void run_product(void *user) {
    const struct product *p = user;
    binade_r4_matmul(p->w, 0, p->x, p->m, (size_t)p->w->cols, NULL, p->y, (size_t)p->w->rows);
}

static void print_products(const binade_r4 *w) {
    size_t m_most = ms[NMS - 1];
    uint16_t *x = random_weights(m_most * w->cols), *y = malloc(2 * m_most * w->rows);
    if (!y) stop("out of memory");
    printf("  \"products\": [\n");
    for (size_t i = 0; i < NMS; i++) {
        struct product p = {w, x, y, ms[i]};
        double seconds = best_of(run_product, &p);
        double nweights = (double)w->rows * (double)w->cols;
        printf("    {\"m\": %zu, \"seconds\": %.9f, \"bf16_gb_per_s\": %.2f, \"gflops\": %.2f}%s\n",
               p.m, seconds, 2e-9 * nweights / seconds, 2e-9 * nweights * (double)p.m / seconds,
               i + 1 < NMS ? "," : "");
    }
    printf("  ]");
    free(x);
    free(y);
}

struct making {
    const uint16_t *weights;
    uint64_t rows, cols;
};

static void run_make(void *user) {
    const struct making *m = user;
    binade_r4 w;
    binade_error err;
    if (binade_r4_make(m->weights, 1, m->rows, m->cols, nthreads, &w, &err)) stop(err.message);
    binade_r4_free(&w);
}

struct loading {
    const char *packed;
    uint64_t nbytes; /* of BF16 */
};

static void run_load(void *user) {
    struct loading *l = user;
    binade_checkpoint *c;
    binade_error err;
    l->nbytes = 0;
    if (binade_open(l->packed, NULL, &c, &err)) stop(err.message);
    for (size_t i = 0; i < binade_count(c); i++) {
        binade_tensor t;
        binade_r4 w;
        binade_get(c, i, &t);
        if (!t.packed) continue;
        if (binade_r4_load(c, i, 0, t.shape[t.ndim - 2], nthreads, &w, &err)) stop(err.message);
        l->nbytes += t.nbytes;
        binade_r4_free(&w);
    }
    binade_close(c);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4) stop("usage: bench_r4 ROWS COLS [PACKED]");
    const char *limit = getenv("BINADE_NUM_THREADS");
    struct making m = {NULL, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10)};
    uint16_t *weights = random_weights((size_t)(m.rows * m.cols));
    binade_r4 w;
    binade_error err;

    nthreads = limit ? (unsigned)atoi(limit) : 0;
    m.weights = weights;
    if (binade_r4_make(weights, 1, m.rows, m.cols, nthreads, &w, &err)) stop(err.message);
    printf("{\n  \"cpu\": \"%s\", \"threads\": %u, \"rows\": %zu, \"cols\": %zu,\n", binade_cpu(),
           nthreads, (size_t)m.rows, (size_t)m.cols);
    print_products(&w);
    printf(",\n  \"make_seconds\": %.6f", best_of(run_make, &m));
    if (argc == 4) {
        struct loading l = {argv[3], 0};
        double seconds = best_of(run_load, &l);
        printf(",\n  \"load_seconds\": %.6f, \"load_nbytes\": %llu, \"load_gb_per_s\": %.2f",
               seconds, (unsigned long long)l.nbytes, 1e-9 * (double)l.nbytes / seconds);
    }
    printf("\n}\n");
    binade_r4_free(&w);
    free(weights);
    return 0;
}
