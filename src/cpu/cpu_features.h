/* cpu_features.h - what the running CPU can do, as far as the kernels ask. */
#ifndef BINADE_CPU_FEATURES_H
#define BINADE_CPU_FEATURES_H

#include <stdbool.h>

struct cpu_features {
    bool avx2;   /* AVX2, BMI1, BMI2 and POPCNT */
    bool avx512; /* the above and AVX-512 F, BW, DQ, VL, VBMI, VBMI2: Ice Lake, Zen 4 and later */
    bool neon;   /* 64-bit ARM */
};

struct cpu_features cpu_features(void);

#endif
