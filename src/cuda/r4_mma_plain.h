/* r4_mma_plain.h - products with BF16 weights on NVIDIA's tensor cores in plain C: the bits of a
 * step of 16 columns, and of a product that is made of such steps.
 *
 * A step is one output of mma.sync m16n8k16 on BF16 with float32 sums; a slice of wgmma gives the
 * same bits. It adds the 16 products and the sum so far at once, as integers:
 *
 * - A product is exact. Its exponent is the sum of its factors' exponents, be its significand 1 or
 *   more or 2 or more. Subnormals, be they factors or the sum so far, have exponent -126: they are
 *   not normalised.
 * - All 17 terms are cut, toward zero, to multiples of 2^-25 of the greatest exponent's power of
 *   two. What is left is added without loss. A term that is zero has no exponent: neither a zero
 *   times a large factor nor a sum so far of zero makes the others lose bits.
 * - The greatest exponent is at least -133, that of the smallest BF16: multiples of 2^-158 are the
 *   finest.
 * - The result is cut, toward zero, to float32, subnormals to multiples of 2^-149. A zero is +0, be
 *   it of negative zeros or cut from a negative sum.
 * - From 2^128 on it is infinite. Products that large may cancel.
 * - An infinity or NaN as a factor or the sum so far: as in IEEE 754. An infinity times a subnormal
 *   is infinite.
 *
 * Nothing is rounded to nearest, and the order of the columns does not matter.
 *
 * Measured on an H200 (compute capability 9.0), all 402,432 outputs: operands narrow and wide,
 * columns that cancel, products over 2^128 that do too, greatest exponents about and below -133,
 * zeros of both signs, subnormal factors, sums and results, overflow, infinities also times
 * subnormals, NaN. Other GPUs may cut elsewhere. Every NaN was 0x7fffffff there; here its bits are
 * those of the C compiler's arithmetic.
 */
#ifndef BINADE_CUDA_R4_MMA_PLAIN_H
#define BINADE_CUDA_R4_MMA_PLAIN_H

#include <stddef.h>
#include <stdint.h>

#include "cuda/gemm_table.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { R4_MMA_NCOLS = 16 };

/* sum + w[0] * x[0] + .. + w[15] * x[15]. */
float r4_mma_plain(float sum, const uint16_t *w, const uint16_t *x);

/* The columns in nsplits >= 1 splits as gemm_table.h has them, and how their sums are added, in
 * order and each sum rounded to float32; GEMM_REDUCTION_NONE where there is one. */
struct r4_splits {
    int nsplits;
    enum gemm_reduction reduction;
    enum gemm_order order; /* of the steps of a split */
};

/* y[m][n] = sum over k of w[n][k] * x[m][k]: steps of 16 columns, ascending, from +0 in each split
 * or, GEMM_TWO_SLICES, in both accumulators of it; rounded to BF16, ties to even, NaN 0x7fff. w
 * [nrows][ncols], x [nx][ncols], y [nx][nrows]; ncols is a multiple of 16 and at most 2^30. */
void r4_mma_gemm_plain(const uint16_t *w, const uint16_t *x, size_t nrows, size_t nx, int ncols,
                       const struct r4_splits *splits, uint16_t *y);

#ifdef __cplusplus
}
#endif
#endif
