/* bit_stream.h - where the bits of format 2 go and come from, and what a decoder may find wrong.
 *
 * A stream is a sequence of little-endian 32-bit words, filled from bit 0 up. Every row starts on a
 * word.
 */
#ifndef BINADE_FORMAT_BIT_STREAM_H
#define BINADE_FORMAT_BIT_STREAM_H

#include <stdint.h>

/* `next` receives the next whole word. The nacc (0..31 between runs) bits that do not fill one yet
 * wait in acc, whose other bits are 0. So a caller may carry the words written so far away and
 * point `next` elsewhere between runs. A new sink is {next, 0, 0}.
 * Encoders may write STREAM_SLACK bytes past the words they produce. */
struct bit_sink {
    uint8_t *next;
    uint64_t acc;
    unsigned nacc;
};

/* Bit `pos` of `base` is the next one; a run may not pass bit `end`. STREAM_SLACK bytes behind bit
 * `end` must be readable; their value does not matter. */
struct bit_source {
    const uint8_t *base;
    uint64_t pos, end; /* bits */
};

enum stream_fault {
    STREAM_OK = 0,
    STREAM_BAD_META, /* reserved bits, or a width or qmax outside the format */
    STREAM_SHORT,    /* codes or escapes end too early */
};

/* Byte by byte, so that it holds on any byte order; compilers make one store of it. */
static inline void store_le32(uint8_t *to, uint32_t word) {
    to[0] = (uint8_t)word;
    to[1] = (uint8_t)(word >> 8);
    to[2] = (uint8_t)(word >> 16);
    to[3] = (uint8_t)(word >> 24);
}

static inline uint32_t load_le32(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* Appends the low nbits (0..32) of `bits`, whose other bits are 0. */
static inline void bit_sink_put(struct bit_sink *sink, uint32_t bits, unsigned nbits) {
    sink->acc |= (uint64_t)bits << sink->nacc;
    sink->nacc += nbits;
    if (sink->nacc >= 32) {
        store_le32(sink->next, (uint32_t)sink->acc);
        sink->next += 4;
        sink->acc >>= 32;
        sink->nacc -= 32;
    }
}

/* Ends a row: zero bits up to the next word. */
static inline void bit_sink_end_row(struct bit_sink *sink) {
    if (sink->nacc > 0) bit_sink_put(sink, 0, 32 - sink->nacc);
}

#endif
