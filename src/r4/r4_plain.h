/* r4_plain.h - the plain C definition of R4: what each kernel of r4/r4_layout.h must give. */
#ifndef BINADE_R4_PLAIN_H
#define BINADE_R4_PLAIN_H

#include <string.h>

#include "r4/r4_layout.h"

/* The lookup of 16 exponents by code. */
void r4_lookup_build(const uint8_t exponents[16], struct r4_lookup *lookup);

/* One step of a sum. MLX's CPU backend, built without AVX, multiplies and then adds; its build for
 * AArch64 fuses the two. -ffp-contract=off keeps compilers from choosing for themselves. */
static inline float r4_step(float sum, float x, float w) {
#if defined(__aarch64__)
    return __builtin_fmaf(x, w, sum);
#else
    float product = x * w;
    return sum + product;
#endif
}

static inline float r4_widen(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest BF16, ties to even; any NaN becomes 0x7fc0. */
static inline uint16_t r4_round(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return is_nan ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

r4_decode_kernel r4_decode_plain;
r4_matvec_kernel r4_matvec_plain;
r4_gemm_kernel r4_gemm_plain;
r4_widen_kernel r4_widen_plain;
r4_encode_kernel r4_encode_plain;

/* Appends the exponents of the escapes among finished groups; bf16 is the first group's first
 * weight, rows are `stride` bytes apart. */
void r4_put_escapes(const uint8_t *groups, size_t ngroups, const uint8_t *bf16, size_t stride,
                    uint8_t **escapes);

#endif
