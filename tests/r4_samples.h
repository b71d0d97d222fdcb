/* r4_samples.h - operands whose products show any change of order, and the products, one by one.
 */
#ifndef BINADE_TESTS_R4_SAMPLES_H
#define BINADE_TESTS_R4_SAMPLES_H

#include <stdbool.h>

#include "guarded.h"
#include "r4/r4_layout.h"
#include "samples.h"

/* ---- Generators ---------------------------------------------------------------------------- */

static inline uint16_t bf16_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Random sign and mantissa, exponent uniform in low..high (biased). */
static inline uint16_t random_bf16(uint64_t *state, unsigned low, unsigned high) {
    uint64_t bits = random_next(state);
    unsigned exponent = low + (unsigned)random_below(state, high - low + 1);
    return (uint16_t)((bits & 0x807f) | exponent << 7);
}

/* What fills row-major x[nx][k] and w[nw][k]. */
typedef void fill_operands(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                           size_t k);

static inline void fill_each(uint64_t *seed, uint16_t *values, size_t n, unsigned low,
                             unsigned high) {
    for (size_t i = 0; i < n; i++)
        values[i] = random_bf16(seed, low, high);
}

static inline void fill_normal(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                               size_t k) {
    for (size_t i = 0; i < nx * k; i++)
        x[i] = (uint16_t)random_normal(seed, 1);
    for (size_t i = 0; i < nw * k; i++)
        w[i] = (uint16_t)random_normal(seed, 0.05);
}

static inline void fill_wide(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                             size_t k) {
    fill_each(seed, x, nx * k, 127 - 15, 127 + 15);
    fill_each(seed, w, nw * k, 127 - 30, 127 + 30);
}

/* Products of 2^-40..2^40. All but one column in sixteen have another that takes them away again:
 * what is left depends on which bits were lost on the way. */
