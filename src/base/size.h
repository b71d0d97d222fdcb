/* size.h - sums and products of sizes that come from files; true if the result does not fit. */
#ifndef BINADE_BASE_SIZE_H
#define BINADE_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

static inline bool add_overflows(uint64_t a, uint64_t b, uint64_t *sum) {
    return __builtin_add_overflow(a, b, sum);
}

static inline bool mul_overflows(uint64_t a, uint64_t b, uint64_t *product) {
    return __builtin_mul_overflow(a, b, product);
}

static inline uint64_t ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

#endif
