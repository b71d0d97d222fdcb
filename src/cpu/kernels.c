#include "cpu/kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_features.h"
#include "format/fixed.h"
#include "format/rank_table.h"
#include "format/rice.h"

static const struct cpu_kernels plain = {
    .name = "plain",
    .count_exponents = count_exponents_plain,
    .rice_encode = rice_encode_plain,
    .rice_decode = rice_decode_plain,
    .fixed_encode = fixed_encode_plain,
    .fixed_decode = fixed_decode_plain,
    .fixed_count_escapes = fixed_count_escapes_plain,
};

/* Best first. */
enum { NSETS = 1 };
static const struct cpu_kernels *const sets[NSETS] = {&plain};

static bool is_supported(const struct cpu_kernels *set) {
    (void)set;
    return true;
}

/* The first set that BINADE_CPU allows; a word that names no set limits nothing. */
static size_t first_allowed(void) {
    const char *limit = getenv("BINADE_CPU");

    for (size_t i = 0; limit && i < NSETS; i++)
        if (strcmp(limit, sets[i]->name) == 0) return i;
    return 0;
}

const struct cpu_kernels *cpu_kernels_at(size_t i) {
    for (size_t set = first_allowed(); set < NSETS; set++)
        if (is_supported(sets[set]) && i-- == 0) return sets[set];
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
