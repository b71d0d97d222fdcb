/* R4 holds every weight: each kernel set makes the bytes that the layout says, rows and rebuilt
 * ranges are the weights that went in, for all patterns, any shape, and exponents with codes or
 * without; and the number of threads changes nothing.
 */
#include "base/team.h"
#include "check.h"
#include "cpu/r4_kernels.h"
#include "cpu/r4_product.h"
#include "r4_samples.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const size_t shapes[][3] = {
    {1, 1, 1},   {1, 1, 4},    {1, 16, 4},    {1, 17, 5},    {1, 15, 63}, {1, 33, 64},
    {1, 48, 65}, {1, 16, 300}, {3, 5, 7},     {2, 16, 130},  {5, 33, 31}, {1, 2, 1000},
    {1, 64, 96}, {1, 16, 127}, {1, 100, 129}, {1, 256, 256},
};

/* The shape's weights from a sample of at least as many. */
static struct sample reshape(struct sample from, size_t nrows, size_t ncols) {
    struct sample s = sample_open("all patterns", nrows, ncols);
    memcpy(s.bf16, from.bf16, 2 * nrows * ncols);
    sample_close(&from);
    return sample_ranked(s);
}

enum { NSAMPLES = 6 };
static struct sample sample_at(unsigned i, size_t nrows, size_t ncols) {
    switch (i) {
    case 0:
        return sample_normal(nrows, ncols, i);
    case 1:
        return sample_random_bits(nrows, ncols, i);
    case 2:
        return reshape(sample_all_patterns(256), nrows, ncols);
    case 3:
        return sample_sparse(nrows, ncols, i);
    case 4:
        return sample_constant(nrows, ncols, 0x8000);
    default:
        return sample_constant(nrows, ncols, 0xffff);
    }
}

/* ---- Layout -----------------------------------------------------------------------------------
 */

/* Reads the weight as the layout says, without any code of the library but r4_layout.h. */
static bool holds(const binade_r4 *w, const struct sample *s) {
    size_t nblocks = r4_nblocks(w), ngroups = r4_block_nbytes(w) / R4_NBYTES;
    size_t nescapes = 0;
    for (size_t b = 0; b < w->nexperts * nblocks; b++) {
        if (w->escape_starts[b] != nescapes) return false;
        for (size_t i = 0; i < ngroups * R4_NWEIGHTS; i++) {
            const uint8_t *group = w->groups + (b * ngroups + i / R4_NWEIGHTS) * R4_NBYTES;
            unsigned p = i % R4_NWEIGHTS, code = r4_code(group, p);
            size_t row = b % nblocks * R4_NROWS + r4_row(p);
            size_t col = i / R4_NWEIGHTS * R4_NCOLS + r4_col(p);
            if (row >= w->rows || col >= w->cols) {
                if (code != 0 || group[p] != 0) return false;
                continue;
            }
            uint8_t e = code == R4_ESCAPE ? w->escapes[nescapes++] : w->exponents[code];
            size_t at = (b / nblocks * w->rows + row) * w->cols + col;
            if (bf16_join(e, group[p]) != bf16_load(s->bf16, at)) return false;
        }
    }
    return w->escape_starts[w->nexperts * nblocks] == nescapes;
}

/* ---- Reading ------------------------------------------------------------------------------------
 */

static bool rebuilds(const struct r4_means *means, const binade_r4 *w, const struct sample *s,
                     size_t expert, size_t row0, size_t row1) {
    size_t nbytes = 2 * (row1 - row0) * w->cols;
    struct guarded memory = guarded_open(nbytes);
    uint8_t *out = guarded_take(&memory, nbytes, 0);
    r4_rebuild(means, w, expert, row0, row1, (void *)out);
    bool ok = memcmp(out, s->bf16 + 2 * (expert * w->rows + row0) * w->cols, nbytes) == 0 &&
              guarded_is_intact(&memory, out, nbytes);
    guarded_close(&memory);
    return ok;
}

static bool reads_rows(const struct r4_means *means, const binade_r4 *w, const struct sample *s,
                       size_t n, uint64_t seed) {
    size_t row_nbytes = 2 * w->cols;
    uint32_t *ids = malloc(n * sizeof *ids + 1);
    struct guarded memory = guarded_open(n * row_nbytes);
    uint8_t *out = guarded_take(&memory, n * row_nbytes, 0);
    if (!ids) exit(2);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)random_below(&seed, w->rows);
    r4_rows(means, w, ids, n, (void *)out);
    bool ok = guarded_is_intact(&memory, out, n * row_nbytes);
    for (size_t i = 0; i < n; i++)
        ok &= memcmp(out + i * row_nbytes, s->bf16 + ids[i] * row_nbytes, row_nbytes) == 0;
    guarded_close(&memory);
    free(ids);
    return ok;
}

static void test_reading(const struct r4_means *means, const binade_r4 *w, const struct sample *s,
                         const char *name) {
    uint64_t seed = w->rows;
    for (size_t e = 0; e < w->nexperts; e++) {
        CHECK(rebuilds(means, w, s, e, 0, w->rows), "%s, %s: expert %zu rebuilt", name, s->name, e);
        for (unsigned i = 0; i < 5; i++) {
            size_t a = random_below(&seed, w->rows + 1), b = random_below(&seed, w->rows + 1);
            CHECK(rebuilds(means, w, s, e, a < b ? a : b, a < b ? b : a),
                  "%s, %s: expert %zu, rows %zu, %zu", name, s->name, e, a, b);
        }
    }
    CHECK(reads_rows(means, w, s, 0, 0), "%s, %s: no rows", name, s->name);
    CHECK(reads_rows(means, w, s, 40, seed), "%s, %s: rows", name, s->name);
}

