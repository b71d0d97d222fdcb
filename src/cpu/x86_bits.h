/* x86_bits.h - what the AVX2 and AVX-512 kernels share: targets and masks. */
#ifndef BINADE_CPU_X86_BITS_H
#define BINADE_CPU_X86_BITS_H

#include <immintrin.h>

#include "cpu/bits64.h"

#define TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define TARGET_AVX512                                                                              \
    __attribute__((target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,"    \
                          "avx512vbmi2")))

/* Ones at the first n (0..64) lanes. */
TARGET_AVX2 static ALWAYS_INLINE uint64_t first_lanes(unsigned n) {
    return _bzhi_u64(~(uint64_t)0, n);
}

#endif
