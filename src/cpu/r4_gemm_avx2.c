/* r4_gemm_avx2.c - several rows of x; r4_gemm_avx512.c says how. 6 rows x 16 outputs are 12 sums
 * in registers. */
#if defined(__x86_64__)

#include "cpu/r4_avx2.h"
#include "cpu/r4_kernels.h"

TARGET_AVX2 void r4_decode_avx2(const struct r4_lookup *lookup, const uint8_t *groups,
                                size_t ngroups, const uint8_t **escapes, float *w, size_t stride) {
    struct lookup256 l = r4_lookup256(lookup);
    const uint8_t *next = *escapes;

    for (size_t g = 0; g < ngroups; g++) {
        r4_prefetch(groups + (ngroups + g) * R4_NBYTES);
        struct group256 group = r4_load_group256(&l, groups + g * R4_NBYTES, &next);
#pragma GCC unroll 4
        for (unsigned c = 0; c < R4_NCOLS; c++) {
            float *to = w + (g * R4_NCOLS + c) * stride;
            _mm256_storeu_ps(to, group.half[0].col[c]);
            _mm256_storeu_ps(to + 8, group.half[1].col[c]);
        }
    }
    *escapes = next;
}

TARGET_AVX2 void r4_widen_avx2(const uint16_t *bf16, size_t n, float *out) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(bf16 + i)));
        _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)));
    }
    for (; i < n; i++) {
        uint32_t bits = (uint32_t)bf16[i] << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

/* nrows (1..6) is a constant. */
TARGET_AVX2 static ALWAYS_INLINE void multiply_tile(const float *w, size_t ncols, const float *x,
                                                    size_t ldx, unsigned nrows, float *sums) {
    __m256 sum[6][2];

#pragma GCC unroll 6
    for (unsigned m = 0; m < nrows; m++) {
        sum[m][0] = _mm256_loadu_ps(sums + m * R4_PANEL);
        sum[m][1] = _mm256_loadu_ps(sums + m * R4_PANEL + 8);
    }
    for (size_t col = 0; col < ncols; col++) {
        __m256 w0 = _mm256_loadu_ps(w + col * R4_PANEL);
        __m256 w1 = _mm256_loadu_ps(w + col * R4_PANEL + 8);
#pragma GCC unroll 6
        for (unsigned m = 0; m < nrows; m++) {
            __m256 factor = _mm256_broadcast_ss(x + m * ldx + col);
            sum[m][0] = r4_step256(sum[m][0], factor, w0);
            sum[m][1] = r4_step256(sum[m][1], factor, w1);
        }
    }
#pragma GCC unroll 6
    for (unsigned m = 0; m < nrows; m++) {
        _mm256_storeu_ps(sums + m * R4_PANEL, sum[m][0]);
        _mm256_storeu_ps(sums + m * R4_PANEL + 8, sum[m][1]);
    }
}

TARGET_AVX2 void r4_gemm_avx2(const float *w, size_t nblocks, size_t ncols, const float *x,
                              size_t ldx, size_t nrows, float *sums) {
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
