/* Format 1, AVX-512: a tile is two vectors of codes.
 *
 * Decoding spreads b bytes over each 64-bit lane and shifts all 8 codes of a lane into place at
 * once (VPMULTISHIFTQB). Encoding squeezes 8 codes at a time (PEXT). Escapes are compressed and
 * expanded bytes.
 */
#if defined(__x86_64__)

#include "cpu/avx512.h"
#include "cpu/kernels_simd.h"
#include "format/fixed.h"

/* How codes of b bits lie in memory. */
struct layout {
    __m512i bytes;  /* the 8 bytes that hold the codes of each 64-bit lane */
    __m512i shifts; /* and the bit of the lane where each code starts */
    __m512i mask;   /* 2^b - 1 */
};

TARGET_AVX512 static ALWAYS_INLINE struct layout layout_of(unsigned b) {
    const __m512i steps = _mm512_set1_epi64(0x0706050403020100);
    const __m512i groups = _mm512_set_epi64(
        0x0707070707070707, 0x0606060606060606, 0x0505050505050505, 0x0404040404040404,
        0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const __m512i factor = _mm512_set1_epi16((short)b);

    /* Products of bytes stay below 64, so 16-bit lanes hold two of them side by side. */
    return (struct layout){
        .bytes = _mm512_add_epi8(steps, _mm512_mullo_epi16(groups, factor)),
        .shifts = _mm512_mullo_epi16(steps, factor),
        .mask = _mm512_set1_epi8((char)((1u << b) - 1)),
    };
}

/* 64 codes from 8 * b bytes at idx; reads 64. */
TARGET_AVX512 static ALWAYS_INLINE __m512i get_codes(const struct layout *layout,
                                                     const uint8_t *idx) {
    __m512i spread = _mm512_permutexvar_epi8(layout->bytes, _mm512_loadu_si512(idx));
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(layout->shifts, spread), layout->mask);
}

TARGET_AVX512 static ALWAYS_INLINE unsigned count_escapes(__m512i codes, __m512i escape) {
    return (unsigned)_mm_popcnt_u64(_mm512_cmpeq_epi8_mask(codes, escape));
}

/* Puts the exponents at esc where codes are escapes; returns how many. Reads 64 bytes. */
TARGET_AVX512 static ALWAYS_INLINE unsigned expand_escapes(__m512i *exponents, __m512i codes,
                                                           __m512i escape, const uint8_t *esc) {
    uint64_t is_escape = _mm512_cmpeq_epi8_mask(codes, escape);
    *exponents = _mm512_mask_expand_epi8(*exponents, is_escape, _mm512_loadu_si512(esc));
    return (unsigned)_mm_popcnt_u64(is_escape);
}

TARGET_AVX512 enum stream_fault fixed_decode_avx512(const uint8_t *raw, const uint8_t *meta,
                                                    size_t n, const uint8_t table[256],
                                                    const uint8_t **idx, const uint8_t *idx_end,
                                                    const uint8_t **esc, const uint8_t *esc_end,
                                                    uint8_t *bf16) {
    const struct table512 exponents = table_load512(table);

    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        unsigned n0 = nhere < 64 ? nhere : 64, n1 = nhere - n0, b = *meta & 15;

        if (!fixed_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (idx_end - *idx < fixed_tile_nbytes(*meta)) return STREAM_SHORT;
        struct layout layout = layout_of(b);
        __m512i codes0 = get_codes(&layout, *idx), codes1 = get_codes(&layout, *idx + 8 * b);
        *idx += fixed_tile_nbytes(*meta);

        __m512i e0, e1;
        if (b <= 6) {
            e0 = _mm512_permutexvar_epi8(codes0, exponents.quarter[0]);
            e1 = _mm512_permutexvar_epi8(codes1, exponents.quarter[0]);
        } else {
            e0 = table_look_up512(&exponents, codes0);
            e1 = table_look_up512(&exponents, codes1);
        }
        if (*meta & FIXED_ESCAPE) {
            const uint8_t *at = *esc;
            at += expand_escapes(&e0, codes0, layout.mask, at);
            at += expand_escapes(&e1, codes1, layout.mask, at);
            if (esc_end - *esc < at - *esc) return STREAM_SHORT;
            *esc = at;
        }
        bf16_store512(bf16 + 2 * first, e0, bytes_load512(raw + first, n0), n0);
        if (n1 > 0)
            bf16_store512(bf16 + 2 * first + 128, e1, bytes_load512(raw + first + 64, n1), n1);
    }
    return STREAM_OK;
}

