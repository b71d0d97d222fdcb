/* pack8.h - 8 codes of b bits to and from 8 * b bits, without bit deposit and extract. */
#ifndef BINADE_CPU_PACK8_H
#define BINADE_CPU_PACK8_H

#include "cpu/bits64.h"

/* Masks of a code in each 16 bits, of a pair of codes in each 32, of four codes in 64. */
struct pack8 {
    unsigned b; /* 0..8 */
    uint64_t one, pair, four;
};

static ALWAYS_INLINE struct pack8 pack8_of(unsigned b) {
    return (struct pack8){
        .b = b,
        .one = (((uint64_t)1 << b) - 1) * 0x0001000100010001u,
        .pair = (((uint64_t)1 << 2 * b) - 1) * 0x0000000100000001u,
        .four = ((uint64_t)1 << 4 * b) - 1,
    };
}

/* Codes become pairs, pairs fours, fours eight. Bits of a byte above b are dropped. */
static ALWAYS_INLINE uint64_t pack8(const struct pack8 *p, uint64_t x) {
    x = (x & p->one) | (x >> 8 & p->one) << p->b;
    x = (x & p->pair) | (x >> 16 & p->pair) << 2 * p->b;
    return (x & p->four) | (x >> 32 & p->four) << 4 * p->b;
}

/* The way back. Bits above 8 * b are dropped. */
static ALWAYS_INLINE uint64_t unpack8(const struct pack8 *p, uint64_t x) {
    x = (x & p->four) | (x >> 4 * p->b & p->four) << 32;
    x = (x & p->pair) | (x >> 2 * p->b & p->pair) << 16;
    return (x & p->one) | (x >> p->b & p->one) << 8;
}

#endif
