/* Format 1, NEON: 8 codes of b bits are packed and unpacked in a 64-bit register; escapes go one by
 * one, in weight order.
 */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#include "cpu/kernels_simd.h"
#include "cpu/neon.h"
#include "cpu/pack8.h"
#include "format/fixed.h"

/* TILE codes of b bits; reads 8 bytes past them. */
static ALWAYS_INLINE void get_codes(unsigned b, const uint8_t *idx, uint8_t codes[TILE]) {
    const struct pack8 p = pack8_of(b);
    for (unsigned i = 0; i < TILE; i += 8, idx += b)
        store64(codes + i, unpack8(&p, load64(idx)));
}

/* Writes 8 bytes past the codes. */
static ALWAYS_INLINE void put_codes(unsigned b, const uint8_t codes[TILE], uint8_t *idx) {
    const struct pack8 p = pack8_of(b);
    for (unsigned i = 0; i < TILE; i += 8, idx += b)
        store64(idx, pack8(&p, load64(codes + i)));
}

/* Which of 64 bytes are at least `least`. */
static ALWAYS_INLINE uint64_t find_at_least(const uint8_t *bytes, unsigned least) {
    const uint8x16_t bound = vdupq_n_u8((uint8_t)least);
    return mask_bits(vcgeq_u8(vld1q_u8(bytes), bound), vcgeq_u8(vld1q_u8(bytes + 16), bound),
                     vcgeq_u8(vld1q_u8(bytes + 32), bound), vcgeq_u8(vld1q_u8(bytes + 48), bound));
}

/* How many of TILE bytes are at least `least`. */
static ALWAYS_INLINE unsigned count_at_least(const uint8_t bytes[TILE], unsigned least) {
    const uint8x16_t bound = vdupq_n_u8((uint8_t)least);
    uint8x16_t n = vdupq_n_u8(0);
    for (unsigned v = 0; v < NVECTORS; v++)
        n = vsubq_u8(n, vcgeq_u8(vld1q_u8(bytes + 16 * v), bound));
    return vaddvq_u8(n);
}

enum stream_fault fixed_decode_neon(const uint8_t *raw, const uint8_t *meta, size_t n,
                                    const uint8_t table[256], const uint8_t **idx,
                                    const uint8_t *idx_end, const uint8_t **esc,
                                    const uint8_t *esc_end, uint8_t *bf16) {
    const struct window128 window = window_at(table, 0);

    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        unsigned b = *meta & 15;
        uint8_t exponents[TILE];
        uint64_t is_escape[2] = {0};

        if (!fixed_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (idx_end - *idx < fixed_tile_nbytes(*meta)) return STREAM_SHORT;
        get_codes(b, *idx, exponents);
        *idx += fixed_tile_nbytes(*meta);
        if (*meta & FIXED_ESCAPE) {
            if (esc_end - *esc < count_at_least(exponents, (1u << b) - 1)) return STREAM_SHORT;
            for (unsigned half = 0; half < 2; half++)
                is_escape[half] = find_at_least(exponents + 64 * half, (1u << b) - 1);
        }
        look_up_tile(&window, exponents);
        for (unsigned half = 0; half < 2; half++)
            for (uint64_t m = is_escape[half]; m; m &= m - 1)
                exponents[64 * half + (unsigned)__builtin_ctzll(m)] = *(*esc)++;
        tile_store128(bf16 + 2 * first, exponents, raw + first, nhere);
    }
    return STREAM_OK;
}

enum stream_fault fixed_count_escapes_neon(const uint8_t *meta, size_t ntiles, const uint8_t **idx,
                                           const uint8_t *idx_end, uint64_t *nescapes) {
    *nescapes = 0;
    for (; ntiles > 0; ntiles--, meta++) {
        unsigned b = *meta & 15;
        uint8_t codes[TILE];

        if (!fixed_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (idx_end - *idx < fixed_tile_nbytes(*meta)) return STREAM_SHORT;
        if (*meta & FIXED_ESCAPE) {
            get_codes(b, *idx, codes);
            *nescapes += count_at_least(codes, (1u << b) - 1);
        }
        *idx += fixed_tile_nbytes(*meta);
    }
    return STREAM_OK;
}

static ALWAYS_INLINE uint8_t choose_meta(const uint8_t ranks[TILE]) {
    unsigned nescapes[FIXED_ESCAPE_B_MAX + 1] = {0};
    uint8x16_t most = vdupq_n_u8(0);

    for (unsigned v = 0; v < NVECTORS; v++)
        most = vmaxq_u8(most, vld1q_u8(ranks + 16 * v));
    for (unsigned b = 1; b <= FIXED_ESCAPE_B_MAX; b++)
        nescapes[b] = count_at_least(ranks, (1u << b) - 1);
    return fixed_choose_meta(vmaxvq_u8(most), nescapes);
}

void fixed_encode_neon(const uint8_t *bf16, size_t n, const uint8_t rank_of[256], uint8_t *raw,
                       uint8_t *meta, uint8_t **idx, uint8_t **esc) {
    const struct window128 window = rank_window(rank_of);

    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        uint8_t exponents[TILE], codes[TILE];

        tile_load128(bf16 + 2 * first, nhere, &window, raw + first, exponents, codes);
        *meta = choose_meta(codes);
        unsigned b = *meta & 15;
        if (*meta & FIXED_ESCAPE) {
            const uint8x16_t escape = vdupq_n_u8((uint8_t)((1u << b) - 1));
            for (unsigned half = 0; half < 2; half++)
                for (uint64_t m = find_at_least(codes + 64 * half, (1u << b) - 1); m; m &= m - 1)
                    *(*esc)++ = exponents[64 * half + (unsigned)__builtin_ctzll(m)];
            for (unsigned v = 0; v < NVECTORS; v++)
                vst1q_u8(codes + 16 * v, vminq_u8(vld1q_u8(codes + 16 * v), escape));
        }
        put_codes(b, codes, *idx);
        *idx += fixed_tile_nbytes(*meta);
    }
}

#else
typedef int no_fixed_neon; /* a file must not be empty */
#endif
