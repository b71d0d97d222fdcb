/* Loading a packed tensor gives what binade_r4_make gives of its weights, whichever the format, the
 * number of threads and the shape, rows longer than a piece included; ranges of rows hold those
 * rows of every expert; and what cannot be loaded is refused in a sentence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "binade_r4.h"
#include "samples.h"
#include "tree.h"

static const struct tensor {
    const char *name;
    size_t nexperts, rows, cols; /* nexperts 0: two dimensions */
} tensors[] = {
    {"normal", 0, 576, 1536},       {"wide", 0, 192, 576},       {"straddling", 0, 40, 9000},
    {"long", 0, 19, 140001},        {"single_row", 0, 1, 300},   {"long_row", 0, 1, 262144},
    {"columns", 0, 3000, 1},        {"experts", 5, 33, 640},     {"small_experts", 9, 2, 7},
    {"large_experts", 3, 600, 700}, {"many_rows", 0, 40000, 65},
};
enum { NTENSORS = sizeof tensors / sizeof *tensors };

struct model {
    char *root;
    struct sample weights[NTENSORS];
    const char *packed[2]; /* in format 1 and 2 */
};

static struct sample make_weights(size_t i) {
    size_t n = tensors[i].nexperts ? tensors[i].nexperts : 1, rows = n * tensors[i].rows;
    switch (i % 3) {
    case 0:
        return sample_normal(rows, tensors[i].cols, i);
    case 1:
        return sample_random_bits(rows, tensors[i].cols, i);
    default:
        return sample_sparse(rows, tensors[i].cols, i);
    }
}

/* A checkpoint of one file; its last tensor is not BF16. */
static void write_model(const struct model *m, const char *path) {
    char header[4096];
    size_t at = 0, end = 0;
    int n = snprintf(header, sizeof header, "{");
    for (size_t i = 0; i < NTENSORS; i++) {
        const struct tensor *t = &tensors[i];
        end += 2 * m->weights[i].nrows * m->weights[i].ncols;
        n += snprintf(header + n, sizeof header - (size_t)n,
                      "\"%s\":{\"dtype\":\"BF16\",\"shape\":[", t->name);
        if (t->nexperts) n += snprintf(header + n, sizeof header - (size_t)n, "%zu,", t->nexperts);
        n += snprintf(header + n, sizeof header - (size_t)n,
                      "%zu,%zu],\"data_offsets\":[%zu,%zu]},", t->rows, t->cols, at, end);
        at = end;
    }
    n += snprintf(header + n, sizeof header - (size_t)n,
                  "\"bytes\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[%zu,%zu]}}", end,
                  end + 4);
    assert_true((size_t)n < sizeof header);
    uint8_t length[8] = {(uint8_t)n, (uint8_t)(n >> 8)};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(length, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, (size_t)n, file), n);
    for (size_t i = 0; i < NTENSORS; i++) {
        size_t nweights = m->weights[i].nrows * m->weights[i].ncols;
        assert_int_equal(fwrite(m->weights[i].bf16, 2, nweights, file), nweights);
    }
    assert_int_equal(fwrite("1234", 1, 4, file), 4);
    assert_int_equal(fclose(file), 0);
}

static int open_model(void **state) {
    static struct model m;
    static char packed[2][4096];
    m.root = tree_make();
    for (size_t i = 0; i < NTENSORS; i++)
        m.weights[i] = make_weights(i);
    tree_mkdir(m.root, "model");
    tree_put(m.root, "model/config.json", "{}");
    write_model(&m, tree_path(m.root, "model/model.safetensors"));
    for (int format = 1; format <= 2; format++) {
        binade_pack_options options = BINADE_PACK_OPTIONS_INIT;
        binade_error err;
        options.format = format;
        options.classes = "linear,embed,ple,mm,other";
        snprintf(packed[format - 1], sizeof packed[0], "%s/packed%d", m.root, format);
        m.packed[format - 1] = packed[format - 1];
        if (binade_pack(tree_path(m.root, "model"), packed[format - 1], &options, NULL, &err))
            fail_msg("%s", err.message);
    }
    *state = &m;
    return 0;
}

static int close_model(void **state) {
    struct model *m = *state;
    for (size_t i = 0; i < NTENSORS; i++)
        sample_close(&m->weights[i]);
    tree_remove(m->root);
    return 0;
}

static binade_checkpoint *open_packed(const struct model *m, int format) {
    binade_checkpoint *c;
    binade_error err;
    if (binade_open(m->packed[format - 1], NULL, &c, &err)) fail_msg("%s", err.message);
    return c;
}

static binade_r4 load(const binade_checkpoint *c, const char *name, size_t row0, size_t row1,
                      unsigned nthreads) {
    binade_r4 w;
    binade_error err;
    size_t i = binade_find(c, name, strlen(name));
    assert_int_not_equal(i, SIZE_MAX);
    if (binade_r4_load(c, i, row0, row1, nthreads, &w, &err)) fail_msg("%s: %s", name, err.message);
    return w;
}

