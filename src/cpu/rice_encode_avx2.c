/* Format 2 encoder, AVX2 and BMI2: a tile is four vectors of ranks.
 *
 * A plane is the mask of the weights with q > j, squeezed (PEXT) to the weights of the plane
 * before. The costs of the four k come from sums of bytes, four sums at once.
 */
#if defined(__x86_64__)

#include "cpu/avx2.h"
#include "cpu/kernels_simd.h"
#include "cpu/x86_rice.h"
#include "format/rice.h"

TARGET_AVX2 static ALWAYS_INLINE unsigned choose_k(const __m256i ranks[4], unsigned n,
                                                   unsigned biggest) {
    __m256i odd[4], top[4]; /* by k: the sum over vectors of bit k, in place; of quotients at top */
    unsigned sum[4] = {0}, at_top[4];

#pragma GCC unroll 4
    for (unsigned k = 0; k <= RICE_K_MAX; k++) {
        const __m256i bit = _mm256_set1_epi8((char)(1 << k));
        const __m256i least = _mm256_set1_epi8((char)(biggest >> k << k));
        odd[k] = top[k] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (unsigned v = 0; v < NVECTORS; v++) {
            __m256i is_top = _mm256_cmpeq_epi8(_mm256_max_epu8(ranks[v], least), ranks[v]);
            odd[k] = _mm256_add_epi8(odd[k], _mm256_and_si256(ranks[v], bit));
            top[k] = _mm256_sub_epi8(top[k], is_top);
        }
    }
    uint64_t sums = sum_bytes256(ranks), odds = sum_bytes256(odd), tops = sum_bytes256(top);
#pragma GCC unroll 4
    for (unsigned v = 0; v < NVECTORS; v++)
        sum[0] += (unsigned)(sums >> 16 * v) & 0xffff;
#pragma GCC unroll 4
    for (unsigned k = 0; k < RICE_K_MAX; k++)
        sum[k + 1] = (sum[k] - (((unsigned)(odds >> 16 * k) & 0xffff) >> k)) / 2;
        /* Weights past n have quotient 0, which would be at the top if all others have it. */
#pragma GCC unroll 4
    for (unsigned k = 0; k <= RICE_K_MAX; k++)
        at_top[k] = biggest >> k ? (unsigned)(tops >> 16 * k) & 0xffff : n;
    return rice_choose_k(n, biggest, sum, at_top);
}

/* Masks of the weights whose bit b is set. */
TARGET_AVX2 static ALWAYS_INLINE void find_bits(const __m256i ranks[4], unsigned b,
                                                uint64_t low_half[3], uint64_t high_half[3]) {
    const __m128i shift = _mm_cvtsi32_si128(7 - (int)b);

    low_half[b] = top_bits(_mm256_sll_epi16(ranks[0], shift), _mm256_sll_epi16(ranks[1], shift));
    high_half[b] = top_bits(_mm256_sll_epi16(ranks[2], shift), _mm256_sll_epi16(ranks[3], shift));
}

TARGET_AVX2 static ALWAYS_INLINE void put_tile(const __m256i ranks[4], unsigned n, unsigned k,
                                               unsigned qmax, struct bit_sink *sink) {
    unsigned n0 = n < 64 ? n : 64, n1 = n - n0;
    uint64_t low_half[3] = {0}, high_half[3] = {0};
    uint64_t active[2] = {first_lanes(n0), first_lanes(n1)};
    const __m256i keep = _mm256_set1_epi8((char)(0xff >> k));
    __m256i q[4], level = _mm256_setzero_si256();

    if (k > 0) {
        for (unsigned b = 0; b < k; b++)
            find_bits(ranks, b, low_half, high_half);
        put_low_bits(sink, low_half, n0, k);
        put_low_bits(sink, high_half, n1, k);
    }
#pragma GCC unroll 4
    for (unsigned v = 0; v < NVECTORS; v++)
        q[v] = _mm256_and_si256(_mm256_srl_epi16(ranks[v], _mm_cvtsi32_si128((int)k)), keep);
    for (unsigned j = 0; j < qmax; j++) {
        uint64_t more[2] = {
            top_bits(_mm256_cmpgt_epi8(q[0], level), _mm256_cmpgt_epi8(q[1], level)),
            top_bits(_mm256_cmpgt_epi8(q[2], level), _mm256_cmpgt_epi8(q[3], level)),
        };
        put_plane(sink, active, more);
        active[0] = more[0];
        active[1] = more[1];
        level = _mm256_add_epi8(level, _mm256_set1_epi8(1));
    }
}

TARGET_AVX2 void rice_encode_avx2(const uint8_t *bf16, size_t n, const uint8_t rank_of[256],
                                  uint8_t *raw, uint8_t *meta, struct bit_sink *sink) {
    const struct window256 window = rank_window(rank_of);
    struct bit_sink out = *sink;

    for (size_t first = 0; first < n; first += TILE) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        uint8_t exponents[TILE];
        __m256i ranks[4];

        tile_load256(bf16 + 2 * first, nhere, &window, raw + first, exponents, ranks);
        unsigned biggest = max_byte256(_mm256_max_epu8(_mm256_max_epu8(ranks[0], ranks[1]),
                                                       _mm256_max_epu8(ranks[2], ranks[3])));
        unsigned k = choose_k(ranks, nhere, biggest);
        put_tile(ranks, nhere, k, biggest >> k, &out);
        *meta++ = (uint8_t)(k | biggest >> k << 2);
    }
    sink_settle(&out);
    *sink = out;
}

#else
typedef int no_rice_encode_avx2; /* a file must not be empty */
#endif
