/* x86_rice.h - format 2 tiles as masks, for AVX2 and AVX-512: bit i of word i / 64 is weight i. */
#ifndef BINADE_CPU_X86_RICE_H
#define BINADE_CPU_X86_RICE_H

#include "cpu/x86_bits.h"

/* Bit 0 of each weight where the low plane of k bits holds whole weights in a word. */
#define LOW_PLANE_2 0x5555555555555555u
#define LOW_PLANE_3 0x1249249249249249u

/* Appends the k (1..3) low bits of n (0..64) weights; bit[b] is the mask of those with bit b, and
 * has none past n. */
TARGET_AVX2 static ALWAYS_INLINE void put_low_bits(struct bit_sink *sink, const uint64_t bit[3],
                                                   unsigned n, unsigned k) {
    uint64_t b0 = bit[0], b1 = bit[1], b2 = bit[2];

    if (k == 1) {
        sink_put64(sink, b0, n);
        return;
    }
    uint64_t every = k == 2 ? LOW_PLANE_2 : LOW_PLANE_3;
    unsigned nmost = 64 / k; /* weights in a word */
    while (n > 0) {
        unsigned nhere = n < nmost ? n : nmost;
        uint64_t bits = _pdep_u64(b0, every) | _pdep_u64(b1, every << 1);
        if (k == 3) bits |= _pdep_u64(b2, every << 2);
        /* k = 3 fills 63 of 64 bits; the last one is not a whole weight. */
        sink_put64(sink, _bzhi_u64(bits, nhere * k), nhere * k);
        b0 >>= nhere;
        b1 >>= nhere;
        b2 >>= nhere;
        n -= nhere;
    }
}

/* The masks of the k (1..3) low bits of 64 weights from bit `pos` on. */
TARGET_AVX2 static ALWAYS_INLINE void get_low_bits(const uint8_t *base, uint64_t pos, unsigned k,
                                                   uint64_t bit[3]) {
    bit[0] = bit[1] = bit[2] = 0;
    if (k == 1) {
        bit[0] = peek64(base, pos);
        return;
    }
    uint64_t every = k == 2 ? LOW_PLANE_2 : LOW_PLANE_3 >> 15;
    unsigned nhere = k == 2 ? 32 : 16; /* weights in a word, a divisor of 64 */
    for (unsigned first = 0; first < 64; first += nhere) {
        uint64_t bits = peek64(base, pos + first * k);
        for (unsigned b = 0; b < k; b++)
            bit[b] |= _pext_u64(bits, every << b) << first;
    }
}

/* Appends a plane: of the `active` weights, which have q > j. */
TARGET_AVX2 static ALWAYS_INLINE void put_plane(struct bit_sink *sink, const uint64_t active[2],
                                                const uint64_t more[2]) {
    unsigned n0 = (unsigned)_mm_popcnt_u64(active[0]), n1 = (unsigned)_mm_popcnt_u64(active[1]);
    uint64_t b0 = _pext_u64(more[0], active[0]), b1 = _pext_u64(more[1], active[1]);

    if (n0 + n1 < 64) {
        sink_put64(sink, b0 | b1 << n0, n0 + n1);
    } else {
        sink_put64(sink, b0, n0);
        sink_put64(sink, b1, n1);
    }
}

/* Leaves those weights active that the plane at bit `pos` says have q > j. Returns its length. */
TARGET_AVX2 static ALWAYS_INLINE unsigned get_plane(const uint8_t *base, uint64_t pos,
                                                    uint64_t active[2]) {
    unsigned n0 = (unsigned)_mm_popcnt_u64(active[0]), n1 = (unsigned)_mm_popcnt_u64(active[1]);

    active[0] = _pdep_u64(peek64(base, pos), active[0]);
    active[1] = _pdep_u64(peek64(base, pos + n0), active[1]);
    return n0 + n1;
}

#endif
