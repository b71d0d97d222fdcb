/* avx512.h - 64 weights at a time: load and split, look up, join and store.
 *
 * `n` is how many of the 64 lanes exist, 0..64; memory of the others is not touched. Whole vectors
 * take the plain instructions, as some CPUs are slow at masked stores.
 */
#ifndef BINADE_CPU_AVX512_H
#define BINADE_CPU_AVX512_H

#include "cpu/x86_bits.h"

/* A table of 256 bytes in registers. */
struct table512 {
    __m512i quarter[4];
};

TARGET_AVX512 static ALWAYS_INLINE struct table512 table_load512(const uint8_t table[256]) {
    struct table512 t;
    for (int i = 0; i < 4; i++)
        t.quarter[i] = _mm512_loadu_si512(table + 64 * i);
    return t;
}

TARGET_AVX512 static ALWAYS_INLINE __m512i table_look_up512(const struct table512 *t, __m512i at) {
    __m512i low = _mm512_permutex2var_epi8(t->quarter[0], at, t->quarter[1]);
    __m512i high = _mm512_permutex2var_epi8(t->quarter[2], at, t->quarter[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high);
}

/* Bits of b where those of `mask` are 1, of c elsewhere. */
TARGET_AVX512 static ALWAYS_INLINE __m512i select512(__m512i mask, __m512i b, __m512i c) {
    return _mm512_ternarylogic_epi64(mask, b, c, 0xca);
}

TARGET_AVX512 static ALWAYS_INLINE __m512i bytes_load512(const uint8_t *from, unsigned n) {
    if (n == 64) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi8(first_lanes(n), from);
}

TARGET_AVX512 static ALWAYS_INLINE void bytes_store512(uint8_t *to, __m512i bytes, unsigned n) {
    if (n == 64)
        _mm512_storeu_si512(to, bytes);
    else
        _mm512_mask_storeu_epi8(to, first_lanes(n), bytes);
}

/* Weights as exponents and raw bytes; both 0 in lanes that do not exist. */
struct split512 {
    __m512i exponent, raw;
};

TARGET_AVX512 static ALWAYS_INLINE struct split512 bf16_load512(const uint8_t *bf16, unsigned n) {
    const __m512i even = _mm512_set_epi64(
        0x7e7c7a7876747270, 0x6e6c6a6866646260, 0x5e5c5a5856545250, 0x4e4c4a4846444240,
        0x3e3c3a3836343230, 0x2e2c2a2826242220, 0x1e1c1a1816141210, 0x0e0c0a0806040200);
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi8(1));
    __m512i w0, w1;

    if (n == 64) {
        w0 = _mm512_loadu_si512(bf16);
        w1 = _mm512_loadu_si512(bf16 + 64);
    } else {
        uint64_t lanes = first_lanes(n);
        w0 = _mm512_maskz_loadu_epi16((__mmask32)lanes, bf16);
        w1 = _mm512_maskz_loadu_epi16((__mmask32)(lanes >> 32), bf16 + 64);
    }
    __m512i low = _mm512_permutex2var_epi8(w0, even, w1);
    __m512i high = _mm512_permutex2var_epi8(w0, odd, w1);
    __m512i high_twice = _mm512_add_epi8(high, high);
    __m512i last = _mm512_srli_epi16(low, 7); /* of the exponent, in bit 0 of every byte */
    return (struct split512){
        .exponent = select512(_mm512_set1_epi8(1), last, high_twice),
        .raw = select512(_mm512_set1_epi8(-128), high, low),
    };
}

TARGET_AVX512 static ALWAYS_INLINE void bf16_store512(uint8_t *bf16, __m512i exponent, __m512i raw,
                                                      unsigned n) {
    /* Unpacking works within 128 bits; in this order of 64-bit lanes its results are whole. */
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    const __m512i top = _mm512_set1_epi8(-128);
    __m512i e = _mm512_permutexvar_epi64(order, exponent);
    __m512i r = _mm512_permutexvar_epi64(order, raw);
    __m512i low = select512(top, _mm512_slli_epi16(e, 7), r);
    __m512i high = select512(top, r, _mm512_srli_epi16(e, 1));
    __m512i w0 = _mm512_unpacklo_epi8(low, high), w1 = _mm512_unpackhi_epi8(low, high);

    if (n == 64) {
        _mm512_storeu_si512(bf16, w0);
        _mm512_storeu_si512(bf16 + 64, w1);
    } else {
        uint64_t lanes = first_lanes(n);
        _mm512_mask_storeu_epi16(bf16, (__mmask32)lanes, w0);
        _mm512_mask_storeu_epi16(bf16 + 64, (__mmask32)(lanes >> 32), w1);
    }
}

/* What both encoders begin with: n weights become raw bytes in memory, exponents and ranks. */
struct ranks512 {
    __m512i rank, exponent; /* 0 in lanes that do not exist */
    uint64_t lanes;         /* those that exist */
};

TARGET_AVX512 static ALWAYS_INLINE struct ranks512
ranks_load512(const uint8_t *bf16, unsigned n, const struct table512 *rank_of, uint8_t *raw) {
    struct split512 weights = bf16_load512(bf16, n);
    uint64_t lanes = first_lanes(n);
    __m512i rank = table_look_up512(rank_of, weights.exponent);

    bytes_store512(raw, weights.raw, n);
    return (struct ranks512){_mm512_maskz_mov_epi8(lanes, rank), weights.exponent, lanes};
}

TARGET_AVX512 static ALWAYS_INLINE unsigned max_byte512(__m512i x) {
    __m256i m = _mm256_max_epu8(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i most = _mm_max_epu8(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    /* One instruction finds the smallest of eight 16-bit lanes; none finds the largest. */
    __m128i least = _mm_xor_si128(most, _mm_set1_epi8(-1));
    least = _mm_minpos_epu16(_mm_min_epu8(least, _mm_srli_epi16(least, 8)));
    return 255 - ((unsigned)_mm_cvtsi128_si32(least) & 255);
}

#endif
