/* Format 2 encoder, AVX-512: a tile is two vectors of ranks.
 *
 * A plane is the mask of the lanes with q > j, squeezed (PEXT) to the lanes of the plane before.
 * The costs of the four k come from the sum of the ranks and from counting masks.
 */
#if defined(__x86_64__)

#include "cpu/avx512.h"
#include "cpu/kernels_simd.h"
#include "cpu/x86_rice.h"
#include "format/rice.h"

TARGET_AVX512 static ALWAYS_INLINE unsigned count(uint64_t mask0, uint64_t mask1) {
    return (unsigned)(_mm_popcnt_u64(mask0) + _mm_popcnt_u64(mask1));
}

/* Lanes whose bits under `bit` are not all 0. */
TARGET_AVX512 static ALWAYS_INLINE uint64_t lanes_with(__m512i ranks, int bit) {
    return _mm512_test_epi8_mask(ranks, _mm512_set1_epi8((char)bit));
}

TARGET_AVX512 static ALWAYS_INLINE unsigned
choose_k(const struct ranks512 *low, const struct ranks512 *high, unsigned n, unsigned biggest) {
    const __m512i zero = _mm512_setzero_si512();
    unsigned sum[4], at_top[4];
    __m512i sums =
        _mm512_add_epi64(_mm512_sad_epu8(low->rank, zero), _mm512_sad_epu8(high->rank, zero));

    sum[0] = (unsigned)_mm512_reduce_add_epi64(sums);
#pragma GCC unroll 4
    for (int k = 0; k < 3; k++) {
        unsigned nodd = count(lanes_with(low->rank, 1 << k), lanes_with(high->rank, 1 << k));
        sum[k + 1] = (sum[k] - nodd) / 2;
    }
#pragma GCC unroll 4
    for (int k = 0; k <= 3; k++) {
        __m512i top = _mm512_set1_epi8((char)(biggest >> k << k));
        at_top[k] = count(_mm512_mask_cmpge_epu8_mask(low->lanes, low->rank, top),
                          _mm512_mask_cmpge_epu8_mask(high->lanes, high->rank, top));
    }
    return rice_choose_k(n, biggest, sum, at_top);
}

TARGET_AVX512 static ALWAYS_INLINE void put_low_plane(__m512i ranks, unsigned n, unsigned k,
                                                      struct bit_sink *sink) {
    const uint64_t bit[3] = {lanes_with(ranks, 1), lanes_with(ranks, 2), lanes_with(ranks, 4)};
    put_low_bits(sink, bit, n, k);
}

TARGET_AVX512 static ALWAYS_INLINE void put_planes(const struct ranks512 *low,
                                                   const struct ranks512 *high, unsigned k,
                                                   unsigned qmax, struct bit_sink *sink) {
    const __m512i keep = _mm512_set1_epi8((char)(0xff >> k));
    const __m128i shift = _mm_cvtsi32_si128((int)k);
    __m512i q0 = _mm512_and_si512(_mm512_srl_epi16(low->rank, shift), keep);
    __m512i q1 = _mm512_and_si512(_mm512_srl_epi16(high->rank, shift), keep);
    uint64_t active[2] = {low->lanes, high->lanes};
    __m512i level = _mm512_setzero_si512();

    for (unsigned j = 0; j < qmax; j++) {
        const uint64_t more[2] = {_mm512_cmpgt_epu8_mask(q0, level),
                                  _mm512_cmpgt_epu8_mask(q1, level)};
        put_plane(sink, active, more);
        active[0] = more[0];
        active[1] = more[1];
        level = _mm512_add_epi8(level, _mm512_set1_epi8(1));
    }
}

TARGET_AVX512 void rice_encode_avx512(const uint8_t *bf16, size_t n, const uint8_t rank_of[256],
                                      uint8_t *raw, uint8_t *meta, struct bit_sink *sink) {
    const struct table512 table = table_load512(rank_of);
    struct bit_sink out = *sink;

    for (size_t first = 0; first < n; first += TILE) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        unsigned n0 = nhere < 64 ? nhere : 64, n1 = nhere - n0;
        struct ranks512 low = ranks_load512(bf16 + 2 * first, n0, &table, raw + first);
        struct ranks512 high = ranks_load512(bf16 + 2 * (first + n0), n1, &table, raw + first + n0);
        unsigned biggest = max_byte512(_mm512_max_epu8(low.rank, high.rank));
        unsigned k = choose_k(&low, &high, nhere, biggest);
        if (k > 0) {
            put_low_plane(low.rank, n0, k, &out);
            put_low_plane(high.rank, n1, k, &out);
        }
        put_planes(&low, &high, k, biggest >> k, &out);
        *meta++ = (uint8_t)(k | biggest >> k << 2);
    }
    sink_settle(&out);
    *sink = out;
}

#else
typedef int no_rice_encode_avx512; /* a file must not be empty */
#endif
