/* r4_avx512.h - a group of R4 as four columns of 16 float32 lanes. */
#ifndef BINADE_CPU_R4_AVX512_H
#define BINADE_CPU_R4_AVX512_H

#include "cpu/avx512.h"
#include "r4/r4_layout.h"

struct lookup512 {
    __m512i high, low; /* the 16 entries, four times */
};

struct group512 {
    __m512 col[R4_NCOLS];
};

TARGET_AVX512 static ALWAYS_INLINE struct lookup512 r4_lookup512(const struct r4_lookup *lookup) {
    return (struct lookup512){
        .high = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)lookup->high)),
        .low = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)lookup->low)),
    };
}

/* The escapes of those lanes, 0 elsewhere. */
TARGET_AVX512 static ALWAYS_INLINE __m512i r4_take_escapes512(uint64_t lanes,
                                                              const uint8_t **escapes) {
    unsigned n = (unsigned)__builtin_popcountll(lanes);
    __m512i exponents = _mm512_maskz_loadu_epi8(first_lanes(n), *escapes);
    *escapes += n;
    return _mm512_maskz_expand_epi8(lanes, exponents);
}

TARGET_AVX512 static ALWAYS_INLINE struct group512
r4_load512(const struct lookup512 *lookup, const uint8_t *group, const uint8_t **escapes) {
    const __m512i high_half = _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0);
    const __m512i top = _mm512_set1_epi8(-128);
    __m512i raw = _mm512_loadu_si512(group);
    __m256i halves = _mm256_loadu_si256((const __m256i *)(group + R4_NWEIGHTS));
    __m512i code = _mm512_and_si512(_mm512_srlv_epi64(_mm512_broadcast_i64x4(halves), high_half),
                                    _mm512_set1_epi8(15));
    __m512i high = _mm512_shuffle_epi8(lookup->high, code);
    __m512i low = _mm512_shuffle_epi8(lookup->low, code);
    uint64_t lanes = _mm512_cmpeq_epi8_mask(code, _mm512_set1_epi8(R4_ESCAPE));

    if (__builtin_expect(lanes != 0, 0)) {
        __m512i exponent = r4_take_escapes512(lanes, escapes);
        high = _mm512_or_si512(
            high, _mm512_and_si512(_mm512_srli_epi16(exponent, 1), _mm512_set1_epi8(0x7f)));
        low = _mm512_or_si512(low, _mm512_slli_epi16(exponent, 7)); /* only bit 7 is used */
    }
    low = select512(top, low, raw);
    high = select512(top, raw, high);
    __m512i zero = _mm512_setzero_si512();
    __m512i w01 = _mm512_unpacklo_epi8(low, high), w23 = _mm512_unpackhi_epi8(low, high);
    return (struct group512){{
        _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, w01)),
        _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, w01)),
        _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, w23)),
        _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, w23)),
    }};
}

/* One step of 16 sums: multiply, then add. Compilers may fuse `*` and `+` of vectors where the
 * build forgets -ffp-contract=off, but not these two. */
TARGET_AVX512 static ALWAYS_INLINE __m512 r4_step512(__m512 sum, __m512 x, __m512 w) {
    __m512 product = _mm512_mul_round_ps(x, w, _MM_FROUND_CUR_DIRECTION);
    return _mm512_add_round_ps(sum, product, _MM_FROUND_CUR_DIRECTION);
}

#endif
