/* Exponent counts, AVX-512: 64 exponents at a time are compared with the near ones and counted in
 * byte lanes; the others are compressed to one list.
 */
#if defined(__x86_64__)

#include "cpu/avx512.h"
#include "cpu/kernels_simd.h"
#include "cpu/near_exponents.h"

static void count_bytes(const uint8_t *exponents, size_t n, uint64_t counts[256]) {
    for (size_t i = 0; i < n; i++)
        counts[exponents[i]]++;
}

/* Counts the exponents of nvectors (up to NEAR_BLOCK) vectors that are 0 or near. The others go to
 * `far`, and a vector past them may be written. Returns how many. */
TARGET_AVX512 static size_t count_block(const uint8_t *bf16, size_t nvectors, unsigned near,
                                        uint64_t counts[256], uint8_t *far) {
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi8(1);
    __m512i hits[NNEAR];
    size_t nfar = 0, nzero = 0;

    for (unsigned c = 0; c < NNEAR; c++)
        hits[c] = zero;
    for (size_t v = 0; v < nvectors; v++) {
        __m512i e = bf16_load512(bf16 + 128 * v, 64).exponent;
        __m512i from_near = _mm512_sub_epi8(e, _mm512_set1_epi8((char)near));
        uint64_t is_zero = _mm512_testn_epi8_mask(e, e);
        uint64_t is_far = _mm512_cmpge_epu8_mask(from_near, _mm512_set1_epi8(NNEAR)) & ~is_zero;
#pragma GCC unroll 12
        for (unsigned c = 0; c < NNEAR; c++) {
            __mmask64 hit = _mm512_cmpeq_epi8_mask(e, _mm512_set1_epi8((char)(near + c)));
            hits[c] = _mm512_mask_add_epi8(hits[c], hit, hits[c], one);
        }
        nzero += (size_t)_mm_popcnt_u64(is_zero);
        _mm512_storeu_si512(far + nfar, _mm512_maskz_compress_epi8(is_far, e));
        nfar += (size_t)_mm_popcnt_u64(is_far);
    }
    counts[0] += nzero;
    for (unsigned c = 0; c < NNEAR; c++)
        counts[near + c] += (uint64_t)_mm512_reduce_add_epi64(_mm512_sad_epu8(hits[c], zero));
    return nfar;
}

TARGET_AVX512 void count_exponents_avx512(const uint8_t *bf16, size_t n, uint64_t counts[256]) {
    uint8_t far[64 * NEAR_BLOCK + 64];
    unsigned near = NEAR_GUESS;

    for (size_t limit = NEAR_TRIAL; n >= 64; limit = NEAR_BLOCK) {
        size_t nvectors = n / 64 < limit ? n / 64 : limit;
        size_t nfar = count_block(bf16, nvectors, near, counts, far);
        count_bytes(far, nfar, counts);
        if (nfar > 8 * nvectors) near = near_exponents(counts);
        bf16 += 128 * nvectors;
        n -= 64 * nvectors;
    }
    if (n > 0) {
        _mm512_storeu_si512(far, bf16_load512(bf16, (unsigned)n).exponent);
        count_bytes(far, n, counts);
    }
}

#else
typedef int no_count_exponents_avx512; /* a file must not be empty */
#endif
