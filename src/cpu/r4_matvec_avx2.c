/* r4_matvec_avx2.c - one row of x; r4_matvec_avx512.c says how. A block is two vectors of sums. */
#if defined(__x86_64__)

#include "cpu/r4_avx2.h"
#include "cpu/r4_kernels.h"

/* ncols (0..4) columns of one group. */
TARGET_AVX2 static ALWAYS_INLINE void multiply_group(const struct lookup256 *lookup,
                                                     const uint8_t *group, const uint8_t **escapes,
                                                     const float *x, size_t ncols, __m256 sum[2]) {
    struct group256 w = r4_load_group256(lookup, group, escapes);
    for (unsigned c = 0; c < ncols; c++) {
        __m256 factor = _mm256_broadcast_ss(x + c);
        sum[0] = r4_step256(sum[0], factor, w.half[0].col[c]);
        sum[1] = r4_step256(sum[1], factor, w.half[1].col[c]);
    }
}

/* nblocks is a constant 1 or 2. */
TARGET_AVX2 static ALWAYS_INLINE void multiply_blocks(const struct lookup256 *lookup,
                                                      const uint8_t *groups, size_t block_nbytes,
                                                      const uint8_t **escapes, unsigned nblocks,
                                                      const float *x, size_t ncols, float *sums) {
    __m256 sum[2][2];
    const uint8_t *next[2];

#pragma GCC unroll 4
    for (unsigned b = 0; b < nblocks; b++) {
        sum[b][0] = _mm256_loadu_ps(sums + b * R4_NROWS);
        sum[b][1] = _mm256_loadu_ps(sums + b * R4_NROWS + 8);
        next[b] = escapes[b];
    }
    size_t col = 0;
    for (; col + R4_NCOLS <= ncols; col += R4_NCOLS) {
#pragma GCC unroll 4
        for (unsigned b = 0; b < nblocks; b++)
            multiply_group(lookup, groups + b * block_nbytes, &next[b], x + col, R4_NCOLS, sum[b]);
        groups += R4_NBYTES;
    }
    for (unsigned b = 0; b < nblocks && col < ncols; b++)
        multiply_group(lookup, groups + b * block_nbytes, &next[b], x + col, ncols - col, sum[b]);
#pragma GCC unroll 4
    for (unsigned b = 0; b < nblocks; b++) {
        _mm256_storeu_ps(sums + b * R4_NROWS, sum[b][0]);
        _mm256_storeu_ps(sums + b * R4_NROWS + 8, sum[b][1]);
        escapes[b] = next[b];
    }
}

TARGET_AVX2 void r4_matvec_avx2(const struct r4_lookup *lookup, const uint8_t *groups,
                                size_t block_nbytes, const uint8_t **escapes, size_t nblocks,
                                const float *x, size_t ncols, float *sums) {
    struct lookup256 l = r4_lookup256(lookup);

    for (; nblocks >= 2; nblocks -= 2) {
        multiply_blocks(&l, groups, block_nbytes, escapes, 2, x, ncols, sums);
        groups += 2 * block_nbytes;
        escapes += 2;
        sums += 2 * R4_NROWS;
    }
    if (nblocks) multiply_blocks(&l, groups, block_nbytes, escapes, 1, x, ncols, sums);
}

#endif
