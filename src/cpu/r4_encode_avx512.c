/* r4_encode_avx512.c - 16 rows x 64 columns at a time, four rows after four. */
#if defined(__x86_64__)

#include "cpu/avx512.h"
#include "cpu/r4_kernels.h"
#include "r4/r4_plain.h"

enum { STRIP_NCOLS = 64, STRIP_NGROUPS = STRIP_NCOLS / R4_NCOLS };

/* Four rows of bytes become columns: 16 bytes l of vector v are columns 16 * l + 4 * v.. of them.
 */
TARGET_AVX512 static ALWAYS_INLINE void interleave(__m512i row[4]) {
    __m512i low01 = _mm512_unpacklo_epi8(row[0], row[1]);
    __m512i high01 = _mm512_unpackhi_epi8(row[0], row[1]);
    __m512i low23 = _mm512_unpacklo_epi8(row[2], row[3]);
    __m512i high23 = _mm512_unpackhi_epi8(row[2], row[3]);

    row[0] = _mm512_unpacklo_epi16(low01, low23);
    row[1] = _mm512_unpackhi_epi16(low01, low23);
    row[2] = _mm512_unpacklo_epi16(high01, high23);
    row[3] = _mm512_unpackhi_epi16(high01, high23);
}

/* 16 bytes to the same place of each group. */
TARGET_AVX512 static ALWAYS_INLINE void store_quarters(uint8_t *groups, const __m512i v[4]) {
    for (unsigned i = 0; i < 4; i++) {
        uint8_t *to = groups + i * R4_NBYTES;
        _mm_storeu_si128((__m128i *)to, _mm512_castsi512_si128(v[i]));
        _mm_storeu_si128((__m128i *)(to + 4 * R4_NBYTES), _mm512_extracti32x4_epi32(v[i], 1));
        _mm_storeu_si128((__m128i *)(to + 8 * R4_NBYTES), _mm512_extracti32x4_epi32(v[i], 2));
        _mm_storeu_si128((__m128i *)(to + 12 * R4_NBYTES), _mm512_extracti32x4_epi32(v[i], 3));
    }
}

/* ncols 1..64. Whether the strip has escapes. */
TARGET_AVX512 static bool encode_strip(const uint8_t *bf16, size_t stride, size_t nrows,
                                       unsigned ncols, const struct table512 *code_of,
                                       uint8_t *groups) {
    __m512i codes[4][4];
    __mmask64 escapes = 0;

    for (unsigned quarter = 0; quarter < 4; quarter++) {
        __m512i raw[4];
        for (unsigned i = 0; i < 4; i++) {
            unsigned row = quarter * 4 + i;
            unsigned n = row < nrows ? ncols : 0;
            struct split512 w = bf16_load512(n ? bf16 + row * stride : bf16, n);
            raw[i] = w.raw;
            codes[quarter][i] =
                _mm512_maskz_mov_epi8(first_lanes(n), table_look_up512(code_of, w.exponent));
            escapes |= _mm512_cmpeq_epi8_mask(codes[quarter][i], _mm512_set1_epi8(R4_ESCAPE));
        }
        interleave(raw);
        interleave(codes[quarter]);
        store_quarters(groups + quarter * 16, raw);
    }
    for (unsigned half = 0; half < 2; half++) {
        __m512i both[4];
        for (unsigned i = 0; i < 4; i++)
            both[i] = _mm512_or_si512(codes[half][i], _mm512_slli_epi16(codes[half + 2][i], 4));
        store_quarters(groups + R4_NWEIGHTS + half * 16, both);
    }
    return escapes != 0;
}

TARGET_AVX512 void r4_encode_avx512(const uint8_t *bf16, size_t stride, size_t nrows, size_t ncols,
                                    const uint8_t code_of[256], uint8_t *groups,
                                    uint8_t **escapes) {
    struct table512 table = table_load512(code_of);

    for (size_t col = 0; col < ncols; col += STRIP_NCOLS) {
        uint8_t copy[STRIP_NGROUPS * R4_NBYTES];
        unsigned n = ncols - col < STRIP_NCOLS ? (unsigned)(ncols - col) : STRIP_NCOLS;
        unsigned ngroups = (n + R4_NCOLS - 1) / R4_NCOLS;
        bool whole = n == STRIP_NCOLS;
        bool any = encode_strip(bf16 + 2 * col, stride, nrows, n, &table, whole ? groups : copy);
        if (!whole) memcpy(groups, copy, ngroups * R4_NBYTES);
        if (any) r4_put_escapes(groups, ngroups, bf16 + 2 * col, stride, escapes);
        groups += ngroups * R4_NBYTES;
    }
}

#endif
