#include "cpu/cpu_features.h"

#if defined(__x86_64__)

/* The compiler's run-time support asks CPUID, and XGETBV whether the system saves the registers. */
struct cpu_features cpu_features(void) {
    struct cpu_features has = {0};

    __builtin_cpu_init();
    has.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
               __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    has.avx512 = has.avx2 && __builtin_cpu_supports("avx512f") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
                 __builtin_cpu_supports("avx512vbmi2");
    return has;
}

#else

struct cpu_features cpu_features(void) {
    struct cpu_features has = {0};

#if defined(__aarch64__)
    has.neon = true; /* part of the architecture */
#endif
    return has;
}

#endif