static void assert_equal(const binade_r4 *a, const binade_r4 *b) {
    size_t nbytes = 0, nblocks = a->nexperts * ((a->rows + 15) / 16);
    assert_int_equal(a->nexperts, b->nexperts);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->cols, b->cols);
    assert_int_equal(binade_r4_groups_nbytes(a->nexperts, a->rows, a->cols, &nbytes, NULL), 0);
    assert_memory_equal(a->exponents, b->exponents, 16);
    assert_memory_equal(a->escape_starts, b->escape_starts, (nblocks + 1) * 4);
    assert_true(memcmp(a->groups, b->groups, nbytes) == 0);
    assert_true(memcmp(a->escapes, b->escapes, a->escape_starts[nblocks]) == 0);
}

static void test_whole_tensors(void **state) {
    const struct model *m = *state;
    for (int format = 1; format <= 2; format++) {
        binade_checkpoint *c = open_packed(m, format);
        for (size_t i = 0; i < NTENSORS; i++) {
            const struct tensor *t = &tensors[i];
            binade_r4 made;
            assert_int_equal(binade_r4_make((void *)m->weights[i].bf16,
                                            t->nexperts ? t->nexperts : 1, t->rows, t->cols, 1,
                                            &made, NULL),
                             BINADE_OK);
            for (unsigned nthreads = 1; nthreads <= 3; nthreads++) {
                binade_r4 loaded = load(c, t->name, 0, t->rows, nthreads);
                assert_equal(&loaded, &made);
                binade_r4_free(&loaded);
            }
            binade_r4_free(&made);
        }
        binade_close(c);
    }
}

static void check_rows(const binade_r4 *w, const struct sample *s, const struct tensor *t,
                       size_t row0, size_t row1) {
    uint16_t *out = malloc(2 * (row1 - row0) * t->cols + 1);
    assert_non_null(out);
    assert_int_equal(w->rows, row1 - row0);
    for (size_t e = 0; e < w->nexperts; e++) {
        binade_r4_rebuild(w, e, 0, w->rows, out);
        assert_true(memcmp(out, s->bf16 + 2 * (e * t->rows + row0) * t->cols,
                           2 * (row1 - row0) * t->cols) == 0);
    }
    free(out);
}

static void test_ranges(void **state) {
    const struct model *m = *state;
    uint64_t seed = 3;
    for (int format = 1; format <= 2; format++) {
        binade_checkpoint *c = open_packed(m, format);
        for (size_t i = 0; i < NTENSORS; i++) {
            const struct tensor *t = &tensors[i];
            for (unsigned k = 0; k < 6; k++) {
                size_t a = random_below(&seed, t->rows + 1), b = random_below(&seed, t->rows + 1);
                size_t row0 = k == 0 ? t->rows / 2 : a < b ? a : b;
                size_t row1 = k == 0 ? t->rows : a < b ? b : a;
                binade_r4 w = load(c, t->name, row0, row1, 1 + k % 3);
                check_rows(&w, &m->weights[i], t, row0, row1);
                binade_r4_free(&w);
            }
        }
        binade_close(c);
    }
}

static void test_refusals(void **state) {
    binade_checkpoint *c = open_packed(*state, 2);
    binade_error err;
    binade_r4 w;
    size_t bytes = binade_find(c, "bytes", 5), wide = binade_find(c, "wide", 4);
    assert_int_equal(binade_r4_load(c, binade_count(c), 0, 1, 1, &w, &err), BINADE_E_USAGE);
    assert_int_equal(binade_r4_load(c, bytes, 0, 1, 1, &w, &err), BINADE_E_USAGE);
    assert_non_null(strstr(err.message, "bytes"));
    assert_int_equal(binade_r4_load(c, wide, 0, 193, 1, &w, &err), BINADE_E_USAGE);
    assert_non_null(strstr(err.message, "wide"));
    assert_int_equal(binade_r4_load(c, wide, 5, 4, 1, &w, &err), BINADE_E_USAGE);
    assert_null(w.groups);
    binade_close(c);
}

/* Rubbish in the streams of the last tensor is found by whichever thread meets it. */
static void test_corrupt(void **state) {
    const struct model *m = *state;
    char path[5000];
    snprintf(path, sizeof path, "%s/model.safetensors", m->packed[1]);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -300000, SEEK_END), 0);
    for (unsigned i = 0; i < 250000; i++)
        fputc(0xff, file);
    fclose(file);
    binade_checkpoint *c = open_packed(m, 2);
    size_t last = binade_find(c, "many_rows", 9);
    for (unsigned nthreads = 1; nthreads <= 3; nthreads++) {
        binade_error err;
        binade_r4 w;
        assert_int_equal(binade_r4_load(c, last, 0, 40000, nthreads, &w, &err), BINADE_E_DATA);
        assert_non_null(strstr(err.message, "many_rows"));
        assert_null(w.groups);
    }
    binade_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_tensors),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_corrupt),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
