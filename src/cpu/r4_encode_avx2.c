/* r4_encode_avx2.c - 16 rows x 32 columns at a time; r4_encode_avx512.c says how. */
#if defined(__x86_64__)

#include "cpu/avx2.h"
#include "cpu/r4_kernels.h"
#include "r4/r4_plain.h"

enum { STRIP_NCOLS = 32, STRIP_NGROUPS = STRIP_NCOLS / R4_NCOLS };

TARGET_AVX2 static ALWAYS_INLINE void interleave(__m256i row[4]) {
    __m256i low01 = _mm256_unpacklo_epi8(row[0], row[1]);
    __m256i high01 = _mm256_unpackhi_epi8(row[0], row[1]);
    __m256i low23 = _mm256_unpacklo_epi8(row[2], row[3]);
    __m256i high23 = _mm256_unpackhi_epi8(row[2], row[3]);

    row[0] = _mm256_unpacklo_epi16(low01, low23);
    row[1] = _mm256_unpackhi_epi16(low01, low23);
    row[2] = _mm256_unpacklo_epi16(high01, high23);
    row[3] = _mm256_unpackhi_epi16(high01, high23);
}

/* 16 bytes to the same place of each group. */
TARGET_AVX2 static ALWAYS_INLINE void store_quarters(uint8_t *groups, const __m256i v[4]) {
    for (unsigned i = 0; i < 4; i++) {
        uint8_t *to = groups + i * R4_NBYTES;
        _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(v[i]));
        _mm_storeu_si128((__m128i *)(to + 4 * R4_NBYTES), _mm256_extracti128_si256(v[i], 1));
    }
}

/* A row's n (1..32) weights; past n and without a row, zeros. */
TARGET_AVX2 static ALWAYS_INLINE void load_row(const uint8_t *bf16, bool exists, unsigned n,
                                               const struct window256 *code_of, __m256i *raw,
                                               __m256i *code) {
    uint8_t copy[2 * STRIP_NCOLS], codes[STRIP_NCOLS];

    if (!exists) {
        *raw = *code = _mm256_setzero_si256();
        return;
    }
    if (n < STRIP_NCOLS) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, bf16, 2 * (size_t)n);
        bf16 = copy;
    }
    struct split256 w = bf16_load256(bf16);
    *raw = w.raw;
    *code = look_up256(code_of, w.exponent);
    if (n < STRIP_NCOLS) {
        store256(codes, *code);
        memset(codes + n, 0, STRIP_NCOLS - n);
        *code = load256(codes);
    }
}

/* ncols 1..32. Whether the strip has escapes. */
TARGET_AVX2 static bool encode_strip(const uint8_t *bf16, size_t stride, size_t nrows,
                                     unsigned ncols, const struct window256 *code_of,
                                     uint8_t *groups) {
    const __m256i escape = _mm256_set1_epi8(R4_ESCAPE);
    __m256i codes[4][4], any = _mm256_setzero_si256();

    for (unsigned quarter = 0; quarter < 4; quarter++) {
        __m256i raw[4];
        for (unsigned i = 0; i < 4; i++) {
            size_t row = quarter * 4 + i;
            bool exists = row < nrows;
            load_row(exists ? bf16 + row * stride : bf16, exists, ncols, code_of, &raw[i],
                     &codes[quarter][i]);
            any = _mm256_or_si256(any, _mm256_cmpeq_epi8(codes[quarter][i], escape));
        }
        interleave(raw);
        interleave(codes[quarter]);
        store_quarters(groups + quarter * 16, raw);
    }
    for (unsigned half = 0; half < 2; half++) {
        __m256i both[4];
        for (unsigned i = 0; i < 4; i++)
            both[i] = _mm256_or_si256(codes[half][i], _mm256_slli_epi16(codes[half + 2][i], 4));
        store_quarters(groups + R4_NWEIGHTS + half * 16, both);
    }
    return _mm256_movemask_epi8(any) != 0;
}

TARGET_AVX2 void r4_encode_avx2(const uint8_t *bf16, size_t stride, size_t nrows, size_t ncols,
                                const uint8_t code_of[256], uint8_t *groups, uint8_t **escapes) {
    struct window256 window = rank_window(code_of);

    for (size_t col = 0; col < ncols; col += STRIP_NCOLS) {
        uint8_t copy[STRIP_NGROUPS * R4_NBYTES];
        unsigned n = ncols - col < STRIP_NCOLS ? (unsigned)(ncols - col) : STRIP_NCOLS;
        unsigned ngroups = (n + R4_NCOLS - 1) / R4_NCOLS;
        bool whole = n == STRIP_NCOLS;
        bool any = encode_strip(bf16 + 2 * col, stride, nrows, n, &window, whole ? groups : copy);
        if (!whole) memcpy(groups, copy, ngroups * R4_NBYTES);
        if (any) r4_put_escapes(groups, ngroups, bf16 + 2 * col, stride, escapes);
        groups += ngroups * R4_NBYTES;
    }
}

#endif
