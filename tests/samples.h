/* samples.h - weights for the kernel tests: reproducible, from ordinary to hostile. */
#ifndef BINADE_TESTS_SAMPLES_H
#define BINADE_TESTS_SAMPLES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/bf16.h"
#include "format/rank_table.h"

/* nrows x ncols BF16 weights, and an order of the exponents. */
struct sample {
    char name[64];
    size_t nrows, ncols;
    uint8_t *bf16;
    uint8_t table[256], rank_of[256];
};

static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline size_t random_below(uint64_t *state, size_t n) {
    return (size_t)(random_next(state) % n);
}

/* Nearly normal(0, scale), cut to BF16: the sum of 12 uniform numbers, so that no test needs libm.
 */
static inline unsigned random_normal(uint64_t *state, double scale) {
    double sum = -6;
    uint32_t bits;

    for (unsigned i = 0; i < 12; i++)
        sum += (double)(random_next(state) >> 11) * 0x1p-53;
    float x = (float)(scale * sum);
    memcpy(&bits, &x, sizeof bits);
    return bits >> 16;
}

static inline struct sample sample_open(const char *name, size_t nrows, size_t ncols) {
    struct sample s = {.nrows = nrows, .ncols = ncols, .bf16 = malloc(2 * nrows * ncols)};

    if (!s.bf16) exit(2);
    snprintf(s.name, sizeof s.name, "%s, %zu x %zu", name, nrows, ncols);
    return s;
}

static inline void sample_close(struct sample *s) {
    free(s->bf16);
}

/* Orders the exponents by frequency, as packing does. */
static inline struct sample sample_ranked(struct sample s) {
    uint64_t counts[256] = {0};

    count_exponents_plain(s.bf16, s.nrows * s.ncols, counts);
    rank_table_build(counts, s.table, s.rank_of);
    return s;
}

/* Rank = exponent, so that a sample can choose its ranks. */
static inline struct sample sample_unranked(struct sample s) {
    for (unsigned e = 0; e < 256; e++)
        s.table[e] = s.rank_of[e] = (uint8_t)e;
    return s;
}

/* What trained weights look like: each row has its own scale. */
static inline struct sample sample_normal(size_t nrows, size_t ncols, uint64_t seed) {
    struct sample s = sample_open("normal", nrows, ncols);

    for (size_t r = 0; r < nrows; r++) {
        double scale = 1.0 / (double)(1u << random_below(&seed, 9));
        for (size_t i = 0; i < ncols; i++)
            bf16_store(s.bf16, r * ncols + i, random_normal(&seed, scale));
    }
    return sample_ranked(s);
}

static inline struct sample sample_random_bits(size_t nrows, size_t ncols, uint64_t seed) {
    struct sample s = sample_open("random bits", nrows, ncols);

    for (size_t i = 0; i < nrows * ncols; i++)
        bf16_store(s.bf16, i, (unsigned)(random_next(&seed) & 0xffff));
    return sample_ranked(s);
}

static inline struct sample sample_constant(size_t nrows, size_t ncols, unsigned weight) {
    struct sample s = sample_open("constant", nrows, ncols);

    for (size_t i = 0; i < nrows * ncols; i++)
        bf16_store(s.bf16, i, weight);
    return sample_ranked(s);
}

/* Every pattern once. */
static inline struct sample sample_all_patterns(size_t nrows) {
    struct sample s = sample_open("all patterns", nrows, 65536 / nrows);

    for (unsigned i = 0; i < 65536; i++)
        bf16_store(s.bf16, i, i * 40503 & 0xffff);
    return sample_ranked(s);
}

/* In row r every weight has rank 0 but `ndeep` of them, which have rank r. */
static inline struct sample sample_deep(size_t ncols, size_t ndeep, uint64_t seed) {
    struct sample s = sample_open("deep ranks", 256, ncols);

    for (size_t i = 0; i < 256 * ncols; i++)
        bf16_store(s.bf16, i, (unsigned)(random_next(&seed) & 0x807f));
    for (size_t i = 0; i < 256 * ndeep; i++)
        bf16_store(s.bf16, i % 256 * ncols + random_below(&seed, ncols), (unsigned)(i % 256) << 7);
    return sample_unranked(s);
}

/* In row r ranks are uniform over 0..r. */
static inline struct sample sample_uniform(size_t ncols, uint64_t seed) {
    struct sample s = sample_open("uniform ranks", 256, ncols);

    for (size_t i = 0; i < 256 * ncols; i++) {
        unsigned rank = (unsigned)random_below(&seed, i / ncols + 1);
        bf16_store(s.bf16, i, rank << 7 | (unsigned)(random_next(&seed) & 0x807f));
    }
    return sample_unranked(s);
}

/* Zeros, as in pruned or padded tensors, between normal weights. */
static inline struct sample sample_sparse(size_t nrows, size_t ncols, uint64_t seed) {
    struct sample s = sample_open("sparse", nrows, ncols);

    for (size_t i = 0; i < nrows * ncols; i++)
        bf16_store(s.bf16, i, random_below(&seed, 3) ? 0 : random_normal(&seed, 0.02));
    return sample_ranked(s);
}

#endif
