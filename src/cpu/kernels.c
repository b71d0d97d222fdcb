#include "cpu/kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_features.h"
#include "cpu/kernels_simd.h"
#include "format/fixed.h"
#include "format/rank_table.h"
#include "format/rice.h"

/* Best first; the last needs nothing. */
static const struct cpu_kernels sets[] = {
#if defined(__x86_64__)
    {
        .name = "avx512",
        .count_exponents = count_exponents_avx512,
        .rice_encode = rice_encode_avx512,
        .rice_decode = rice_decode_avx512,
        .fixed_encode = fixed_encode_avx512,
        .fixed_decode = fixed_decode_avx512,
        .fixed_count_escapes = fixed_count_escapes_avx512,
    },
    {
        .name = "avx2",
        .count_exponents = count_exponents_avx2,
        .rice_encode = rice_encode_avx2,
        .rice_decode = rice_decode_avx2,
        .fixed_encode = fixed_encode_avx2,
        .fixed_decode = fixed_decode_avx2,
        .fixed_count_escapes = fixed_count_escapes_avx2,
    },
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    {
        .name = "neon",
        .count_exponents = count_exponents_neon,
        .rice_encode = rice_encode_neon,
        .rice_decode = rice_decode_neon,
        .fixed_encode = fixed_encode_neon,
        .fixed_decode = fixed_decode_neon,
        .fixed_count_escapes = fixed_count_escapes_neon,
    },
#endif
    {
        .name = "plain",
        .count_exponents = count_exponents_plain,
        .rice_encode = rice_encode_plain,
        .rice_decode = rice_decode_plain,
        .fixed_encode = fixed_encode_plain,
        .fixed_decode = fixed_decode_plain,
        .fixed_count_escapes = fixed_count_escapes_plain,
    },
};

enum { NSETS = sizeof sets / sizeof *sets };

static bool is_supported(const struct cpu_kernels *set, const struct cpu_features *has) {
    if (strcmp(set->name, "avx512") == 0) return has->avx512;
    if (strcmp(set->name, "avx2") == 0) return has->avx2;
    if (strcmp(set->name, "neon") == 0) return has->neon;
    return true;
}

/* The first set that BINADE_CPU allows; a word that names no set here limits nothing. */
static size_t first_allowed(void) {
    const char *limit = getenv("BINADE_CPU");

    for (size_t i = 0; limit && i < NSETS; i++)
        if (strcmp(limit, sets[i].name) == 0) return i;
    return 0;
}

const struct cpu_kernels *cpu_kernels_at(size_t i) {
    struct cpu_features has = cpu_features();

    for (size_t set = first_allowed(); set < NSETS; set++)
        if (is_supported(&sets[set], &has) && i-- == 0) return &sets[set];
    return NULL;
}

const struct cpu_kernels *cpu_kernels(void) {
    /* Threads that race here all find the same set. */
    static _Atomic(const struct cpu_kernels *) chosen;
    const struct cpu_kernels *set = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (!set) {
        set = cpu_kernels_at(0);
        atomic_store_explicit(&chosen, set, memory_order_relaxed);
    }
    return set;
}
