/* test_r4_mma_plain.c - the plain C of a tensor-core step against what an H200 gave, and near
 * misses (r4_mma_rules.h), which those outputs must tell from it; products made of such steps, with
 * and without splits of K.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda/r4_mma_plain.h"
#include "r4_mma_outputs.h"
#include "r4_mma_rules.h"
#include "samples.h"

#include <cmocka.h>

enum {
    N = R4_MMA_NCOLS,
    NORDINARY = sizeof ordinary_outputs / sizeof *ordinary_outputs,
    NEXTREME = sizeof extreme_outputs / sizeof *extreme_outputs,
};

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void read_hex(const char *hex, uint16_t values[N]) {
    for (int k = 0; k < N; k++) {
        char digits[5] = {0};
        memcpy(digits, hex + 4 * k, 4);
        values[k] = (uint16_t)strtoul(digits, NULL, 16);
    }
}

static uint16_t random_bf16(uint64_t *seed, unsigned low, unsigned high) {
    unsigned exponent = low + (unsigned)random_below(seed, high - low + 1);
    return (uint16_t)((random_next(seed) & 0x807f) | exponent << 7);
}

/* Exponents within 2 * spread; every fourth step has columns in pairs that cancel. */
static float fill_step(uint64_t *seed, unsigned spread, uint16_t w[N], uint16_t x[N]) {
    bool cancels = random_below(seed, 4) == 0;
    for (int k = 0; k < N; k++) {
        w[k] = random_bf16(seed, 127 - spread, 127 + spread);
        x[k] = random_bf16(seed, 127 - spread, 127 + spread);
        if (cancels && k % 2) {
            w[k] = w[k - 1] ^ 0x8000;
            x[k] = x[k - 1];
        }
    }
    uint32_t sum = (uint32_t)random_bf16(seed, 127 - spread, 127 + spread) << 16;
    return float_of(sum | (uint32_t)random_below(seed, 1 << 16));
}

static int count_wrong(const struct rule *rule, const struct output *outputs, int n) {
    int nwrong = 0;
    for (int i = 0; i < n; i++) {
        uint16_t w[N], x[N];
        read_hex(outputs[i].w, w);
        read_hex(outputs[i].x, x);
        float result = add_by(rule, float_of(outputs[i].sum), w, x);
        nwrong += bits_of(result) != outputs[i].result;
    }
    return nwrong;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void check_outputs(const struct output *outputs, int n) {
    for (int i = 0; i < n; i++) {
        uint16_t w[N], x[N];
        read_hex(outputs[i].w, w);
        read_hex(outputs[i].x, x);
        assert_int_equal(bits_of(r4_mma_plain(float_of(outputs[i].sum), w, x)), outputs[i].result);
        assert_int_equal(bits_of(r4_mma_plain(float_of(outputs[i].sum), x, w)), outputs[i].result);
    }
}

static void test_outputs(void **state) {
    (void)state;
    check_outputs(ordinary_outputs, NORDINARY);
    check_outputs(extreme_outputs, NEXTREME);
}

static void check_shown(const struct rule *rule, int nshown, int least) {
    if (nshown < least) fail_msg("%s: only %d outputs show it", rule->name, nshown);
}

/* Else the outputs would prove little. */
static void test_near_misses(void **state) {
    (void)state;
    assert_int_equal(count_wrong(&measured, ordinary_outputs, NORDINARY), 0);
    assert_int_equal(count_wrong(&measured, extreme_outputs, NEXTREME), 0);
    for (size_t i = 0; i < sizeof near_misses / sizeof *near_misses; i++) {
        const struct rule *rule = &near_misses[i];
        check_shown(rule, count_wrong(rule, ordinary_outputs, NORDINARY), NORDINARY / 3);
    }
    for (size_t i = 0; i < sizeof near_misses_of_extremes / sizeof *near_misses_of_extremes; i++) {
        const struct rule *rule = &near_misses_of_extremes[i];
        check_shown(rule, count_wrong(rule, extreme_outputs, NEXTREME), 3);
    }
}

/* The rule in doubles and the rule in integers. */
static void test_against_doubles(void **state) {
    static const unsigned spreads[] = {1, 3, 10, 20, 60};
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 50000; i++) {
        uint16_t w[N], x[N];
        float sum = fill_step(&seed, spreads[i % 5], w, x);
        assert_int_equal(bits_of(r4_mma_plain(sum, w, x)), bits_of(add_by(&measured, sum, w, x)));
    }
}

