/* Format 2 decoder, AVX2 and BMI2.
 *
 * A plane's bits are spread (PDEP) over the weights of the plane before, which gives the mask m_j
 * of the weights with q > j. As each mask lies within the one before, bit 0 of all q is the
 * exclusive or of m_0, m_1, ..., bit 1 that of m_1, m_3, ..., bit b that of each (j + 1) divisible
 * by 2^b: so ranks are made of a few masks, and vectors come in only at the end of a tile.
 */
#if defined(__x86_64__)

#include "cpu/avx2.h"
#include "cpu/kernels_simd.h"
#include "cpu/x86_rice.h"
#include "format/rice.h"

enum {
    NBITS = 9 /* k + bits of qmax */
};

/* Bit b of every rank; returns how many b there are. Advances *pos. */
TARGET_AVX2 static ALWAYS_INLINE unsigned get_masks(const uint8_t *base, uint64_t *pos, unsigned n,
                                                    unsigned k, unsigned qmax,
                                                    uint64_t low_half[NBITS],
                                                    uint64_t high_half[NBITS]) {
    unsigned n0 = n < 64 ? n : 64, n1 = n - n0, nbits = k;
    uint64_t active[2] = {first_lanes(n0), first_lanes(n1)};

    if (k > 0) {
        get_low_bits(base, *pos, k, low_half);
        get_low_bits(base, *pos + n0 * k, k, high_half);
        *pos += n * k;
    }
    for (; qmax >> (nbits - k); nbits++)
        low_half[nbits] = high_half[nbits] = 0;
    for (unsigned j = 1; j <= qmax; j++) {
        unsigned b = 0;
        *pos += get_plane(base, *pos, active);
        do {
            low_half[k + b] ^= active[0];
            high_half[k + b] ^= active[1];
        } while (!(j >> b++ & 1));
    }
    return nbits;
}

/* 32 bytes with bit b set where bit i of mask[b] is. */
TARGET_AVX2 static ALWAYS_INLINE __m256i join_bits(const uint64_t *mask, unsigned shift,
                                                   unsigned nbits) {
    const __m256i spread =
        _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const __m256i lane = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i bytes = _mm256_setzero_si256();

    for (unsigned b = 0; b < nbits; b++) {
        __m256i copies = _mm256_set1_epi32((int)(mask[b] >> shift));
        __m256i mine = _mm256_and_si256(_mm256_shuffle_epi8(copies, spread), lane);
        __m256i bit = _mm256_set1_epi8((char)(1 << b));
        bytes = _mm256_or_si256(bytes, _mm256_and_si256(_mm256_cmpeq_epi8(mine, lane), bit));
    }
    return bytes;
}

TARGET_AVX2 enum stream_fault rice_decode_avx2(const uint8_t *raw, const uint8_t *meta, size_t n,
                                               const uint8_t table[256], struct bit_source *source,
                                               uint8_t *bf16) {
    const struct window256 window = window_at(table, 0);
    const uint8_t *base = source->base;
    uint64_t pos = source->pos;

    if (pos > source->end) return STREAM_SHORT;
    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        unsigned k = *meta & 3, qmax = *meta >> 2;
        uint64_t low_half[NBITS], high_half[NBITS];
        __m256i exponents[4];

        if (!rice_meta_is_valid(*meta)) return STREAM_BAD_META;
        unsigned nbits = get_masks(base, &pos, nhere, k, qmax, low_half, high_half);
        if (pos > source->end) return STREAM_SHORT;
        exponents[0] = look_up256(&window, join_bits(low_half, 0, nbits));
        exponents[1] = look_up256(&window, join_bits(low_half, 32, nbits));
        exponents[2] = look_up256(&window, join_bits(high_half, 0, nbits));
        exponents[3] = look_up256(&window, join_bits(high_half, 32, nbits));
        tile_store256(bf16 + 2 * first, exponents, raw + first, nhere);
    }
    source->pos = pos;
    return STREAM_OK;
}

#else
typedef int no_rice_decode_avx2; /* a file must not be empty */
#endif
