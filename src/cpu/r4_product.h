/* r4_product.h - products with R4 weights by a chosen kernel set; binade_r4.h says what they give.
 */
#ifndef BINADE_CPU_R4_PRODUCT_H
#define BINADE_CPU_R4_PRODUCT_H

#include "r4/r4_layout.h"

/* Which kernels, on how many threads at most. */
struct r4_means {
    const struct r4_kernels *set;
    unsigned nthreads;
};

struct r4_means r4_default_means(void);

/* x, ldx; y, ldy; bias: as in binade_r4_matmul. */
struct r4_operands {
    const uint16_t *x, *bias;
    uint16_t *y;
    size_t ldx, ldy;
};

void r4_matmul(const struct r4_means *means, const binade_r4 *w, uint64_t expert,
               const struct r4_operands *operands, size_t m);
void r4_gather(const struct r4_means *means, const binade_r4 *w, const struct r4_operands *operands,
               const uint32_t *x_rows, const uint32_t *experts, size_t n);
void r4_rows(const struct r4_means *means, const binade_r4 *w, const uint32_t *ids, size_t n,
             uint16_t *out);
void r4_rebuild(const struct r4_means *means, const binade_r4 *w, uint64_t expert, uint64_t row0,
                uint64_t row1, uint16_t *out);

#endif
