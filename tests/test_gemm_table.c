/* test_gemm_table.c - of which plans the order of sums is known, and how K is split. The table is
 * stated here once more; whatever it does not say must be refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gemm_table.h"

#include <cmocka.h>

#define HERE "tests/cuda/test_cuda_gemm_lt.cu"
#define ELSEWHERE "published, not run here"

static const struct {
    int major, minor, algorithm;
    enum gemm_order order;
    unsigned reductions;
    bool empty_adds_zero;
    const char *proof;
} known[] = {
    {8, 0, 6, GEMM_IN_ORDER, 1 | 2 | 4, true, ELSEWHERE},
    {8, 0, 21, GEMM_IN_ORDER, 1 | 2 | 4, true, ELSEWHERE},
    {8, 0, 31, GEMM_TWO_SLICES, 0, false, ELSEWHERE},
    {8, 9, 5, GEMM_IN_ORDER, 1 | 2 | 4, true, ELSEWHERE},
    {8, 9, 6, GEMM_IN_ORDER, 1 | 2 | 4, true, ELSEWHERE},
    {8, 9, 21, GEMM_IN_ORDER, 1 | 2 | 4, true, ELSEWHERE},
    {8, 9, 31, GEMM_TWO_SLICES, 0, false, ELSEWHERE},
    {9, 0, 66, GEMM_IN_ORDER, 2, false, HERE},
    {12, 0, 21, GEMM_IN_ORDER, 1 | 2 | 4, true, ELSEWHERE},
};

enum { NKNOWN = sizeof known / sizeof *known };

static const int gpus[][2] = {{7, 0}, {7, 5},  {8, 0},  {8, 6},  {8, 7},  {8, 9}, {9, 0},
                              {9, 1}, {10, 0}, {10, 3}, {11, 0}, {12, 0}, {12, 1}};

enum { NGPUS = sizeof gpus / sizeof *gpus, NALGORITHMS = 100 };

static char message[GPU_MESSAGE_NBYTES];

static struct gemm_plan plan_of(int algorithm, int nsplits, int reduction) {
    return (struct gemm_plan){.algorithm = algorithm, .nsplits = nsplits, .reduction = reduction};
}

static const struct gemm_row *find(int major, int minor, int algorithm, int nsplits, int reduction,
                                   int k) {
    struct gemm_plan plan = plan_of(algorithm, nsplits, reduction);
    strcpy(message, "nothing was said");
    return gemm_find_row(major, minor, &plan, k, message);
}

static void refuse(int major, int minor, int algorithm, int nsplits, int reduction, int k,
                   const char *expected) {
    assert_null(find(major, minor, algorithm, nsplits, reduction, k));
    assert_string_equal(message, expected);
}

static int index_of(int major, int minor, int algorithm) {
    for (int i = 0; i < NKNOWN; i++)
        if (known[i].major == major && known[i].minor == minor && known[i].algorithm == algorithm)
            return i;
    return -1;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void test_rows(void **state) {
    (void)state;
    for (int i = 0; i < NKNOWN; i++) {
        const struct gemm_row *row =
            find(known[i].major, known[i].minor, known[i].algorithm, 1, 0, 4096);
        assert_non_null(row);
        assert_int_equal(row->major, known[i].major);
        assert_int_equal(row->minor, known[i].minor);
        assert_int_equal(row->algorithm, known[i].algorithm);
        assert_int_equal(row->order, known[i].order);
        assert_int_equal(row->reductions, known[i].reductions);
        assert_int_equal(row->empty_adds_zero, known[i].empty_adds_zero);
        assert_string_equal(row->proof, known[i].proof);
    }
    size_t nrows = 0;
    for (const struct gemm_row *row; (row = gemm_row_at(nrows)); nrows++)
        assert_ptr_equal(row, find(row->major, row->minor, row->algorithm, 1, 0, 4096));
    assert_int_equal(nrows, NKNOWN);
    assert_null(gemm_row_at(SIZE_MAX));
}

/* Every GPU, algorithm, number of splits and scheme: known if the rows above say so. No split
 * of K = 16384 is empty here. */
