/* bf16_plain.h - BF16 to float32 and back, in plain C, as NVIDIA's GPUs convert them. */
#ifndef BINADE_CUDA_BF16_PLAIN_H
#define BINADE_CUDA_BF16_PLAIN_H

#include <stdint.h>
#include <string.h>

static inline float bf16_widen(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest BF16, ties to even; any NaN becomes 0x7fff, where r4_round of the CPU's kernels
 * (r4/r4_plain.h) has 0x7fc0. */
static inline uint16_t bf16_round(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
