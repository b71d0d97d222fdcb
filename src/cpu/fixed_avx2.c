/* Format 1, AVX2 and BMI2: 8 codes of b bits are squeezed into (PEXT) and spread from (PDEP) b
 * bytes; escapes go one by one, in weight order.
 */
#if defined(__x86_64__)

#include "cpu/avx2.h"
#include "cpu/kernels_simd.h"
#include "format/fixed.h"

/* The low b bits of 8 bytes. */
static ALWAYS_INLINE uint64_t code_bits(unsigned b) {
    return 0x0101010101010101u * ((1u << b) - 1);
}

/* TILE codes of b bits; reads 8 bytes past them. */
TARGET_AVX2 static ALWAYS_INLINE void get_codes(unsigned b, const uint8_t *idx, uint8_t *codes) {
#pragma GCC unroll 4
    for (unsigned group = 0; group < TILE / 8; group++)
        store64(codes + 8 * group, _pdep_u64(load64(idx + b * group), code_bits(b)));
}

/* Writes 8 bytes past the codes. */
TARGET_AVX2 static ALWAYS_INLINE void put_codes(unsigned b, const uint8_t *codes, uint8_t *idx) {
#pragma GCC unroll 4
    for (unsigned group = 0; group < TILE / 8; group++)
        store64(idx + b * group, _pext_u64(load64(codes + 8 * group), code_bits(b)));
}

/* Which of 64 bytes are at least `least`. */
TARGET_AVX2 static ALWAYS_INLINE uint64_t find_at_least(const uint8_t *bytes, unsigned least) {
    const __m256i bound = _mm256_set1_epi8((char)least);
    __m256i low = load256(bytes), high = load256(bytes + 32);
    return top_bits(_mm256_cmpeq_epi8(_mm256_max_epu8(low, bound), low),
                    _mm256_cmpeq_epi8(_mm256_max_epu8(high, bound), high));
}

TARGET_AVX2 enum stream_fault fixed_decode_avx2(const uint8_t *raw, const uint8_t *meta, size_t n,
                                                const uint8_t table[256], const uint8_t **idx,
                                                const uint8_t *idx_end, const uint8_t **esc,
                                                const uint8_t *esc_end, uint8_t *bf16) {
    const struct window256 window = window_at(table, 0);

    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        unsigned b = *meta & 15;
        uint8_t codes[TILE];
        __m256i exponents[4];

        if (!fixed_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (idx_end - *idx < fixed_tile_nbytes(*meta)) return STREAM_SHORT;
        get_codes(b, *idx, codes);
        *idx += fixed_tile_nbytes(*meta);
#pragma GCC unroll 4
        for (unsigned v = 0; v < NVECTORS; v++)
            exponents[v] = look_up256(&window, load256(codes + 32 * v));
        if (*meta & FIXED_ESCAPE) {
            uint64_t is_escape[2] = {find_at_least(codes, (1u << b) - 1),
                                     find_at_least(codes + 64, (1u << b) - 1)};
            if (esc_end - *esc < _mm_popcnt_u64(is_escape[0]) + _mm_popcnt_u64(is_escape[1]))
                return STREAM_SHORT;
#pragma GCC unroll 4
            for (unsigned v = 0; v < NVECTORS; v++)
                store256(codes + 32 * v, exponents[v]);
            for (unsigned half = 0; half < 2; half++)
                for (uint64_t m = is_escape[half]; m; m = _blsr_u64(m))
                    codes[64 * half + _tzcnt_u64(m)] = *(*esc)++;
#pragma GCC unroll 4
            for (unsigned v = 0; v < NVECTORS; v++)
                exponents[v] = load256(codes + 32 * v);
        }
        tile_store256(bf16 + 2 * first, exponents, raw + first, nhere);
    }
    return STREAM_OK;
}

TARGET_AVX2 enum stream_fault fixed_count_escapes_avx2(const uint8_t *meta, size_t ntiles,
                                                       const uint8_t **idx, const uint8_t *idx_end,
                                                       uint64_t *nescapes) {
    *nescapes = 0;
    for (; ntiles > 0; ntiles--, meta++) {
        unsigned b = *meta & 15;
        uint8_t codes[TILE];

        if (!fixed_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (idx_end - *idx < fixed_tile_nbytes(*meta)) return STREAM_SHORT;
        if (*meta & FIXED_ESCAPE) {
            get_codes(b, *idx, codes);
            *nescapes += (uint64_t)_mm_popcnt_u64(find_at_least(codes, (1u << b) - 1)) +
                         (uint64_t)_mm_popcnt_u64(find_at_least(codes + 64, (1u << b) - 1));
        }
        *idx += fixed_tile_nbytes(*meta);
    }
    return STREAM_OK;
}

TARGET_AVX2 static ALWAYS_INLINE uint8_t choose_meta(const __m256i ranks[4]) {
    unsigned nescapes[FIXED_ESCAPE_B_MAX + 1] = {0};
    __m256i escapes[4], most = _mm256_setzero_si256();

#pragma GCC unroll 4
    for (unsigned v = 0; v < NVECTORS; v++)
        most = _mm256_max_epu8(most, ranks[v]);
#pragma GCC unroll 4
    for (unsigned b = 1; b <= FIXED_ESCAPE_B_MAX; b++) {
        const __m256i least = _mm256_set1_epi8((char)((1 << b) - 1));
        escapes[b - 1] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (unsigned v = 0; v < NVECTORS; v++) {
            __m256i is_escape = _mm256_cmpeq_epi8(_mm256_max_epu8(ranks[v], least), ranks[v]);
            escapes[b - 1] = _mm256_sub_epi8(escapes[b - 1], is_escape);
        }
    }
    uint64_t sums = sum_bytes256(escapes);
#pragma GCC unroll 4
    for (unsigned b = 1; b <= FIXED_ESCAPE_B_MAX; b++)
        nescapes[b] = (unsigned)(sums >> 16 * (b - 1)) & 0xffff;
    return fixed_choose_meta(max_byte256(most), nescapes);
}

TARGET_AVX2 void fixed_encode_avx2(const uint8_t *bf16, size_t n, const uint8_t rank_of[256],
                                   uint8_t *raw, uint8_t *meta, uint8_t **idx, uint8_t **esc) {
    const struct window256 window = rank_window(rank_of);

    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        uint8_t exponents[TILE], codes[TILE];
        __m256i ranks[4];

        tile_load256(bf16 + 2 * first, nhere, &window, raw + first, exponents, ranks);
        *meta = choose_meta(ranks);
        unsigned b = *meta & 15;
        const __m256i most = _mm256_set1_epi8((char)((1u << b) - 1));
#pragma GCC unroll 4
        for (unsigned v = 0; v < NVECTORS; v++)
            store256(codes + 32 * v, _mm256_min_epu8(ranks[v], most));
        if (*meta & FIXED_ESCAPE)
            for (unsigned half = 0; half < 2; half++)
                for (uint64_t m = find_at_least(codes + 64 * half, (1u << b) - 1); m;
                     m = _blsr_u64(m))
                    *(*esc)++ = exponents[64 * half + _tzcnt_u64(m)];
        put_codes(b, codes, *idx);
        *idx += fixed_tile_nbytes(*meta);
    }
}

#else
typedef int no_fixed_avx2; /* a file must not be empty */
#endif
