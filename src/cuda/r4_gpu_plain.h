/* r4_gpu_plain.h - R4 on a GPU and products with it in plain C: what the kernels must give. */
#ifndef BINADE_CUDA_R4_GPU_PLAIN_H
#define BINADE_CUDA_R4_GPU_PLAIN_H

#include <stddef.h>
#include <stdint.h>

#include "cuda/r4_gpu_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first of 15 consecutive exponents (0..R4_BASE_MOST) to be coded, from the exponents by rank:
 * the most frequent exponent that they miss is as rare as can be. */
unsigned r4_choose_base(const uint8_t table[256]);

/* Lays out nrows x ncols weights: slices [nrows][nslices * 192], rows [nrows + 1]. escapes has room
 * for every weight, or is NULL: then they are only counted. Returns how many there are. */
size_t r4_gpu_make_plain(const uint16_t *bf16, size_t nrows, unsigned ncols, unsigned per_lane,
                         unsigned base, uint8_t *slices, struct r4_row *rows, uint32_t *escapes);

/* y[r] = sum over k of w[r][k] * x[k] as MLX's CUDA gemv adds: 32 lanes, each a chain of fused
 * steps over per_lane columns of every 32 * per_lane, then pairs of lanes 16, 8, 4, 2, 1 apart;
 * rounded once to BF16, ties to even, NaN 0x7fff. */
void r4_gemv_plain(const uint16_t *w, const uint16_t *x, size_t nrows, size_t ncols,
                   unsigned per_lane, uint16_t *y);

/* Rows row0 .. row0 + taken of each of nexperts blocks of block_nrows rows. */
struct r4_experts {
    size_t nexperts, block_nrows, row0, taken;
};

/* Item i < n: row lhs[i] of x [nx][ncols] times expert rhs[i]. */
struct r4_pairs {
    const uint16_t *x;
    size_t nx, n;
    const uint32_t *lhs, *rhs;
};

/* y [n][taken], each item in the order of r4_gemv_plain, which is that of MLX's gather_mv; NaN
 * where an index is out of range. */
void r4_gather_plain(const uint16_t *w, size_t ncols, const struct r4_experts *experts,
                     const struct r4_pairs *pairs, unsigned per_lane, uint16_t *y);

/* a + b and a * b of BF16, rounded once to BF16 as above. */
uint16_t r4_add_plain(uint16_t a, uint16_t b);
uint16_t r4_multiply_plain(uint16_t a, uint16_t b);

/* y[i] = act[gate[i]] * up[i], i < n. */
void r4_gate_plain(const uint16_t act[1 << 16], const uint16_t *gate, const uint16_t *up, size_t n,
                   uint16_t *y);

/* The mean of the squares of x [ncols], at most 8,192, and eps, as MLX's rms_norm adds on CUDA: two
 * or four warps, each thread a chain of fused steps over eight columns at a time, in turns; then
 * lanes as in r4_gemv_plain, then the warps' sums likewise. */
float r4_mean_square_plain(const uint16_t *x, unsigned ncols, float eps);

/* normed[k] = x[k] * scale, rounded to BF16, times weight[k]. scale: 1 / sqrt of the above as
 * rsqrtf gives it on the GPU, which rounds in a way of its own. */
void r4_norm_plain(const uint16_t *x, const uint16_t *weight, unsigned ncols, float scale,
                   uint16_t *normed);

#ifdef __cplusplus
}
#endif
#endif
