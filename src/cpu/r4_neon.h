/* r4_neon.h - a group of R4 as four columns of four vectors of 4 float32 lanes. */
#ifndef BINADE_CPU_R4_NEON_H
#define BINADE_CPU_R4_NEON_H

#include "cpu/neon.h"
#include "r4/r4_layout.h"

enum { R4_NQUARTERS = 4 };

struct lookup128 {
    uint8x16_t high, low;
};

/* Rows 4 * q .. 4 * q + 3 of the columns in quarter[q]. */
struct group128 {
    struct {
        float32x4_t col[R4_NCOLS];
    } quarter[R4_NQUARTERS];
};

static ALWAYS_INLINE struct lookup128 r4_lookup128(const struct r4_lookup *lookup) {
    return (struct lookup128){vld1q_u8(lookup->high), vld1q_u8(lookup->low)};
}

/* The exponents of escapes, at their places of 64 bytes; 0 elsewhere. */
static __attribute__((noinline)) void r4_take_escapes128(const uint8x16_t is_escape[4],
                                                         const uint8_t **escapes,
                                                         uint8_t exponents[R4_NWEIGHTS]) {
    uint64_t lanes = mask_bits(is_escape[0], is_escape[1], is_escape[2], is_escape[3]);
    memset(exponents, 0, R4_NWEIGHTS);
    for (; lanes; lanes &= lanes - 1)
        exponents[__builtin_ctzll(lanes)] = *(*escapes)++;
}

static ALWAYS_INLINE float32x4_t r4_low_columns(uint16x8_t w) {
    return vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(w), 16));
}

static ALWAYS_INLINE float32x4_t r4_high_columns(uint16x8_t w) {
    return vreinterpretq_f32_u32(vshll_high_n_u16(w, 16));
}

static ALWAYS_INLINE struct group128 r4_load128(const struct lookup128 *lookup,
                                                const uint8_t *group, const uint8_t **escapes) {
    const uint8x16_t top = vdupq_n_u8(0x80), nibble = vdupq_n_u8(15);
    uint8x16_t codes0 = vld1q_u8(group + R4_NWEIGHTS), codes1 = vld1q_u8(group + R4_NWEIGHTS + 16);
    const uint8x16_t code[4] = {vandq_u8(codes0, nibble), vandq_u8(codes1, nibble),
                                vshrq_n_u8(codes0, 4), vshrq_n_u8(codes1, 4)};
    uint8x16_t most = vmaxq_u8(vmaxq_u8(code[0], code[1]), vmaxq_u8(code[2], code[3]));
    uint8x16_t high[4], low[4];
    struct group128 g;

#pragma GCC unroll 4
    for (unsigned q = 0; q < R4_NQUARTERS; q++) {
        high[q] = vqtbl1q_u8(lookup->high, code[q]);
        low[q] = vqtbl1q_u8(lookup->low, code[q]);
    }
    if (__builtin_expect(vmaxvq_u8(most) == R4_ESCAPE, 0)) {
        uint8x16_t is_escape[4];
        uint8_t exponents[R4_NWEIGHTS];
#pragma GCC unroll 4
        for (unsigned q = 0; q < R4_NQUARTERS; q++)
            is_escape[q] = vceqq_u8(code[q], vdupq_n_u8(R4_ESCAPE));
        r4_take_escapes128(is_escape, escapes, exponents);
#pragma GCC unroll 4
        for (unsigned q = 0; q < R4_NQUARTERS; q++) {
            uint8x16_t exponent = vld1q_u8(exponents + 16 * q);
            high[q] = vorrq_u8(high[q], vshrq_n_u8(exponent, 1));
            low[q] = vorrq_u8(low[q], vshlq_n_u8(exponent, 7));
        }
    }
#pragma GCC unroll 4
    for (unsigned q = 0; q < R4_NQUARTERS; q++) {
        uint8x16_t raw = vld1q_u8(group + 16 * q);
        uint8x16_t low_byte = vbslq_u8(top, low[q], raw), high_byte = vbslq_u8(top, raw, high[q]);
        uint16x8_t w01 = vreinterpretq_u16_u8(vzip1q_u8(low_byte, high_byte));
        uint16x8_t w23 = vreinterpretq_u16_u8(vzip2q_u8(low_byte, high_byte));
        g.quarter[q].col[0] = r4_low_columns(w01);
        g.quarter[q].col[1] = r4_high_columns(w01);
        g.quarter[q].col[2] = r4_low_columns(w23);
        g.quarter[q].col[3] = r4_high_columns(w23);
    }
    return g;
}

#endif
