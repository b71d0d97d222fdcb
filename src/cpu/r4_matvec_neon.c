/* r4_matvec_neon.c - one row of x; r4_matvec_avx512.c says how. A block is four vectors of sums,
 * and steps are fused, as MLX's build for this machine fuses them. */
#if defined(__aarch64__)

#include "cpu/r4_kernels.h"
#include "cpu/r4_neon.h"

struct sums128 {
    float32x4_t quarter[R4_NQUARTERS];
};

/* ncols (0..4) columns of one group. */
static ALWAYS_INLINE void multiply_group(const struct lookup128 *lookup, const uint8_t *group,
                                         const uint8_t **escapes, const float *x, size_t ncols,
                                         struct sums128 *sum) {
    struct group128 w = r4_load128(lookup, group, escapes);
    for (unsigned c = 0; c < ncols; c++)
#pragma GCC unroll 4
        for (unsigned q = 0; q < R4_NQUARTERS; q++)
            sum->quarter[q] = vfmaq_n_f32(sum->quarter[q], w.quarter[q].col[c], x[c]);
}

/* nblocks is a constant 1, 2 or 4. */
static ALWAYS_INLINE void multiply_blocks(const struct lookup128 *lookup, const uint8_t *groups,
                                          size_t block_nbytes, const uint8_t **escapes,
                                          unsigned nblocks, const float *x, size_t ncols,
                                          float *sums) {
    struct sums128 sum[4];
    const uint8_t *next[4];

#pragma GCC unroll 4
    for (unsigned b = 0; b < nblocks; b++) {
#pragma GCC unroll 4
        for (unsigned q = 0; q < R4_NQUARTERS; q++)
            sum[b].quarter[q] = vld1q_f32(sums + b * R4_NROWS + 4 * q);
        next[b] = escapes[b];
    }
    size_t col = 0;
    for (; col + R4_NCOLS <= ncols; col += R4_NCOLS) {
#pragma GCC unroll 4
        for (unsigned b = 0; b < nblocks; b++)
            multiply_group(lookup, groups + b * block_nbytes, &next[b], x + col, R4_NCOLS, &sum[b]);
        groups += R4_NBYTES;
    }
    for (unsigned b = 0; b < nblocks && col < ncols; b++)
        multiply_group(lookup, groups + b * block_nbytes, &next[b], x + col, ncols - col, &sum[b]);
#pragma GCC unroll 4
    for (unsigned b = 0; b < nblocks; b++) {
#pragma GCC unroll 4
        for (unsigned q = 0; q < R4_NQUARTERS; q++)
            vst1q_f32(sums + b * R4_NROWS + 4 * q, sum[b].quarter[q]);
        escapes[b] = next[b];
    }
}

void r4_matvec_neon(const struct r4_lookup *lookup, const uint8_t *groups, size_t block_nbytes,
                    const uint8_t **escapes, size_t nblocks, const float *x, size_t ncols,
                    float *sums) {
    struct lookup128 l = r4_lookup128(lookup);

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
