/* Exponent counts, AVX2: 32 exponents at a time are compared with the near ones and counted in byte
 * lanes; the others are counted one by one.
 */
#if defined(__x86_64__)

#include "cpu/avx2.h"
#include "cpu/kernels_simd.h"
#include "cpu/near_exponents.h"
#include "format/rank_table.h"

/* Counts the exponents of nvectors (up to NEAR_BLOCK) vectors; returns how many are neither 0 nor
 * near. */
TARGET_AVX2 static size_t count_block(const uint8_t *bf16, size_t nvectors, unsigned near,
                                      uint64_t counts[256]) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i hits[NNEAR], candidates[NNEAR];
    size_t nfar = 0, nzero = 0;

    for (unsigned c = 0; c < NNEAR; c++) {
        hits[c] = zero;
        candidates[c] = _mm256_set1_epi8((char)(near + c));
    }
    for (size_t v = 0; v < nvectors; v++) {
        __m256i e = bf16_load256(bf16 + 64 * v).exponent;
        __m256i from_near = _mm256_sub_epi8(e, candidates[0]);
        __m256i is_near =
            _mm256_cmpeq_epi8(_mm256_min_epu8(from_near, _mm256_set1_epi8(NNEAR - 1)), from_near);
        uint32_t is_zero = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(e, zero));
        uint32_t is_far = ~((uint32_t)_mm256_movemask_epi8(is_near) | is_zero);
#pragma GCC unroll 12
        for (unsigned c = 0; c < NNEAR; c++)
            hits[c] = _mm256_sub_epi8(hits[c], _mm256_cmpeq_epi8(e, candidates[c]));
        nzero += (size_t)_mm_popcnt_u32(is_zero);
        if (is_far) {
            uint8_t exponents[32];
            store256(exponents, e);
            nfar += (size_t)_mm_popcnt_u32(is_far);
            for (; is_far; is_far = _blsr_u32(is_far))
                counts[exponents[_tzcnt_u32(is_far)]]++;
        }
    }
    counts[0] += nzero;
    for (unsigned c = 0; c < NNEAR; c++) {
        uint64_t sums[4];
        store256((uint8_t *)sums, _mm256_sad_epu8(hits[c], zero));
        counts[near + c] += sums[0] + sums[1] + sums[2] + sums[3];
    }
    return nfar;
}

TARGET_AVX2 void count_exponents_avx2(const uint8_t *bf16, size_t n, uint64_t counts[256]) {
    unsigned near = NEAR_GUESS;

    for (size_t limit = NEAR_TRIAL; n >= 32; limit = NEAR_BLOCK) {
        size_t nvectors = n / 32 < limit ? n / 32 : limit;
        if (count_block(bf16, nvectors, near, counts) > 4 * nvectors) near = near_exponents(counts);
        bf16 += 64 * nvectors;
        n -= 32 * nvectors;
    }
    count_exponents_plain(bf16, n, counts);
}

#else
typedef int no_count_exponents_avx2; /* a file must not be empty */
#endif
