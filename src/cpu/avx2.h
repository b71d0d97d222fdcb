/* avx2.h - 32 weights at a time: load and split, look up, join and store; a tile is 4 vectors.
 *
 * AVX2 has no masks for bytes, so the last tile of a row goes through a copy of full size.
 */
#ifndef BINADE_CPU_AVX2_H
#define BINADE_CPU_AVX2_H

#include "cpu/x86_bits.h"
#include "format/tile.h"

enum { NVECTORS = TILE / 32 };

TARGET_AVX2 static ALWAYS_INLINE __m256i load256(const uint8_t *from) {
    return _mm256_loadu_si256((const __m256i *)from);
}

TARGET_AVX2 static ALWAYS_INLINE void store256(uint8_t *to, __m256i bytes) {
    _mm256_storeu_si256((__m256i *)to, bytes);
}

/* The top bits of 64 bytes. */
TARGET_AVX2 static ALWAYS_INLINE uint64_t top_bits(__m256i low, __m256i high) {
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high)
                                                     << 32;
}

/* Two vectors of 16-bit lanes, all below 256, as bytes. */
TARGET_AVX2 static ALWAYS_INLINE __m256i narrow(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8);
}

/* 32 weights. */
struct split256 {
    __m256i exponent, raw;
};

TARGET_AVX2 static ALWAYS_INLINE struct split256 bf16_load256(const uint8_t *bf16) {
    const __m256i byte = _mm256_set1_epi16(0xff), mantissa = _mm256_set1_epi16(0x7f);
    __m256i w0 = load256(bf16), w1 = load256(bf16 + 32);
    __m256i e0 = _mm256_and_si256(_mm256_srli_epi16(w0, 7), byte);
    __m256i e1 = _mm256_and_si256(_mm256_srli_epi16(w1, 7), byte);
    __m256i sign0 = _mm256_slli_epi16(_mm256_srli_epi16(w0, 15), 7);
    __m256i sign1 = _mm256_slli_epi16(_mm256_srli_epi16(w1, 15), 7);

    return (struct split256){
        .exponent = narrow(e0, e1),
        .raw = narrow(_mm256_or_si256(sign0, _mm256_and_si256(w0, mantissa)),
                      _mm256_or_si256(sign1, _mm256_and_si256(w1, mantissa))),
    };
}

TARGET_AVX2 static ALWAYS_INLINE void bf16_store256(uint8_t *bf16, __m256i exponent, __m256i raw) {
    const __m256i top = _mm256_set1_epi8(-128);
    /* Unpacking works within 128 bits; in this order its results are whole. */
    __m256i e = _mm256_permute4x64_epi64(exponent, 0xd8);
    __m256i r = _mm256_permute4x64_epi64(raw, 0xd8);
    __m256i low = _mm256_or_si256(_mm256_and_si256(top, _mm256_slli_epi16(e, 7)),
                                  _mm256_andnot_si256(top, r));
    __m256i high = _mm256_or_si256(_mm256_andnot_si256(top, _mm256_srli_epi16(e, 1)),
                                   _mm256_and_si256(top, r));
    store256(bf16, _mm256_unpacklo_epi8(low, high));
    store256(bf16 + 32, _mm256_unpackhi_epi8(low, high));
}

/* 32 neighbouring entries of a table of 256 bytes, and entry 0, in registers. */
struct window256 {
    const uint8_t *table;
    __m256i base;      /* the index of the first of the 32 */
    __m256i low, high; /* 16 entries each, twice */
    __m256i entry0;
};

TARGET_AVX2 static ALWAYS_INLINE struct window256 window_at(const uint8_t table[256],
                                                            unsigned base) {
    const __m128i *from = (const __m128i *)(table + base);
    return (struct window256){
        .table = table,
        .base = _mm256_set1_epi8((char)base),
        .low = _mm256_broadcastsi128_si256(_mm_loadu_si128(from)),
        .high = _mm256_broadcastsi128_si256(_mm_loadu_si128(from + 1)),
        .entry0 = _mm256_set1_epi8((char)table[0]),
    };
}

TARGET_AVX2 static __m256i look_up_each(const uint8_t table[256], __m256i at) {
    uint8_t bytes[32];
    store256(bytes, at);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = table[bytes[i]];
    return load256(bytes);
}

