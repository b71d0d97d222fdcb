/* r4_matvec_avx512.c - one row of x: groups go from memory through registers into the sums.
 *
 * A column of a block is a vector, a sum is a lane, so that each sum keeps its order. Four blocks
 * advance together: the additions of one sum wait for each other, those of others fill the gaps.
 */
#if defined(__x86_64__)

#include "cpu/r4_avx512.h"
#include "cpu/r4_kernels.h"

/* nblocks is a constant 1, 2 or 4. */
TARGET_AVX512 static ALWAYS_INLINE void multiply_blocks(const struct lookup512 *lookup,
                                                        const uint8_t *groups, size_t block_nbytes,
                                                        const uint8_t **escapes, unsigned nblocks,
                                                        const float *x, size_t ncols, float *sums) {
    __m512 sum[4];
    const uint8_t *next[4];

#pragma GCC unroll 4
    for (unsigned b = 0; b < nblocks; b++) {
        sum[b] = _mm512_loadu_ps(sums + b * R4_NROWS);
        next[b] = escapes[b];
    }
    size_t col = 0;
    for (; col + R4_NCOLS <= ncols; col += R4_NCOLS) {
#pragma GCC unroll 4
        for (unsigned b = 0; b < nblocks; b++) {
            struct group512 w = r4_load512(lookup, groups + b * block_nbytes, &next[b]);
#pragma GCC unroll 4
            for (unsigned c = 0; c < R4_NCOLS; c++)
                sum[b] = r4_step512(sum[b], _mm512_set1_ps(x[col + c]), w.col[c]);
        }
        groups += R4_NBYTES;
    }
    for (unsigned b = 0; b < nblocks && col < ncols; b++) {
        struct group512 w = r4_load512(lookup, groups + b * block_nbytes, &next[b]);
        for (unsigned c = 0; c < ncols - col; c++)
            sum[b] = r4_step512(sum[b], _mm512_set1_ps(x[col + c]), w.col[c]);
    }
#pragma GCC unroll 4
    for (unsigned b = 0; b < nblocks; b++) {
        _mm512_storeu_ps(sums + b * R4_NROWS, sum[b]);
        escapes[b] = next[b];
    }
}

TARGET_AVX512 void r4_matvec_avx512(const struct r4_lookup *lookup, const uint8_t *groups,
                                    size_t block_nbytes, const uint8_t **escapes, size_t nblocks,
                                    const float *x, size_t ncols, float *sums) {
    struct lookup512 l = r4_lookup512(lookup);

    for (; nblocks >= 4; nblocks -= 4) {
        multiply_blocks(&l, groups, block_nbytes, escapes, 4, x, ncols, sums);
        groups += 4 * block_nbytes;
        escapes += 4;
        sums += 4 * R4_NROWS;
    }
    if (nblocks >= 2) {
        multiply_blocks(&l, groups, block_nbytes, escapes, 2, x, ncols, sums);
        groups += 2 * block_nbytes;
        escapes += 2;
        sums += 2 * R4_NROWS;
        nblocks -= 2;
    }
    if (nblocks) multiply_blocks(&l, groups, block_nbytes, escapes, 1, x, ncols, sums);
}

#endif
