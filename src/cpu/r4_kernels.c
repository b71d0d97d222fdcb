#include "cpu/r4_kernels.h"

#include <stdatomic.h>
#include <string.h>

#include "cpu/kernels.h"
#include "r4/r4_plain.h"

static const struct r4_kernels sets[] = {
#if defined(__x86_64__)
    {"avx512", r4_decode_avx512, r4_matvec_avx512, r4_gemm_avx512, r4_widen_avx512,
     r4_encode_avx512},
    {"avx2", r4_decode_avx2, r4_matvec_avx2, r4_gemm_avx2, r4_widen_avx2, r4_encode_avx2},
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    {"neon", r4_decode_neon, r4_matvec_neon, r4_gemm_neon, r4_widen_neon, r4_encode_neon},
#endif
    {"plain", r4_decode_plain, r4_matvec_plain, r4_gemm_plain, r4_widen_plain, r4_encode_plain},
};

/* Which CPU has what, and what BINADE_CPU allows, is decided in one place. */
static const struct r4_kernels *set_beside(const struct cpu_kernels *other) {
    for (size_t i = 0; other && i < sizeof sets / sizeof *sets; i++)
        if (strcmp(sets[i].name, other->name) == 0) return &sets[i];
    return NULL;
}

const struct r4_kernels *r4_kernels_at(size_t i) {
    return set_beside(cpu_kernels_at(i));
}

const struct r4_kernels *r4_kernels(void) {
    static _Atomic(const struct r4_kernels *) chosen;
    const struct r4_kernels *set = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (!set) {
        set = set_beside(cpu_kernels());
        atomic_store_explicit(&chosen, set, memory_order_relaxed);
    }
    return set;
}
