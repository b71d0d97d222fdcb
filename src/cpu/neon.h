/* neon.h - 16 weights at a time: load and split, look up, join and store; a tile is 8 vectors.
 *
 * The last tile of a row goes through a copy of full size.
 */
#ifndef BINADE_CPU_NEON_H
#define BINADE_CPU_NEON_H

#include <arm_neon.h>

#include "cpu/bits64.h"
#include "format/tile.h"

enum { NVECTORS = TILE / 16 };

/* Ones at the first n (0..64) lanes. */
static ALWAYS_INLINE uint64_t first_lanes(unsigned n) {
    return n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0;
}

/* Bit i of 64 is lane i of four masks, whose bytes are 0 or 255. */
static ALWAYS_INLINE uint64_t mask_bits(uint8x16_t m0, uint8x16_t m1, uint8x16_t m2,
                                        uint8x16_t m3) {
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t low = vpaddq_u8(vandq_u8(m0, bit), vandq_u8(m1, bit));
    uint8x16_t high = vpaddq_u8(vandq_u8(m2, bit), vandq_u8(m3, bit));
    uint8x16_t sums = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)), 0);
}

/* 16 weights. */
struct split128 {
    uint8x16_t exponent, raw;
};

static ALWAYS_INLINE struct split128 bf16_load128(const uint8_t *bf16) {
    uint8x16x2_t w = vld2q_u8(bf16); /* low bytes, high bytes */
    return (struct split128){
        .exponent = vsriq_n_u8(vshlq_n_u8(w.val[1], 1), w.val[0], 7),
        .raw = vbslq_u8(vdupq_n_u8(0x80), w.val[1], w.val[0]),
    };
}

static ALWAYS_INLINE void bf16_store128(uint8_t *bf16, uint8x16_t exponent, uint8x16_t raw) {
    uint8x16x2_t w;
    w.val[0] = vsliq_n_u8(raw, exponent, 7);
    w.val[1] = vbslq_u8(vdupq_n_u8(0x80), raw, vshrq_n_u8(exponent, 1));
    vst2q_u8(bf16, w);
}

/* 32 neighbouring entries of a table of 256 bytes, and entry 0, in registers. */
struct window128 {
    const uint8_t *table;
    uint8x16_t base; /* the index of the first of the 32 */
    uint8x16x2_t entries;
    uint8x16_t entry0;
};

static ALWAYS_INLINE struct window128 window_at(const uint8_t table[256], unsigned base) {
    return (struct window128){
        .table = table,
        .base = vdupq_n_u8((uint8_t)base),
        .entries = {{vld1q_u8(table + base), vld1q_u8(table + base + 16)}},
        .entry0 = vdupq_n_u8(table[0]),
    };
}

/* Looks up a tile of indices in place. */
static ALWAYS_INLINE void look_up_tile(const struct window128 *window, uint8_t at[TILE]) {
    uint8x16_t found[NVECTORS], all_inside = vdupq_n_u8(0xff);

    for (unsigned v = 0; v < NVECTORS; v++) {
        uint8x16_t from = vld1q_u8(at + 16 * v), i = vsubq_u8(from, window->base);
        uint8x16_t is_0 = vceqzq_u8(from);
        found[v] = vbslq_u8(is_0, window->entry0, vqtbl2q_u8(window->entries, i));
        all_inside = vandq_u8(all_inside, vorrq_u8(is_0, vcltq_u8(i, vdupq_n_u8(32))));
    }
    if (vminvq_u8(all_inside) == 0) {
        for (unsigned i = 0; i < TILE; i++)
            at[i] = window->table[at[i]];
    } else {
        for (unsigned v = 0; v < NVECTORS; v++)
            vst1q_u8(at + 16 * v, found[v]);
    }
}

/* What both encoders begin with. The 32 entries begin some way below the most frequent exponent, as
 * most of those that occur are smaller. */
static ALWAYS_INLINE struct window128 rank_window(const uint8_t rank_of[256]) {
    unsigned mode = 0;
    while (mode < 255 && rank_of[mode] > 0)
        mode++;
    unsigned base = mode < 24 ? 0 : mode - 24;
    return window_at(rank_of, base < 224 ? base : 224);
}

/* The raw bytes, exponents and ranks of a tile of n (1..TILE) weights. Past n ranks are 0. */
static ALWAYS_INLINE void tile_load128(const uint8_t *bf16, unsigned n,
                                       const struct window128 *rank_of, uint8_t *raw,
                                       uint8_t exponents[TILE], uint8_t ranks[TILE]) {
    uint8_t copy[2 * TILE], raw_copy[TILE];
    uint8_t *to = raw;

    if (n < TILE) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, bf16, 2 * (size_t)n);
        bf16 = copy;
        to = raw_copy;
    }
    for (unsigned v = 0; v < NVECTORS; v++) {
        struct split128 weights = bf16_load128(bf16 + 32 * v);
        vst1q_u8(to + 16 * v, weights.raw);
        vst1q_u8(exponents + 16 * v, weights.exponent);
        vst1q_u8(ranks + 16 * v, weights.exponent);
    }
    look_up_tile(rank_of, ranks);
    if (n < TILE) {
        memcpy(raw, raw_copy, n);
        memset(ranks + n, 0, TILE - n);
    }
}

/* What both decoders end with: joins a tile of n (1..TILE) weights. */
static ALWAYS_INLINE void tile_store128(uint8_t *bf16, const uint8_t exponents[TILE],
                                        const uint8_t *raw, unsigned n) {
    uint8_t copy[2 * TILE], raw_copy[TILE];
    uint8_t *to = bf16;

    if (n < TILE) {
        memcpy(raw_copy, raw, n);
        raw = raw_copy;
        to = copy;
    }
    for (unsigned v = 0; v < NVECTORS; v++)
        bf16_store128(to + 32 * v, vld1q_u8(exponents + 16 * v), vld1q_u8(raw + 16 * v));
    if (n < TILE) memcpy(bf16, copy, 2 * (size_t)n);
}

#endif
