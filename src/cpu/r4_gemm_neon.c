/* r4_gemm_neon.c - several rows of x; r4_gemm_avx512.c says how. 6 rows x 16 outputs are 24 sums
 * in registers. */
#if defined(__aarch64__)

#include "cpu/r4_kernels.h"
#include "cpu/r4_neon.h"

void r4_decode_neon(const struct r4_lookup *lookup, const uint8_t *groups, size_t ngroups,
                    const uint8_t **escapes, float *w, size_t stride) {
    struct lookup128 l = r4_lookup128(lookup);
    const uint8_t *next = *escapes;

    for (size_t g = 0; g < ngroups; g++) {
        r4_prefetch(groups + (ngroups + g) * R4_NBYTES);
        struct group128 group = r4_load128(&l, groups + g * R4_NBYTES, &next);
#pragma GCC unroll 4
        for (unsigned c = 0; c < R4_NCOLS; c++)
#pragma GCC unroll 4
            for (unsigned q = 0; q < R4_NQUARTERS; q++)
                vst1q_f32(w + (g * R4_NCOLS + c) * stride + 4 * q, group.quarter[q].col[c]);
    }
    *escapes = next;
}

void r4_widen_neon(const uint16_t *bf16, size_t n, float *out) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint16x8_t words = vld1q_u16(bf16 + i);
        vst1q_f32(out + i, r4_low_columns(words));
        vst1q_f32(out + i + 4, r4_high_columns(words));
    }
    for (; i < n; i++) {
        uint32_t bits = (uint32_t)bf16[i] << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

/* nrows (1..6) is a constant. */
static ALWAYS_INLINE void multiply_tile(const float *w, size_t ncols, const float *x, size_t ldx,
                                        unsigned nrows, float *sums) {
    float32x4_t sum[6][R4_NQUARTERS];

#pragma GCC unroll 6
    for (unsigned m = 0; m < nrows; m++)
#pragma GCC unroll 4
        for (unsigned q = 0; q < R4_NQUARTERS; q++)
            sum[m][q] = vld1q_f32(sums + m * R4_PANEL + 4 * q);
    for (size_t col = 0; col < ncols; col++) {
        float32x4_t column[R4_NQUARTERS];
#pragma GCC unroll 4
        for (unsigned q = 0; q < R4_NQUARTERS; q++)
            column[q] = vld1q_f32(w + col * R4_PANEL + 4 * q);
#pragma GCC unroll 6
        for (unsigned m = 0; m < nrows; m++)
#pragma GCC unroll 4
            for (unsigned q = 0; q < R4_NQUARTERS; q++)
                sum[m][q] = vfmaq_n_f32(sum[m][q], column[q], x[m * ldx + col]);
    }
#pragma GCC unroll 6
    for (unsigned m = 0; m < nrows; m++)
#pragma GCC unroll 4
        for (unsigned q = 0; q < R4_NQUARTERS; q++)
            vst1q_f32(sums + m * R4_PANEL + 4 * q, sum[m][q]);
}

void r4_gemm_neon(const float *w, size_t nblocks, size_t ncols, const float *x, size_t ldx,
                  size_t nrows, float *sums) {
    for (; nrows >= 6; nrows -= 6) {
        for (size_t b = 0; b < nblocks; b++)
            multiply_tile(w + b * R4_NROWS, ncols, x, ldx, 6, sums + b * R4_NROWS);
        x += 6 * ldx;
        sums += 6 * R4_PANEL;
    }
    for (size_t b = 0; b < nblocks && nrows; b++) {
        const float *columns = w + b * R4_NROWS;
        float *to = sums + b * R4_NROWS;
        switch (nrows) {
        case 5:
            multiply_tile(columns, ncols, x, ldx, 5, to);
            break;
        case 4:
            multiply_tile(columns, ncols, x, ldx, 4, to);
            break;
        case 3:
            multiply_tile(columns, ncols, x, ldx, 3, to);
            break;
        case 2:
            multiply_tile(columns, ncols, x, ldx, 2, to);
            break;
        default:
            multiply_tile(columns, ncols, x, ldx, 1, to);
            break;
        }
    }
}

#endif