static void test_set(const struct r4_kernels *set) {
    uint64_t seed = 1;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const size_t *shape = shapes[i];
        for (unsigned kind = 0; kind < NSAMPLES; kind++) {
            struct sample s = sample_at(kind, shape[0] * shape[1], shape[2]);
            for (unsigned codes = 0; codes < NCODE_CHOICES; codes++) {
                struct guarded_r4 g = guarded_r4_open(set, &s, shape[0], codes, &seed);
                struct r4_means means = {set, 1 + codes % 2 * 2};
                CHECK(holds(&g.w, &s), "%s, %s, codes %u: layout", set->name, s.name, codes);
                test_reading(&means, &g.w, &s, set->name);
                guarded_r4_close(&g);
            }
            sample_close(&s);
        }
    }
}

/* Encoders read weights that end at unmapped memory, and leave the bytes behind a block alone. */
static void test_encoder_bounds(const struct r4_kernels *set) {
    uint8_t code_of[256];
    for (unsigned e = 0; e < 256; e++)
        code_of[e] = e % 17 < 15 ? (uint8_t)(e % 17) : R4_ESCAPE;
    for (size_t ncols = 1; ncols <= 200; ncols++) {
        size_t nrows = 1 + ncols % 16, nbytes = (ncols + 3) / 4 * R4_NBYTES;
        struct sample s = sample_random_bits(nrows, ncols, ncols);
        struct guarded bf16, groups = guarded_open(nbytes), escapes = guarded_open(nrows * ncols);
        uint8_t *to = guarded_take(&groups, nbytes, 0);
        uint8_t *escapes_at = guarded_take(&escapes, nrows * ncols, 0), *end = escapes_at;
        const uint8_t *from = guarded_copy(&bf16, s.bf16, 2 * nrows * ncols);
        set->encode(from, 2 * ncols, nrows, ncols, code_of, to, &end);
        CHECK(guarded_is_intact(&groups, to, nbytes), "%s: groups of %zu columns", set->name,
              ncols);
        CHECK(guarded_is_intact(&escapes, escapes_at, nrows * ncols), "%s: escapes of %zu columns",
              set->name, ncols);
        guarded_close(&bf16);
        guarded_close(&groups);
        guarded_close(&escapes);
        sample_close(&s);
    }
}

/* ---- Making
 * --------------------------------------------------------------------------------------- */

static void test_make(void) {
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const size_t *shape = shapes[i];
        for (unsigned kind = 0; kind < NSAMPLES; kind++) {
            struct sample s = sample_at(kind, shape[0] * shape[1], shape[2]);
            binade_r4 w;
            binade_error err;
            CHECK(binade_r4_make((void *)s.bf16, shape[0], shape[1], shape[2], 2, &w, &err) ==
                          BINADE_OK &&
                      holds(&w, &s) && memcmp(w.exponents, s.table, 15) == 0 &&
                      w.exponents[15] == 0,
                  "made of %s", s.name);
            binade_r4_free(&w);
            CHECK(!w.groups && !w.escapes, "freed");
            binade_r4_free(&w);
            sample_close(&s);
        }
    }
}

/* Many tasks, so that threads must join their escapes in order. */
static void test_making_in_parallel(void) {
    struct sample s = sample_random_bits(3 * 700, 1000, 7);
    for (unsigned nthreads = 1; nthreads < 5; nthreads++) {
        binade_r4 w;
        CHECK(binade_r4_make((void *)s.bf16, 3, 700, 1000, nthreads, &w, NULL) == BINADE_OK &&
                  holds(&w, &s),
              "made by %u threads", nthreads);
        struct r4_means means = r4_default_means();
        CHECK(rebuilds(&means, &w, &s, 2, 0, 700), "rebuilt by %u threads", means.nthreads);
        CHECK(reads_rows(&means, &w, &s, 3000, 1), "rows by %u threads", means.nthreads);
        binade_r4_free(&w);
    }
    sample_close(&s);
}

static void test_empty_and_excessive(void) {
    static const uint64_t empty[][3] = {{0, 5, 5}, {1, 0, 5}, {1, 5, 0}, {0, 0, 0}};
    uint16_t none = 0;
    binade_error err;
    binade_r4 w;
    for (size_t i = 0; i < COUNT_OF(empty); i++) {
        const uint64_t *s = empty[i];
        CHECK(binade_r4_make(&none, s[0], s[1], s[2], 1, &w, &err) == BINADE_OK && w.groups,
              "empty weight %zu", i);
        binade_r4_free(&w);
    }
    size_t nbytes = 0;
    CHECK(binade_r4_groups_nbytes(2, 17, 5, &nbytes, &err) == BINADE_OK && nbytes == 2 * 2 * 2 * 96,
          "bytes of two experts");
    CHECK(binade_r4_groups_nbytes(1, UINT64_MAX, UINT64_MAX, &nbytes, &err) == BINADE_E_USAGE,
          "more than memory");
    CHECK(binade_r4_make(&none, UINT64_MAX / 2, 3, 5, 1, &w, &err) == BINADE_E_USAGE && !w.groups,
          "more than memory");
}

int main(void) {
    setenv("BINADE_NUM_THREADS", "3", 1);
    for (size_t i = 0; r4_kernels_at(i); i++) {
        test_set(r4_kernels_at(i));
        test_encoder_bounds(r4_kernels_at(i));
    }
    test_make();
    test_making_in_parallel();
    test_empty_and_excessive();
    return check_end();
}
