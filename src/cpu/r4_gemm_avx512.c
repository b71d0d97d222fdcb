/* r4_gemm_avx512.c - several rows of x: a panel of decoded columns stays in the cache.
 *
 * 6 rows x 64 outputs are 24 sums in registers; 4 vectors of w and a broadcast of x feed 24 steps.
 * Loops over them must be unrolled, also at -O2, or the sums live in memory at a third of the
 * speed.
 */
#if defined(__x86_64__)

#include "cpu/r4_avx512.h"
#include "cpu/r4_kernels.h"

TARGET_AVX512 void r4_decode_avx512(const struct r4_lookup *lookup, const uint8_t *groups,
                                    size_t ngroups, const uint8_t **escapes, float *w,
                                    size_t stride) {
    struct lookup512 l = r4_lookup512(lookup);
    const uint8_t *next = *escapes;

    for (size_t g = 0; g < ngroups; g++) {
        r4_prefetch(groups + (ngroups + g) * R4_NBYTES);
        struct group512 group = r4_load512(&l, groups + g * R4_NBYTES, &next);
#pragma GCC unroll 4
        for (unsigned c = 0; c < R4_NCOLS; c++)
            _mm512_storeu_ps(w + (g * R4_NCOLS + c) * stride, group.col[c]);
    }
    *escapes = next;
}

TARGET_AVX512 void r4_widen_avx512(const uint16_t *bf16, size_t n, float *out) {
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = (__mmask16)first_lanes(n - i < 16 ? (unsigned)(n - i) : 16);
        __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, bf16 + i));
        _mm512_mask_storeu_ps(out + i, lanes, _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)));
    }
}

/* nrows (1..6) and nblocks (1..4) are constants. */
TARGET_AVX512 static ALWAYS_INLINE void multiply_tile(const float *w, unsigned nblocks,
                                                      size_t ncols, const float *x, size_t ldx,
                                                      unsigned nrows, float *sums) {
    __m512 sum[6][4];

#pragma GCC unroll 6
    for (unsigned m = 0; m < nrows; m++)
#pragma GCC unroll 4
        for (unsigned b = 0; b < nblocks; b++)
            sum[m][b] = _mm512_loadu_ps(sums + m * R4_PANEL + b * R4_NROWS);
    for (size_t col = 0; col < ncols; col++) {
        __m512 column[4];
#pragma GCC unroll 4
        for (unsigned b = 0; b < nblocks; b++)
            column[b] = _mm512_loadu_ps(w + col * R4_PANEL + b * R4_NROWS);
#pragma GCC unroll 6
        for (unsigned m = 0; m < nrows; m++) {
            __m512 factor = _mm512_set1_ps(x[m * ldx + col]);
#pragma GCC unroll 4
            for (unsigned b = 0; b < nblocks; b++)
                sum[m][b] = r4_step512(sum[m][b], factor, column[b]);
        }
    }
#pragma GCC unroll 6
    for (unsigned m = 0; m < nrows; m++)
#pragma GCC unroll 4
        for (unsigned b = 0; b < nblocks; b++)
            _mm512_storeu_ps(sums + m * R4_PANEL + b * R4_NROWS, sum[m][b]);
}

TARGET_AVX512 static ALWAYS_INLINE void multiply_rows(const float *w, unsigned nblocks,
                                                      size_t ncols, const float *x, size_t ldx,
                                                      size_t nrows, float *sums) {
    for (; nrows >= 6; nrows -= 6) {
        multiply_tile(w, nblocks, ncols, x, ldx, 6, sums);
        x += 6 * ldx;
        sums += 6 * R4_PANEL;
    }
    switch (nrows) {
    case 5:
        multiply_tile(w, nblocks, ncols, x, ldx, 5, sums);
        break;
    case 4:
        multiply_tile(w, nblocks, ncols, x, ldx, 4, sums);
        break;
    case 3:
        multiply_tile(w, nblocks, ncols, x, ldx, 3, sums);
        break;
    case 2:
        multiply_tile(w, nblocks, ncols, x, ldx, 2, sums);
        break;
    case 1:
        multiply_tile(w, nblocks, ncols, x, ldx, 1, sums);
        break;
    default:
        break;
    }
}

TARGET_AVX512 void r4_gemm_avx512(const float *w, size_t nblocks, size_t ncols, const float *x,
                                  size_t ldx, size_t nrows, float *sums) {
    switch (nblocks) {
    case 4:
        multiply_rows(w, 4, ncols, x, ldx, nrows, sums);
        break;
    case 3:
        multiply_rows(w, 3, ncols, x, ldx, nrows, sums);
        break;
    case 2:
        multiply_rows(w, 2, ncols, x, ldx, nrows, sums);
        break;
    default:
        multiply_rows(w, 1, ncols, x, ldx, nrows, sums);
        break;
    }
}

#endif
