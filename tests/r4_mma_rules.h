/* r4_mma_rules.h - a tensor-core step of finite operands by the rule that was measured and by near
 * misses of it, in doubles, for test_r4_mma_plain.c.
 */
#ifndef BINADE_TESTS_R4_MMA_RULES_H
#define BINADE_TESTS_R4_MMA_RULES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cuda/r4_mma_plain.h"

enum {
    ROUNDS_RESULT = 1,
    ADDS_APART = 2, /* the sum so far to the sum of the products */
    NORMALISES_PRODUCTS = 4,
    NORMALISES_FACTORS = 8,
    NORMALISES_SUM = 16,
    FLUSHES_FACTORS = 32,
    COUNTS_ZERO_PRODUCTS = 64, /* among the exponents of which the greatest is sought */
    COUNTS_ZERO_SUM = 128,
    LEAST = -133,     /* that a greatest exponent can be */
    NO_LIMIT = -1000, /* below every exponent */
};

/* What might be thought to happen, in doubles, which hold every term and every sum here. */
struct rule {
    const char *name;
    int nkept, block; /* so many terms at a time and the sum so far */
    double (*cut)(double);
    int least; /* no greatest exponent is below */
    unsigned flags;
};

static inline float widen(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float widen_factor(const struct rule *rule, uint16_t bf16) {
    bool is_flushed = rule->flags & FLUSHES_FACTORS && (bf16 & 0x7f80) == 0;
    return is_flushed ? 0 : widen(bf16);
}

static inline int exponent_of(float value, bool normalises) {
    if (value != 0 && normalises) return ilogbf(value);
    return fabsf(value) < 0x1p-126f ? -126 : ilogbf(value);
}

static inline int exponent_of_sum(const struct rule *rule, float sum) {
    if (sum == 0 && !(rule->flags & COUNTS_ZERO_SUM)) return NO_LIMIT;
    return exponent_of(sum, rule->flags & NORMALISES_SUM);
}

/* The exponents of normal floats, whose product has the one or the next. */
static inline int exponent_of_product(const struct rule *rule, float w, float x) {
    bool is_zero = w == 0 || x == 0, normalises = rule->flags & NORMALISES_FACTORS;
    if (is_zero && !(rule->flags & COUNTS_ZERO_PRODUCTS)) return NO_LIMIT;
    if (!is_zero && rule->flags & NORMALISES_PRODUCTS) return ilogb((double)w * x);
    return exponent_of(w, normalises) + exponent_of(x, normalises);
}

static inline float cut_to_float(double value) {
    float nearest = (float)value;
    if (fabs(value) >= 0x1p128) return nearest;
    return fabs((double)nearest) > fabs(value) ? nextafterf(nearest, 0) : nearest;
}

static inline float add_block(const struct rule *rule, float sum, const uint16_t *w,
                              const uint16_t *x) {
    float acc = rule->flags & ADDS_APART ? 0 : sum;
    int most = exponent_of_sum(rule, acc);
    if (most < rule->least) most = rule->least;
    for (int k = 0; k < rule->block; k++) {
        int exponent =
            exponent_of_product(rule, widen_factor(rule, w[k]), widen_factor(rule, x[k]));
        if (exponent > most) most = exponent;
    }
    double total = rule->cut(ldexp(acc, rule->nkept - most));
    for (int k = 0; k < rule->block; k++) {
        double product = (double)widen_factor(rule, w[k]) * widen_factor(rule, x[k]);
        total += rule->cut(ldexp(product, rule->nkept - most));
    }
    total = ldexp(total, most - rule->nkept);
    float result = rule->flags & ROUNDS_RESULT ? (float)total : cut_to_float(total);
    if (result == 0) result = 0; /* not -0 */
    return rule->flags & ADDS_APART ? sum + result : result;
}

static inline float add_by(const struct rule *rule, float sum, const uint16_t *w,
                           const uint16_t *x) {
    for (int k = 0; k < R4_MMA_NCOLS; k += rule->block)
        sum = add_block(rule, sum, w + k, x + k);
    return sum;
}

static const struct rule measured = {"as measured", 25, 16, trunc, LEAST, 0};

static const struct rule near_misses[] = {
    {"one bit fewer", 24, 16, trunc, LEAST, 0},
    {"one bit more", 26, 16, trunc, LEAST, 0},
    {"terms rounded", 25, 16, rint, LEAST, 0},
    {"terms cut downward", 25, 16, floor, LEAST, 0},
    {"result rounded", 25, 16, trunc, LEAST, ROUNDS_RESULT},
    {"products normalised", 25, 16, trunc, LEAST, NORMALISES_PRODUCTS},
    {"the sum so far added apart", 25, 16, trunc, LEAST, ADDS_APART},
    {"two blocks of 8", 25, 8, trunc, LEAST, 0},
    {"four blocks of 4", 25, 4, trunc, LEAST, 0},
    {"one by one", 25, 1, trunc, LEAST, 0},
    {"one by one, rounded", 60, 1, trunc, LEAST, ROUNDS_RESULT},
};

static const struct rule near_misses_of_extremes[] = {
    {"zero products have exponents", 25, 16, trunc, LEAST, COUNTS_ZERO_PRODUCTS},
    {"a sum so far of zero has one", 25, 16, trunc, LEAST, COUNTS_ZERO_SUM},
    {"no exponent below -126", 25, 16, trunc, -126, 0},
    {"no exponent below -127", 25, 16, trunc, -127, 0},
    {"no exponent below -132", 25, 16, trunc, -132, 0},
    {"no exponent below -134", 25, 16, trunc, -134, 0},
    {"no exponent too low", 25, 16, trunc, NO_LIMIT, 0},
    {"subnormal factors normalised", 25, 16, trunc, LEAST, NORMALISES_FACTORS},
    {"subnormal sums normalised", 25, 16, trunc, LEAST, NORMALISES_SUM},
    {"subnormal factors are zero", 25, 16, trunc, LEAST, FLUSHES_FACTORS},
};

#endif