static void test_everything_else_is_refused(void **state) {
    (void)state;
    for (int g = 0; g < NGPUS; g++)
        for (int algorithm = -1; algorithm < NALGORITHMS; algorithm++)
            for (int nsplits = -1; nsplits <= 9; nsplits++)
                for (int reduction = 0; reduction <= 8; reduction++) {
                    int i = index_of(gpus[g][0], gpus[g][1], algorithm);
                    bool is_scheme = reduction == 1 || reduction == 2 || reduction == 4;
                    bool expected =
                        i >= 0 && nsplits >= 0 &&
                        (nsplits < 2 || (is_scheme && (known[i].reductions & (unsigned)reduction)));
                    const struct gemm_row *row =
                        find(gpus[g][0], gpus[g][1], algorithm, nsplits, reduction, 16384);
                    assert_int_equal(row != NULL, expected);
                    if (!row) assert_string_not_equal(message, "nothing was said");
                    if (row) assert_int_equal(row->algorithm, algorithm);
                }
}

/* What does not change bits does not matter. */
static void test_other_members(void **state) {
    struct gemm_plan plan = {66, 7, 35, 3, 2, 1, 8, 2, 5, 1 << 20};
    (void)state;
    assert_non_null(gemm_find_row(9, 0, &plan, 4096, message));
}

static void test_reasons(void **state) {
    (void)state;
    refuse(10, 0, 66, 1, 0, 4096,
           "the order of cuBLASLt's sums is not known on compute capability 10.0");
    refuse(9, 0, 21, 1, 0, 4096,
           "the order of cuBLASLt's algorithm 21 is not known on compute capability 9.0");
    refuse(9, 0, 66, -1, 0, 4096, "what cuBLASLt means by -1 splits of K is not known");
    refuse(8, 9, 31, 2, 2, 4096,
           "cuBLASLt's algorithm 31 adds two slices, and its order is not known where it splits K "
           "too, here in 2");
    refuse(9, 0, 66, 3, 4, 4096,
           "how cuBLASLt's algorithm 66 adds 3 splits of K by reduction scheme 4 is not known on "
           "this GPU");
    refuse(8, 0, 21, 2, 3, 4096,
           "how cuBLASLt's algorithm 21 adds 2 splits of K by reduction scheme 3 is not known on "
           "this GPU");
    refuse(9, 0, 66, 4, 2, 192,
           "what cuBLASLt's algorithm 66 adds for a split without columns, as K = 192 in 4 has, is "
           "not known on this GPU");
    assert_non_null(find(9, 0, 66, 3, 2, 192));
    assert_non_null(find(8, 0, 21, 4, 2, 192));
    assert_non_null(find(9, 0, 66, 1, 2, 1));
}

/* ---- Environment ----------------------------------------------------------------------------- */

static void test_environment(void **state) {
    (void)state;
    setenv("BINADE_GEMM_ROW", "in-order", 1);
    const struct gemm_row *row = find(10, 0, 71, 5, 4, 256); /* an empty split too */
    assert_non_null(row);
    assert_int_equal(row->order, GEMM_IN_ORDER);
    assert_true(row->empty_adds_zero);
    assert_string_equal(row->proof, "none: assumed because of BINADE_GEMM_ROW");
    assert_ptr_equal(row, find(9, 0, 21, 1, 0, 4096));
    refuse(10, 0, 71, 2, 3, 4096,
           "how cuBLASLt's algorithm 71 adds 2 splits of K by reduction scheme 3 is not known on "
           "this GPU");
    /* Rows that are known stay. */
    assert_int_equal(find(8, 0, 31, 1, 0, 4096)->order, GEMM_TWO_SLICES);
    assert_null(find(9, 0, 66, 2, 4, 4096));

    setenv("BINADE_GEMM_ROW", "two-slices", 1);
    row = find(9, 0, 21, 1, 0, 4096);
    assert_non_null(row);
    assert_int_equal(row->order, GEMM_TWO_SLICES);
    assert_null(find(9, 0, 21, 2, 2, 4096));
    assert_int_equal(find(9, 0, 66, 1, 0, 4096)->order, GEMM_IN_ORDER);

    static const char *const wrong[] = {"In-order", "in-order ", "in", "1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("BINADE_GEMM_ROW", wrong[i], 1);
        assert_null(find(9, 0, 66, 1, 0, 4096));
        char expected[200] = "BINADE_GEMM_ROW is \"";
        strcat(strcat(expected, wrong[i]), "\", expected published, in-order or two-slices");
        assert_string_equal(message, expected);
    }
    setenv("BINADE_GEMM_ROW", "", 1);
    assert_non_null(find(9, 0, 66, 1, 0, 4096));
    assert_null(find(10, 0, 66, 1, 0, 4096));
    unsetenv("BINADE_GEMM_ROW");
    assert_null(find(10, 0, 66, 1, 0, 4096));
    assert_non_null(find(9, 0, 66, 1, 0, 4096));
}

