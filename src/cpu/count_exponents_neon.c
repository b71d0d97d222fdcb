/* Exponent counts, NEON: 16 exponents at a time are compared with the near ones and counted in byte
 * lanes; a vector with others is counted one by one.
 */
#if defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#include "cpu/kernels_simd.h"
#include "cpu/near_exponents.h"
#include "cpu/neon.h"
#include "format/rank_table.h"

/* Counts the exponents of nvectors (up to NEAR_BLOCK) vectors; returns how many vectors have
 * exponents that are neither 0 nor near. */
static size_t count_block(const uint8_t *bf16, size_t nvectors, unsigned near,
                          uint64_t counts[256]) {
    uint8x16_t hits[NNEAR], zeros = vdupq_n_u8(0);
    size_t nfar = 0;

    for (unsigned c = 0; c < NNEAR; c++)
        hits[c] = vdupq_n_u8(0);
    for (size_t v = 0; v < nvectors; v++) {
        uint8x16_t e = bf16_load128(bf16 + 32 * v).exponent;
        uint8x16_t from_near = vsubq_u8(e, vdupq_n_u8((uint8_t)near));
        uint8x16_t is_zero = vceqzq_u8(e);
        uint8x16_t is_counted = vorrq_u8(is_zero, vcltq_u8(from_near, vdupq_n_u8(NNEAR)));
        if (vminvq_u8(is_counted) == 0) {
            count_exponents_plain(bf16 + 32 * v, 16, counts);
            nfar++;
            continue;
        }
        zeros = vsubq_u8(zeros, is_zero);
#pragma GCC unroll 12
        for (unsigned c = 0; c < NNEAR; c++)
            hits[c] = vsubq_u8(hits[c], vceqq_u8(from_near, vdupq_n_u8((uint8_t)c)));
    }
    counts[0] += vaddlvq_u8(zeros);
    for (unsigned c = 0; c < NNEAR; c++)
        counts[near + c] += vaddlvq_u8(hits[c]);
    return nfar;
}

void count_exponents_neon(const uint8_t *bf16, size_t n, uint64_t counts[256]) {
    unsigned near = NEAR_GUESS;

    for (size_t limit = NEAR_TRIAL; n >= 16; limit = NEAR_BLOCK) {
        size_t nvectors = n / 16 < limit ? n / 16 : limit;
        if (count_block(bf16, nvectors, near, counts) > nvectors / 4) near = near_exponents(counts);
        bf16 += 32 * nvectors;
        n -= 16 * nvectors;
    }
    count_exponents_plain(bf16, n, counts);
}

#else
typedef int no_count_exponents_neon; /* a file must not be empty */
#endif