TARGET_AVX512 enum stream_fault fixed_count_escapes_avx512(const uint8_t *meta, size_t ntiles,
                                                           const uint8_t **idx,
                                                           const uint8_t *idx_end,
                                                           uint64_t *nescapes) {
    *nescapes = 0;
    for (; ntiles > 0; ntiles--, meta++) {
        unsigned b = *meta & 15;

        if (!fixed_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (idx_end - *idx < fixed_tile_nbytes(*meta)) return STREAM_SHORT;
        if (*meta & FIXED_ESCAPE) {
            struct layout layout = layout_of(b);
            *nescapes += count_escapes(get_codes(&layout, *idx), layout.mask);
            *nescapes += count_escapes(get_codes(&layout, *idx + 8 * b), layout.mask);
        }
        *idx += fixed_tile_nbytes(*meta);
    }
    return STREAM_OK;
}

TARGET_AVX512 static ALWAYS_INLINE uint8_t choose_meta(__m512i ranks0, __m512i ranks1) {
    unsigned nescapes[FIXED_ESCAPE_B_MAX + 1] = {0};

#pragma GCC unroll 4
    for (unsigned b = 1; b <= FIXED_ESCAPE_B_MAX; b++) {
        __m512i escape = _mm512_set1_epi8((char)((1 << b) - 1));
        nescapes[b] = (unsigned)_mm_popcnt_u64(_mm512_cmpge_epu8_mask(ranks0, escape)) +
                      (unsigned)_mm_popcnt_u64(_mm512_cmpge_epu8_mask(ranks1, escape));
    }
    return fixed_choose_meta(max_byte512(_mm512_max_epu8(ranks0, ranks1)), nescapes);
}

/* Appends the exponents of ranks that are escapes, and makes those ranks the escape code. */
TARGET_AVX512 static ALWAYS_INLINE __m512i compress_escapes(__m512i ranks, __m512i exponents,
                                                            __m512i escape, uint8_t **esc) {
    uint64_t is_escape = _mm512_cmpge_epu8_mask(ranks, escape);

    /* In a register first: some CPUs are slow at compressing into memory. */
    _mm512_storeu_si512(*esc, _mm512_maskz_compress_epi8(is_escape, exponents));
    *esc += _mm_popcnt_u64(is_escape);
    return _mm512_min_epu8(ranks, escape);
}

TARGET_AVX512 static ALWAYS_INLINE void put_codes(__m512i codes, unsigned b, uint8_t *idx) {
    uint64_t every = 0x0101010101010101u * ((1u << b) - 1);
    uint8_t bytes[64];

    _mm512_storeu_si512(bytes, codes);
#pragma GCC unroll 8
    for (unsigned group = 0; group < 8; group++)
        store64(idx + b * group, _pext_u64(load64(bytes + 8 * group), every));
}

TARGET_AVX512 void fixed_encode_avx512(const uint8_t *bf16, size_t n, const uint8_t rank_of[256],
                                       uint8_t *raw, uint8_t *meta, uint8_t **idx, uint8_t **esc) {
    const struct table512 table = table_load512(rank_of);

    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        unsigned n0 = nhere < 64 ? nhere : 64, n1 = nhere - n0;
        struct ranks512 low = ranks_load512(bf16 + 2 * first, n0, &table, raw + first);
        struct ranks512 high = ranks_load512(bf16 + 2 * (first + n0), n1, &table, raw + first + n0);

        *meta = choose_meta(low.rank, high.rank);
        unsigned b = *meta & 15;
        if (*meta & FIXED_ESCAPE) {
            __m512i escape = _mm512_set1_epi8((char)((1 << b) - 1));
            low.rank = compress_escapes(low.rank, low.exponent, escape, esc);
            high.rank = compress_escapes(high.rank, high.exponent, escape, esc);
        }
        put_codes(low.rank, b, *idx);
        put_codes(high.rank, b, *idx + 8 * b);
        *idx += fixed_tile_nbytes(*meta);
    }
}

#else
typedef int no_fixed_avx512; /* a file must not be empty */
#endif