/* What was measured is used; what was published if it is asked for, in whatever way. */
static void test_allowed(void **state) {
    static const char *const names[] = {"published", "in-order", "two-slices"};
    (void)state;
    unsetenv("BINADE_GEMM_ROW");
    assert_true(gemm_row_is_allowed(find(9, 0, 66, 1, 0, 4096)));
    assert_false(gemm_row_is_allowed(find(8, 9, 21, 1, 0, 4096)));
    assert_false(gemm_row_is_allowed(find(8, 0, 31, 1, 0, 4096)));
    setenv("BINADE_GEMM_ROW", "", 1);
    assert_false(gemm_row_is_allowed(find(12, 0, 21, 1, 0, 4096)));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setenv("BINADE_GEMM_ROW", names[i], 1);
        assert_true(gemm_row_is_allowed(find(9, 0, 66, 1, 0, 4096)));
        assert_true(gemm_row_is_allowed(find(8, 9, 21, 1, 0, 4096)));
        assert_true(gemm_row_is_allowed(find(12, 0, 21, 1, 0, 4096)));
    }
    setenv("BINADE_GEMM_ROW", "published", 1);
    assert_null(find(9, 0, 21, 1, 0, 4096)); /* nothing stands for the unknown */
    assert_null(find(10, 0, 66, 1, 0, 4096));
    unsetenv("BINADE_GEMM_ROW");
}

/* ---- Splits ---------------------------------------------------------------------------------- */

static void check_splits(int k, int nsplits) {
    int ncols = gemm_split_ncols(k, nsplits), next = 0;

    /* The least multiple of 64 of which nsplits cover k. */
    assert_int_equal(ncols % 64, 0);
    assert_true((int64_t)ncols * nsplits >= k);
    assert_true((int64_t)(ncols - 64) * nsplits < k);
    for (int i = 0; i < nsplits; i++) {
        struct gemm_range split = gemm_split_range(k, nsplits, i);
        assert_int_equal(split.k0, next);
        assert_in_range(split.k1, split.k0, k);
        /* Whole, or the last that has columns. */
        assert_true(split.k1 - split.k0 == ncols || split.k1 == k);
        next = split.k1;
    }
    assert_int_equal(next, k);
}

static void test_splits(void **state) {
    static const int large[] = {3840,  4096,  4097,    5120,          11008,         14336,  15360,
                                16383, 28672, 1 << 20, (1 << 24) + 1, (1 << 30) - 1, 1 << 30};
    (void)state;
    for (int nsplits = 1; nsplits <= 20; nsplits++) {
        for (int k = 1; k <= 1500; k++)
            check_splits(k, nsplits);
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            check_splits(large[i], nsplits);
    }
    check_splits(100, 1000);
    assert_int_equal(gemm_split_ncols(4096, 3), 1408); /* 1366 rounded up */
    assert_int_equal(gemm_split_range(4096, 3, 2).k0, 2816);
    assert_int_equal(gemm_split_range(256, 3, 1).k1, 256); /* 128 + 128 + 0 */
    assert_int_equal(gemm_split_range(256, 3, 2).k0, 256);
    assert_int_equal(gemm_split_range(256, 3, 2).k1, 256);
}

int main(void) {
    unsetenv("BINADE_GEMM_ROW");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_everything_else_is_refused),
        cmocka_unit_test(test_reasons),     cmocka_unit_test(test_other_members),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