/* Products of exponents from -165 up, zeros and subnormals times large factors, sums so far that
 * are zero or subnormal. */
static void test_low_exponents_against_doubles(void **state) {
    uint64_t seed = 4;
    int nsubnormal = 0;
    (void)state;
    for (int i = 0; i < 50000; i++) {
        uint16_t w[N], x[N];
        unsigned high = 45 + (unsigned)i % 20;
        for (int k = 0; k < N; k++) {
            w[k] = random_bf16(&seed, 44, high);
            x[k] = random_bf16(&seed, 44, high);
        }
        if (i % 3 != 0) {
            w[i % N] = (uint16_t)(random_next(&seed) & (i % 3 == 1 ? 0x8000 : 0x807f));
            x[i % N] = random_bf16(&seed, 100, i % 3 == 1 ? 254 : 110);
        }
        uint32_t sum = i % 4 == 0 ? (uint32_t)random_next(&seed) & 0x8000ffff : 0;
        float result = r4_mma_plain(float_of(sum), w, x);
        nsubnormal += result != 0 && fabsf(result) < 0x1p-126f;
        assert_int_equal(bits_of(result), bits_of(add_by(&measured, float_of(sum), w, x)));
    }
    assert_true(nsubnormal > 1000);
}

static void test_order_of_columns(void **state) {
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 5000; i++) {
        uint16_t w[N], x[N];
        float sum = fill_step(&seed, 1 + (unsigned)i % 20, w, x);
        uint32_t before = bits_of(r4_mma_plain(sum, w, x));
        for (size_t k = N - 1; k > 0; k--) {
            size_t j = random_below(&seed, k + 1);
            uint16_t w_k = w[k], x_k = x[k];
            w[k] = w[j];
            x[k] = x[j];
            w[j] = w_k;
            x[j] = x_k;
        }
        assert_int_equal(bits_of(r4_mma_plain(sum, w, x)), before);
    }
}

static void test_zeros(void **state) {
    static const uint32_t sums[] = {0,          1,          0x80000001, 0x007fffff,
                                    0x00800000, 0x3f800001, 0xff7fffff};
    uint16_t w[N] = {0}, x[N] = {0x3f80, 0xbf80, 0x8000};
    (void)state;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        assert_int_equal(bits_of(r4_mma_plain(float_of(sums[i]), w, x)), sums[i]);
    w[0] = w[1] = 0x4049; /* they cancel */
    assert_int_equal(bits_of(r4_mma_plain(0, w, x)), 0);
    w[0] = w[1] = 0;
    assert_int_equal(bits_of(r4_mma_plain(float_of(0x80000000), w, x)), 0);
}

/* 2^0 and what is cut off: what lies below 2^-25, of each term by itself. */
static void test_cuts(void **state) {
    uint16_t w[N] = {0x3f80}, x[N] = {0x3f80};
    (void)state;
    for (int k = 1; k < N; k++) {
        w[k] = 0x3f80;
        x[k] = 0x32ff; /* 2^-26 * 1.99 */
    }
    assert_int_equal(bits_of(r4_mma_plain(0, w, x)), 0x3f800000);
    for (int k = 1; k < N; k++)
        x[k] = 0x3300; /* 2^-25: 15 of them are 3 times 2^-23 and some more */
    assert_int_equal(bits_of(r4_mma_plain(0, w, x)), 0x3f800003);
    w[0] = 0xbf80;
    for (int k = 1; k < N; k++)
        w[k] = 0xbf80;
    assert_int_equal(bits_of(r4_mma_plain(0, w, x)), 0xbf800003);
}

/* Below 2^-126 a unit is 2^-149. What is added are multiples of 2^-151 if the sum so far is not
 * zero, finer ones if it is, to 2^-158. */
static void test_subnormal_results(void **state) {
    static const struct {
        uint16_t w0, w1; /* 0x1a00 is a unit */
        uint32_t sum, result;
    } cases[] = {
        {0x1a40, 0, 0, 1}, /* 1.5 */
        {0x9a40, 0, 0, 0x80000001},
        {0x19c0, 0, 0, 0}, /* 0.75 */
        {0x99c0, 0, 0, 0},
        {0x19c0, 0x1940, 7, 8}, /* 0.375 is cut to 0.25 */
        {0x19c0, 0, 0x80000007, 0x80000006},
        {0x1a40, 0x1a40, 0x007ffffe, 0x00800001},
        {0x19e6, 0x18cd, 0, 1}, /* 0.898 + 0.200 */
        {0x19e6, 0x18cd, 0x80000000, 1},
        {0x19e6, 0x18cd, 1, 1}, /* 0.75 + 0 + 1 */
        {0x99e6, 0x98cd, 0, 0x80000001},
    };
    uint16_t x[N] = {0x1a80, 0x1a80}, w[N] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w[0] = cases[i].w0;
        w[1] = cases[i].w1;
        assert_int_equal(bits_of(r4_mma_plain(float_of(cases[i].sum), w, x)), cases[i].result);
    }
}

