#include "cuda/r4_mma_plain.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "cuda/bf16_plain.h"

enum {
    NTERMS = R4_MMA_NCOLS + 1,
    NKEPT = 25, /* bits of a term below the greatest exponent */
    BF16_NBITS = 7,
    FLOAT_NBITS = 23, /* of mantissas */
    SLICE_NCOLS = 32, /* of GEMM_TWO_SLICES */
    LEAST_EXPONENT = -126,
    LEAST_BF16_EXPONENT = -133, /* of the smallest BF16, a subnormal */
};

/* significand * 2^(exponent - NKEPT), with a sign of its own because terms are cut toward zero. */
struct term {
    bool is_negative;
    int exponent;
    uint64_t significand; /* below 2^27 */
};

/* A finite value, its significand with FLOAT_NBITS bits below the point. */
static struct term split_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t biased = bits >> FLOAT_NBITS & 0xff, mantissa = bits & 0x7fffff;
    if (biased == 0) return (struct term){bits >> 31, LEAST_EXPONENT, mantissa};
    return (struct term){bits >> 31, (int)biased - 127, mantissa | 1u << FLOAT_NBITS};
}

static struct term multiply(uint16_t w, uint16_t x) {
    struct term a = split_float(bf16_widen(w)), b = split_float(bf16_widen(x));
    uint64_t product = (a.significand >> (FLOAT_NBITS - BF16_NBITS)) *
                       (b.significand >> (FLOAT_NBITS - BF16_NBITS));
    return (struct term){a.is_negative != b.is_negative, a.exponent + b.exponent,
                         product << (NKEPT - 2 * BF16_NBITS)};
}

static float add_terms(const struct term terms[NTERMS]) {
    int64_t total = 0;
    int most = LEAST_BF16_EXPONENT, ncut = 0;

    for (int i = 0; i < NTERMS; i++)
        if (terms[i].significand != 0 && terms[i].exponent > most) most = terms[i].exponent;
    for (int i = 0; i < NTERMS; i++) {
        int below = most - terms[i].exponent;
        int64_t kept = 0;
        if (terms[i].significand != 0 && below < 64)
            kept = (int64_t)(terms[i].significand >> below);
        total += terms[i].is_negative ? -kept : kept;
    }

    uint64_t size = (uint64_t)(total < 0 ? -total : total);
    while (size >> ncut >> (FLOAT_NBITS + 1) || most - NKEPT + ncut < LEAST_EXPONENT - FLOAT_NBITS)
        ncut++;
    float value = ldexpf((float)(size >> ncut), most - NKEPT + ncut);
    return total < 0 && value > 0 ? -value : value;
}

float r4_mma_plain(float sum, const uint16_t *w, const uint16_t *x) {
    struct term terms[NTERMS];
    float special = isfinite(sum) ? 0 : sum;

    for (int k = 0; k < R4_MMA_NCOLS; k++)
        if (!isfinite(bf16_widen(w[k])) || !isfinite(bf16_widen(x[k])))
            special += bf16_widen(w[k]) * bf16_widen(x[k]);
    if (!isfinite(special)) return special;

    for (int k = 0; k < R4_MMA_NCOLS; k++)
        terms[k] = multiply(w[k], x[k]);
    terms[R4_MMA_NCOLS] = split_float(sum);
    terms[R4_MMA_NCOLS].significand <<= NKEPT - FLOAT_NBITS;
    return add_terms(terms);
}

static float multiply_rows(const uint16_t *w, const uint16_t *x, struct gemm_range cols,
                           enum gemm_order order) {
    float sums[2] = {0, 0};

    for (int k = cols.k0; k < cols.k1; k += R4_MMA_NCOLS) {
        float *sum = &sums[order == GEMM_TWO_SLICES && (k - cols.k0) / SLICE_NCOLS % 2];
        *sum = r4_mma_plain(*sum, w + k, x + k);
    }
    return order == GEMM_TWO_SLICES ? sums[0] + sums[1] : sums[0];
}

static float add_split(float total, float sum, enum gemm_reduction reduction) {
    if (reduction == GEMM_REDUCTION_BF16) sum = bf16_widen(bf16_round(sum));
    if (reduction == GEMM_REDUCTION_IN_PLACE) return bf16_widen(bf16_round(total + sum));
    return total + sum;
}

void r4_mma_gemm_plain(const uint16_t *w, const uint16_t *x, size_t nrows, size_t nx, int ncols,
                       const struct r4_splits *splits, uint16_t *y) {
    for (size_t m = 0; m < nx; m++)
        for (size_t n = 0; n < nrows; n++) {
            const uint16_t *w_row = w + n * (size_t)ncols, *x_row = x + m * (size_t)ncols;
            float total = 0;
            for (int i = 0; i < splits->nsplits; i++) {
                struct gemm_range cols = gemm_split_range(ncols, splits->nsplits, i);
                total = add_split(total, multiply_rows(w_row, x_row, cols, splits->order),
                                  splits->reduction);
            }
            y[m * nrows + n] = bf16_round(total);
        }
}