static inline void fill_pairs(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                              size_t k) {
    size_t *order = malloc(k * sizeof *order + 1);
    if (!order) exit(2);
    fill_normal(seed, x, nx, w, nw, k);
    for (size_t i = 0; i < k; i++) {
        size_t j = random_below(seed, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i + 1 < k - k / 16; i += 2) {
        size_t a = order[i], b = order[i + 1];
        for (size_t m = 0; m < nx; m++)
            x[m * k + b] = x[m * k + a];
        for (size_t r = 0; r < nw; r++) {
            w[r * k + a] = random_bf16(seed, 127 - 40, 127 + 40);
            w[r * k + b] = w[r * k + a] ^ 0x8000;
        }
    }
    free(order);
}

/* Rows of ones, between which 2^e comes and goes: a one counts while it is away. */
static inline void fill_powers(uint64_t *seed, uint16_t *to, size_t nrows, size_t k) {
    for (size_t r = 0; r < nrows; r++) {
        float large = 0;
        for (size_t i = 0; i < k; i++) {
            float value = 1;
            if (large != 0 && (i + 1 == k || random_below(seed, 4) == 0)) {
                value = -large;
                large = 0;
            } else if (large == 0 && i + 1 < k && random_below(seed, 4) == 0) {
                value = large = (float)(1u << (20 + random_below(seed, 10)));
            }
            to[r * k + i] = bf16_of(value);
        }
    }
}

static inline void fill_ones(uint16_t *to, size_t n) {
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_of(1);
}

static inline void fill_powers_in_w(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                                    size_t k) {
    fill_powers(seed, w, nw, k);
    fill_ones(x, nx * k);
}

static inline void fill_powers_in_x(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                                    size_t k) {
    fill_powers(seed, x, nx, k);
    fill_ones(w, nw * k);
}

/* Subnormal weights, and sums that are subnormal too or of products that all round to 0. */
static inline void fill_tiny(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                             size_t k) {
    for (size_t m = 0; m < nx; m++)
        fill_each(seed, x + m * k, k, m % 2 ? 40 : 90, m % 2 ? 80 : 130);
    fill_each(seed, w, nw * k, 0, 12);
}

/* Products about the largest float, where a sum may stay finite although a product does not. */
static inline void fill_huge(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                             size_t k) {
    fill_each(seed, x, nx * k, 127 + 60, 127 + 64);
    fill_each(seed, w, nw * k, 127 + 60, 127 + 64);
}

/* Every pattern: among them infinities and NaN of any sign and payload. */
static inline void fill_bits(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                             size_t k) {
    uint16_t next = (uint16_t)random_next(seed);
    for (size_t i = 0; i < nw * k; i++)
        w[i] = next = (uint16_t)(next * 40503u + 12345);
    for (size_t i = 0; i < nx * k; i++)
        x[i] = (uint16_t)random_next(seed);
}

/* One weight or factor in a hundred is infinite, or NaN. */
static inline void fill_special(uint64_t *seed, uint16_t *x, size_t nx, uint16_t *w, size_t nw,
                                size_t k) {
    static const uint16_t specials[] = {0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x0000, 0x8000};
    fill_normal(seed, x, nx, w, nw, k);
    for (size_t i = 0; i < nw * k; i += 1 + random_below(seed, 200))
        w[i] = specials[random_below(seed, 2)];
    for (size_t i = 0; i < nx * k; i += 1 + random_below(seed, 200))
        x[i] = specials[random_below(seed, 6)];
}

static const struct generator {
    const char *name;
    fill_operands *fill;
} generators[] = {
    {"normal", fill_normal},   {"wide", fill_wide},
    {"pairs", fill_pairs},     {"powers in w", fill_powers_in_w},
    {"tiny", fill_tiny},       {"powers in x", fill_powers_in_x},
    {"huge", fill_huge},       {"all patterns", fill_bits},
    {"special", fill_special},
};
enum { NGENERATORS = sizeof generators / sizeof *generators };

/* ---- What must come out --------------------------------------------------------------------- */

static inline float float_of(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even, spelled out: which of two neighbours is nearer. */
static inline uint16_t nearest_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return 0x7fc0;
    uint32_t below = bits >> 16, rest = bits & 0xffff;
    bool up = rest > 0x8000 || (rest == 0x8000 && below % 2 == 1);
    return (uint16_t)(below + up);
}

/* `volatile` keeps the product a float32 of its own whatever the compiler's flags. */
static inline float chain(const uint16_t *x, const uint16_t *w, size_t k) {
    float sum = 0;
    for (size_t i = 0; i < k; i++) {
#if defined(__aarch64__)
        sum = __builtin_fmaf(float_of(x[i]), float_of(w[i]), sum);
#else
        volatile float product = float_of(x[i]) * float_of(w[i]);
        sum += product;
#endif
    }
    return sum;
}

/* ---- R4 weights in exact memory -------------------------------------------------------------- */

/* Which exponents get codes. */
enum code_choice { CODES_BY_RANK, CODES_NONE, CODES_ONE, CODES_RANDOM, NCODE_CHOICES };

static inline void choose_codes(enum code_choice choice, const struct sample *s, uint64_t *seed,
                                uint8_t code_of[256], uint8_t exponents[16]) {
    static const unsigned ncodes[NCODE_CHOICES] = {15, 0, 1, 15};
    memset(code_of, R4_ESCAPE, 256);
    memset(exponents, 0, 16);
    for (unsigned code = ncodes[choice]; code-- > 0;) {
        exponents[code] = choice == CODES_RANDOM ? (uint8_t)random_next(seed) : s->table[code];
        code_of[exponents[code]] = (uint8_t)code;
    }
}

/* A weight whose arrays end at unmapped memory. */
struct guarded_r4 {
    binade_r4 w;
    struct guarded groups, escapes, starts, exponents;
    uint8_t code_of[256];
};

static inline uint8_t *guarded_copy(struct guarded *g, const void *from, size_t nbytes) {
    *g = guarded_open(nbytes);
    uint8_t *to = guarded_take(g, nbytes, 0);
    if (nbytes) memcpy(to, from, nbytes);
    return to;
}

/* Encodes by `set`; s has nexperts * rows rows. */
static inline struct guarded_r4 guarded_r4_open(const struct r4_kernels *set,
                                                const struct sample *s, size_t nexperts,
                                                enum code_choice choice, uint64_t *seed) {
    struct guarded_r4 g = {.w = {nexperts, s->nrows / nexperts, s->ncols, 0, 0, 0, 0}};
    size_t nblocks = nexperts * r4_nblocks(&g.w), block_nbytes = r4_block_nbytes(&g.w);
    uint8_t *groups = malloc(nblocks * block_nbytes + 1), exponents[16];
    uint8_t *escapes = malloc(s->nrows * s->ncols + 1), *end = escapes;
    uint32_t *starts = calloc(nblocks + 1, sizeof *starts);

    if (!groups || !escapes || !starts) exit(2);
    choose_codes(choice, s, seed, g.code_of, exponents);
    for (size_t b = 0; b < nblocks; b++) {
        size_t row = b % r4_nblocks(&g.w) * R4_NROWS, left = g.w.rows - row;
        row += b / r4_nblocks(&g.w) * g.w.rows;
        set->encode(s->bf16 + 2 * row * s->ncols, 2 * s->ncols, left < R4_NROWS ? left : R4_NROWS,
                    s->ncols, g.code_of, groups + b * block_nbytes, &end);
        starts[b + 1] = (uint32_t)(end - escapes);
    }
    g.w.groups = guarded_copy(&g.groups, groups, nblocks * block_nbytes);
    g.w.escapes = guarded_copy(&g.escapes, escapes, starts[nblocks]);
    g.w.escape_starts =
        (const uint32_t *)guarded_copy(&g.starts, starts, (nblocks + 1) * sizeof *starts);
    g.w.exponents = guarded_copy(&g.exponents, exponents, sizeof exponents);
    free(groups);
    free(escapes);
    free(starts);
    return g;
}

static inline void guarded_r4_close(struct guarded_r4 *g) {
    guarded_close(&g->groups);
    guarded_close(&g->escapes);
    guarded_close(&g->starts);
    guarded_close(&g->exponents);
}

#endif