/* All terms are so small that multiples of 2^-158 are added, each 2^-9 of a unit. */
static void test_least_cut(void **state) {
    static const struct {
        uint16_t w[4]; /* 0x19ff is 255/256 of a unit, 0x1580 is 2^-9, 0x1500 is 2^-10 */
        uint32_t result;
    } cases[] = {
        {{0x19ff, 0x1580, 0x1580, 0}, 1},
        {{0x99ff, 0x9580, 0x9580, 0}, 0x80000001},
        {{0x19ff, 0x1580, 0x1500, 0x1500}, 0},
        {{0x99ff, 0x9580, 0x9500, 0x9500}, 0},
    };
    uint16_t x[N] = {0x1a80, 0x1a80, 0x1a80, 0x1a80}, w[N] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(w, cases[i].w, sizeof cases[i].w);
        assert_int_equal(bits_of(r4_mma_plain(0, w, x)), cases[i].result);
    }
}

static void test_extremes(void **state) {
    uint16_t w[N] = {0}, x[N] = {0};
    (void)state;
    w[0] = 0x7f80;
    assert_true(isnan(r4_mma_plain(1, w, x)));
    x[0] = 0x0001;
    assert_int_equal(bits_of(r4_mma_plain(1, w, x)), 0x7f800000);
    assert_int_equal(bits_of(r4_mma_plain(INFINITY, w, x)), 0x7f800000);
    assert_true(isnan(r4_mma_plain(-INFINITY, w, x)));
    w[0] = 0x7fc0;
    assert_true(isnan(r4_mma_plain(1, w, x)));
    assert_true(isnan(r4_mma_plain(INFINITY, w, x)));
    w[0] = w[1] = x[0] = 0x7f7f; /* two products of some 2^256 */
    x[1] = 0xff7f;
    assert_int_equal(bits_of(r4_mma_plain(1, w, x)), 0);
    x[1] = 0;
    assert_int_equal(bits_of(r4_mma_plain(1, w, x)), 0x7f800000);
    x[0] = 0xff7f;
    assert_int_equal(bits_of(r4_mma_plain(1, w, x)), 0xff800000);
    assert_true(isnan(r4_mma_plain(INFINITY, (uint16_t[N]){0}, (uint16_t[N]){0x7f80})));
    assert_int_equal(bits_of(r4_mma_plain(-INFINITY, w, w)), 0xff800000);
}

/* ---- Products -------------------------------------------------------------------------------- */

enum { NROWS = 40, NX = 3, NCOLS = 208, SPLIT = 64 };

static uint16_t round_to_bf16(float value) {
    uint32_t bits = bits_of(value), kept = bits >> 16, cut = bits & 0xffff;
    return (uint16_t)(kept + (cut > 0x8000 || (cut == 0x8000 && kept % 2)));
}

static float add_steps(const uint16_t *w, const uint16_t *x, int k0, int k1) {
    float sum = 0;
    for (int k = k0; k < k1; k += N)
        sum = r4_mma_plain(sum, w + k, x + k);
    return sum;
}

/* Four splits: of 64 columns, and the last of 16. */
static uint16_t add_splits(const uint16_t *w, const uint16_t *x, enum gemm_reduction reduction) {
    float total = 0;
    for (int k0 = 0; k0 < NCOLS; k0 += SPLIT) {
        float sum = add_steps(w, x, k0, k0 + SPLIT < NCOLS ? k0 + SPLIT : NCOLS);
        if (reduction == GEMM_REDUCTION_BF16) sum = widen(round_to_bf16(sum));
        total += sum;
        if (reduction == GEMM_REDUCTION_IN_PLACE) total = widen(round_to_bf16(total));
    }
    return round_to_bf16(total);
}

/* Runs of 32 columns alternate between two sums, which are added at the end. */
static uint16_t add_slices(const uint16_t *w, const uint16_t *x) {
    float sums[2] = {0, 0};
    for (int k = 0; k < NCOLS; k += N)
        sums[k / 32 % 2] = r4_mma_plain(sums[k / 32 % 2], w + k, x + k);
    return round_to_bf16(sums[0] + sums[1]);
}

