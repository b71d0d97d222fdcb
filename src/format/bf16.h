/* bf16.h - a BF16 weight as an exponent and a raw byte.
 *
 * BF16, bit 15 first: sign, 8 bits of exponent, 7 bits of mantissa. The raw byte has the sign in
 * bit 7 and the mantissa below.
 */
#ifndef BINADE_FORMAT_BF16_H
#define BINADE_FORMAT_BF16_H

#include <stddef.h>
#include <stdint.h>

/* Weight i of an array of little-endian BF16 at any alignment. */
static inline unsigned bf16_load(const uint8_t *bf16, size_t i) {
    return (unsigned)bf16[2 * i] | (unsigned)bf16[2 * i + 1] << 8;
}

static inline void bf16_store(uint8_t *bf16, size_t i, unsigned weight) {
    bf16[2 * i] = (uint8_t)weight;
    bf16[2 * i + 1] = (uint8_t)(weight >> 8);
}

static inline uint8_t bf16_exponent(unsigned weight) {
    return (uint8_t)(weight >> 7);
}

static inline uint8_t bf16_raw(unsigned weight) {
    return (uint8_t)((weight >> 8 & 0x80) | (weight & 0x7f));
}

static inline unsigned bf16_join(uint8_t exponent, uint8_t raw) {
    return (raw & 0x80u) << 8 | (unsigned)exponent << 7 | (raw & 0x7fu);
}

#endif
