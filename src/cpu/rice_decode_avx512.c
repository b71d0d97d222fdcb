/* Format 2 decoder, AVX-512: a tile is two vectors of ranks.
 *
 * A plane's bits are spread (PDEP) over the lanes of the plane before, which gives the mask of the
 * lanes to count up. Every plane waits for the length of the one before, so what counts is the
 * number of cycles from plane to plane, not the number of instructions.
 */
#if defined(__x86_64__)

#include "cpu/avx512.h"
#include "cpu/kernels_simd.h"
#include "cpu/x86_rice.h"
#include "format/rice.h"

/* 64 bytes with bit b set where bit[b] has a lane. */
TARGET_AVX512 static ALWAYS_INLINE __m512i join_bits(const uint64_t bit[3]) {
    __m512i low = _mm512_maskz_mov_epi8(bit[0], _mm512_set1_epi8(1));
    low = _mm512_mask_add_epi8(low, bit[1], low, _mm512_set1_epi8(2));
    return _mm512_mask_add_epi8(low, bit[2], low, _mm512_set1_epi8(4));
}

TARGET_AVX512 enum stream_fault rice_decode_avx512(const uint8_t *raw, const uint8_t *meta,
                                                   size_t n, const uint8_t table[256],
                                                   struct bit_source *source, uint8_t *bf16) {
    const struct table512 exponents = table_load512(table);
    const uint8_t *base = source->base;
    uint64_t pos = source->pos;

    if (pos > source->end) return STREAM_SHORT;
    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        unsigned n0 = nhere < 64 ? nhere : 64, n1 = nhere - n0;
        uint64_t active[2] = {first_lanes(n0), first_lanes(n1)}, bit[3];
        unsigned k = *meta & 3, qmax = *meta >> 2;
        __m512i ranks0 = _mm512_setzero_si512(), ranks1 = ranks0;

        if (!rice_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (k > 0) {
            get_low_bits(base, pos, k, bit);
            ranks0 = join_bits(bit);
            get_low_bits(base, pos + n0 * k, k, bit);
            ranks1 = join_bits(bit);
            pos += nhere * k;
        }
        __m512i step = _mm512_set1_epi8((char)(1 << k));
        for (unsigned j = 0; j < qmax; j++) {
            pos += get_plane(base, pos, active);
            ranks0 = _mm512_mask_add_epi8(ranks0, active[0], ranks0, step);
            ranks1 = _mm512_mask_add_epi8(ranks1, active[1], ranks1, step);
        }
        if (pos > source->end) return STREAM_SHORT;

        __m512i e0, e1;
        if (qmax << k < 64) {
            e0 = _mm512_permutexvar_epi8(ranks0, exponents.quarter[0]);
            e1 = _mm512_permutexvar_epi8(ranks1, exponents.quarter[0]);
        } else {
            e0 = table_look_up512(&exponents, ranks0);
            e1 = table_look_up512(&exponents, ranks1);
        }
        bf16_store512(bf16 + 2 * first, e0, bytes_load512(raw + first, n0), n0);
        if (n1 > 0)
            bf16_store512(bf16 + 2 * first + 128, e1, bytes_load512(raw + first + 64, n1), n1);
    }
    source->pos = pos;
    return STREAM_OK;
}

#else
typedef int no_rice_decode_avx512; /* a file must not be empty */
#endif