static void test_products(void **state) {
    static const enum gemm_reduction reductions[] = {GEMM_REDUCTION_FP32, GEMM_REDUCTION_BF16,
                                                     GEMM_REDUCTION_IN_PLACE};
    uint16_t w[NROWS * NCOLS], x[NX * NCOLS], y[5][NX * NROWS];
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < NROWS * NCOLS; i++)
        w[i] = random_bf16(&seed, 120, 127);
    for (int i = 0; i < NX * NCOLS; i++)
        x[i] = random_bf16(&seed, 120, 127);
    r4_mma_gemm_plain(w, x, NROWS, NX, NCOLS,
                      &(struct r4_splits){1, GEMM_REDUCTION_NONE, GEMM_IN_ORDER}, y[3]);
    r4_mma_gemm_plain(w, x, NROWS, NX, NCOLS,
                      &(struct r4_splits){1, GEMM_REDUCTION_NONE, GEMM_TWO_SLICES}, y[4]);
    for (int r = 0; r < 3; r++) {
        struct r4_splits splits = {4, reductions[r], GEMM_IN_ORDER};
        r4_mma_gemm_plain(w, x, NROWS, NX, NCOLS, &splits, y[r]);
        for (int r0 = 0; r0 < r; r0++)
            assert_memory_not_equal(y[r], y[r0], sizeof y[r]);
    }
    for (int m = 0; m < NX; m++)
        for (int n = 0; n < NROWS; n++) {
            const uint16_t *w_row = w + n * NCOLS, *x_row = x + m * NCOLS;
            for (int r = 0; r < 3; r++)
                assert_int_equal(y[r][m * NROWS + n], add_splits(w_row, x_row, reductions[r]));
            assert_int_equal(y[3][m * NROWS + n], round_to_bf16(add_steps(w_row, x_row, 0, NCOLS)));
            assert_int_equal(y[4][m * NROWS + n], add_slices(w_row, x_row));
        }
}

/* 2^24, then 1, both in the first run of 32 columns, -2^24 in the second, 1 in the third and the
 * fourth. One sum loses what comes between; of two the first loses what the third run has. */
static void test_two_slices(void **state) {
    uint16_t w[NCOLS] = {0}, x[NCOLS], y[2];
    (void)state;
    for (int k = 0; k < NCOLS; k++)
        x[k] = 0x3f80;
    w[0] = 0x4b80, w[32] = 0xcb80, w[16] = 0x3f80, w[64] = 0x3f80, w[96] = 0x3f80;
    for (int order = GEMM_IN_ORDER; order <= GEMM_TWO_SLICES; order++)
        r4_mma_gemm_plain(w, x, 1, 1, NCOLS,
                          &(struct r4_splits){1, GEMM_REDUCTION_NONE, (enum gemm_order)order},
                          &y[order]);
    assert_int_equal(y[GEMM_TWO_SLICES], add_slices(w, x));
    assert_int_equal(y[GEMM_IN_ORDER], 0x4000);   /* 2 */
    assert_int_equal(y[GEMM_TWO_SLICES], 0x3f80); /* 1 */
}

static void check_rounding(uint16_t a, uint16_t b, uint16_t expected) {
    uint16_t w[N] = {a, b}, x[N] = {0x3f80, 0x3f80}, y = 0;
    r4_mma_gemm_plain(w, x, 1, 1, N, &(struct r4_splits){1, GEMM_REDUCTION_NONE, GEMM_IN_ORDER},
                      &y);
    assert_int_equal(y, expected);
}

static void test_rounding(void **state) {
    (void)state;
    check_rounding(0x3f80, 0x3b80, 0x3f80); /* 1 + 2^-8, a tie */
    check_rounding(0x3f81, 0x3b80, 0x3f82);
    check_rounding(0x3f80, 0x3b81, 0x3f81);
    check_rounding(0x7f7f, 0x7b80, 0x7f80);
    check_rounding(0x7f80, 0xff80, 0x7fff);
    check_rounding(0xffff, 0, 0x7fff);
    check_rounding(0, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_near_misses),
        cmocka_unit_test(test_against_doubles),
        cmocka_unit_test(test_low_exponents_against_doubles),
        cmocka_unit_test(test_order_of_columns),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_subnormal_results),
        cmocka_unit_test(test_least_cut),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_two_slices),
        cmocka_unit_test(test_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
