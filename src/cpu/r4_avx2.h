/* r4_avx2.h - a group of R4 as four columns of two vectors of 8 float32 lanes. */
#ifndef BINADE_CPU_R4_AVX2_H
#define BINADE_CPU_R4_AVX2_H

#include "cpu/avx2.h"
#include "format/bf16.h"
#include "r4/r4_layout.h"

struct lookup256 {
    __m256i high, low; /* the 16 entries, twice */
};

/* Rows 0..7 of the four columns, or rows 8..15. */
struct half256 {
    __m256 col[R4_NCOLS];
};

struct group256 {
    struct half256 half[2];
};

TARGET_AVX2 static ALWAYS_INLINE struct lookup256 r4_lookup256(const struct r4_lookup *lookup) {
    return (struct lookup256){
        .high = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)lookup->high)),
        .low = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)lookup->low)),
    };
}

/* Exponents of the escapes among 32 codes, 0 elsewhere. Not inlined: most groups have none. */
TARGET_AVX2 static __attribute__((noinline)) __m256i r4_take_escapes256(uint32_t lanes,
                                                                        const uint8_t **escapes) {
    uint8_t bytes[32] = {0};
    for (; lanes; lanes &= lanes - 1)
        bytes[__builtin_ctz(lanes)] = *(*escapes)++;
    return load256(bytes);
}

TARGET_AVX2 static ALWAYS_INLINE struct half256 r4_load256(const struct lookup256 *lookup,
                                                           const uint8_t *raw_at, __m256i code,
                                                           const uint8_t **escapes) {
    const __m256i top = _mm256_set1_epi8(-128), zero = _mm256_setzero_si256();
    __m256i raw = load256(raw_at);
    __m256i high = _mm256_shuffle_epi8(lookup->high, code);
    __m256i low = _mm256_shuffle_epi8(lookup->low, code);
    __m256i is_escape = _mm256_cmpeq_epi8(code, _mm256_set1_epi8(R4_ESCAPE));
    uint32_t lanes = (uint32_t)_mm256_movemask_epi8(is_escape);

    if (__builtin_expect(lanes != 0, 0)) {
        __m256i exponent = r4_take_escapes256(lanes, escapes);
        high = _mm256_or_si256(high, _mm256_andnot_si256(top, _mm256_srli_epi16(exponent, 1)));
        low = _mm256_or_si256(low, _mm256_and_si256(top, _mm256_slli_epi16(exponent, 7)));
    }
    low = _mm256_or_si256(low, _mm256_andnot_si256(top, raw));
    high = _mm256_or_si256(high, _mm256_and_si256(top, raw));
    __m256i w01 = _mm256_unpacklo_epi8(low, high), w23 = _mm256_unpackhi_epi8(low, high);
    return (struct half256){{
        _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, w01)),
        _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, w01)),
        _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, w23)),
        _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, w23)),
    }};
}

TARGET_AVX2 static ALWAYS_INLINE struct group256
r4_load_group256(const struct lookup256 *lookup, const uint8_t *group, const uint8_t **escapes) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i codes = load256(group + R4_NWEIGHTS);
    __m256i low = _mm256_and_si256(codes, nibble);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
    struct group256 g;
    g.half[0] = r4_load256(lookup, group, low, escapes);
    g.half[1] = r4_load256(lookup, group + 32, high, escapes);
    return g;
}

/* One step of 8 sums. The target has no fused multiply-add, so no compiler can make one of it. */
TARGET_AVX2 static ALWAYS_INLINE __m256 r4_step256(__m256 sum, __m256 x, __m256 w) {
    return _mm256_add_ps(sum, _mm256_mul_ps(x, w));
}

#endif