TARGET_AVX2 static ALWAYS_INLINE __m256i look_up256(const struct window256 *window, __m256i at) {
    __m256i i = _mm256_sub_epi8(at, window->base);
    __m256i is_inside = _mm256_cmpeq_epi8(_mm256_min_epu8(i, _mm256_set1_epi8(31)), i);
    __m256i is_0 = _mm256_cmpeq_epi8(at, _mm256_setzero_si256());
    __m256i low = _mm256_shuffle_epi8(window->low, i), high = _mm256_shuffle_epi8(window->high, i);

    if (_mm256_movemask_epi8(_mm256_or_si256(is_inside, is_0)) != -1)
        return look_up_each(window->table, at);
    __m256i found = _mm256_blendv_epi8(low, high, _mm256_slli_epi16(i, 3)); /* bit 4 chooses */
    return _mm256_blendv_epi8(found, window->entry0, is_0);
}

/* What both encoders begin with. The 32 entries begin some way below the most frequent exponent, as
 * most of those that occur are smaller. */
TARGET_AVX2 static ALWAYS_INLINE struct window256 rank_window(const uint8_t rank_of[256]) {
    unsigned mode = 0;
    while (mode < 255 && rank_of[mode] > 0)
        mode++;
    unsigned base = mode < 24 ? 0 : mode - 24;
    return window_at(rank_of, base < 224 ? base : 224);
}

/* The raw bytes, exponents and ranks of a tile of n (1..TILE) weights. Past n ranks are 0. */
TARGET_AVX2 static ALWAYS_INLINE void tile_load256(const uint8_t *bf16, unsigned n,
                                                   const struct window256 *rank_of, uint8_t *raw,
                                                   uint8_t exponents[TILE], __m256i ranks[4]) {
    uint8_t copy[2 * TILE], raw_copy[TILE];
    const uint8_t *from = bf16;
    uint8_t *to = raw;

    if (n < TILE) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, bf16, 2 * (size_t)n);
        from = copy;
        to = raw_copy;
    }
#pragma GCC unroll 4
    for (unsigned v = 0; v < NVECTORS; v++) {
        struct split256 weights = bf16_load256(from + 64 * v);
        store256(to + 32 * v, weights.raw);
        store256(exponents + 32 * v, weights.exponent);
        ranks[v] = look_up256(rank_of, weights.exponent);
    }
    if (n < TILE) {
        memcpy(raw, raw_copy, n);
#pragma GCC unroll 4
        for (unsigned v = 0; v < NVECTORS; v++)
            store256(raw_copy + 32 * v, ranks[v]);
        memset(raw_copy + n, 0, TILE - n);
#pragma GCC unroll 4
        for (unsigned v = 0; v < NVECTORS; v++)
            ranks[v] = load256(raw_copy + 32 * v);
    }
}

/* What both decoders end with: joins a tile of n (1..TILE) weights. */
TARGET_AVX2 static ALWAYS_INLINE void tile_store256(uint8_t *bf16, const __m256i exponents[4],
                                                    const uint8_t *raw, unsigned n) {
    uint8_t copy[2 * TILE], raw_copy[TILE];
    uint8_t *to = bf16;

    if (n < TILE) {
        memcpy(raw_copy, raw, n);
        raw = raw_copy;
        to = copy;
    }
#pragma GCC unroll 4
    for (unsigned v = 0; v < NVECTORS; v++)
        bf16_store256(to + 64 * v, exponents[v], load256(raw + 32 * v));
    if (n < TILE) memcpy(bf16, copy, 2 * (size_t)n);
}

TARGET_AVX2 static ALWAYS_INLINE unsigned max_byte256(__m256i x) {
    __m128i most = _mm_max_epu8(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    /* One instruction finds the smallest of eight 16-bit lanes; none finds the largest. */
    __m128i least = _mm_xor_si128(most, _mm_set1_epi8(-1));
    least = _mm_minpos_epu16(_mm_min_epu8(least, _mm_srli_epi16(least, 8)));
    return 255 - ((unsigned)_mm_cvtsi128_si32(least) & 255);
}

/* Four sums at once: the sum of the bytes of v[c] in bits 16 * c.. of the result. */
TARGET_AVX2 static ALWAYS_INLINE uint64_t sum_bytes256(const __m256i v[4]) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i s0 = _mm256_sad_epu8(v[0], zero), s1 = _mm256_sad_epu8(v[1], zero);
    __m256i s2 = _mm256_sad_epu8(v[2], zero), s3 = _mm256_sad_epu8(v[3], zero);
    __m256i s =
        _mm256_or_si256(_mm256_or_si256(s0, _mm256_slli_epi64(s1, 16)),
                        _mm256_or_si256(_mm256_slli_epi64(s2, 32), _mm256_slli_epi64(s3, 48)));
    __m128i half = _mm_add_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_add_epi16(half, _mm_unpackhi_epi64(half, half)));
}

#endif
