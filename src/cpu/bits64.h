/* bits64.h - bit streams 64 bits at a time, on little-endian CPUs. */
#ifndef BINADE_CPU_BITS64_H
#define BINADE_CPU_BITS64_H

#include <stdint.h>
#include <string.h>

#include "format/bit_stream.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE uint64_t load64(const uint8_t *from) {
    uint64_t bits;
    memcpy(&bits, from, sizeof bits);
    return bits;
}

static ALWAYS_INLINE void store64(uint8_t *to, uint64_t bits) {
    memcpy(to, &bits, sizeof bits);
}

/* Within a run a sink may hold up to 63 bits. Appends nbits (0..64) bits; those above are 0. */
static ALWAYS_INLINE void sink_put64(struct bit_sink *sink, uint64_t bits, unsigned nbits) {
    uint64_t full = sink->acc | bits << sink->nacc;
    uint64_t rest = bits >> 1 >> (63 - sink->nacc); /* what does not fit in `full` */
    unsigned nacc = sink->nacc + nbits;

    store64(sink->next, full);
    sink->next += nacc / 64 * 8;
    sink->acc = nacc >= 64 ? rest : full;
    sink->nacc = nacc % 64;
}

/* Back to the 0..31 bits that hold between runs. */
static ALWAYS_INLINE void sink_settle(struct bit_sink *sink) {
    if (sink->nacc >= 32) bit_sink_put(sink, 0, 0);
}

/* 64 bits from bit `pos` on. */
static ALWAYS_INLINE uint64_t peek64(const uint8_t *base, uint64_t pos) {
    const uint8_t *at = base + pos / 8;
    return load64(at) >> pos % 8 | load64(at + 8) << 1 << (63 - pos % 8);
}

#endif
