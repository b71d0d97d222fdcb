/* gemm_steps.cuh - y = x W^T of BF16 in steps of m16n8k16, ascending, from +0 in each split of K: a
 * warp for 16 rows of W and 8 of x, with plain loads. What R4 is compared with on a GPU. */
#ifndef BINADE_GEMM_STEPS_CUH
#define BINADE_GEMM_STEPS_CUH

#include <cstdint>

#include "cuda/gemm_table.h"
#include "cuda/r4_gemm_ptx.cuh"
#include "cuda/r4_sum.cuh"
#include "launch_kernel.cuh"

/* One split's sum of a tile: c of rows g and g + 8 of W, 2 t and 2 t + 1 of x. */
static __device__ __forceinline__ void step_bf16(float c[4], const uint16_t *const w[2],
                                                 const uint16_t *x, unsigned k, unsigned t) {
    auto two = [](const uint16_t *from) { return (unsigned)from[0] | (unsigned)from[1] << 16; };
    const unsigned a[4] = {two(w[0] + k + 2 * t), two(w[1] + k + 2 * t), two(w[0] + k + 2 * t + 8),
                           two(w[1] + k + 2 * t + 8)};
    const unsigned b[2] = {two(x + k + 2 * t), two(x + k + 2 * t + 8)};
    r4_mma(c, a, b);
}

/* The sum of a split to those of the ones before, as enum gemm_reduction has it. */
static __device__ __forceinline__ float add_split(float total, float sum, unsigned reduction) {
    if (reduction == GEMM_REDUCTION_BF16) sum = r4_widen(r4_round_bf16(sum));
    total += sum;
    return reduction == GEMM_REDUCTION_IN_PLACE ? r4_widen(r4_round_bf16(total)) : total;
}

/* experts: of each row of x, null where there is one weight of nrows. has_two_slices: as
 * GEMM_TWO_SLICES. */
static __global__ void gemm_steps(const uint16_t *w, const uint16_t *x, const uint32_t *experts,
                                  uint16_t *y, unsigned nrows, unsigned nx, unsigned ncols,
                                  unsigned split_ncols, unsigned reduction, bool has_two_slices) {
    const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4, row = 16 * blockIdx.x + g;
    /* Experts: one row of x at a time, eight times. */
    const unsigned m = experts ? blockIdx.y : 8 * blockIdx.y + g;
    if (experts) w += (size_t)experts[m] * nrows * ncols;
    const uint16_t *const rows[2] = {w + (size_t)min(row, nrows - 1) * ncols,
                                     w + (size_t)min(row + 8, nrows - 1) * ncols};
    float total[4] = {0, 0, 0, 0};
    for (unsigned k0 = 0; k0 < ncols; k0 += split_ncols) {
        float c[2][4] = {};
        for (unsigned k = k0; k < min(k0 + split_ncols, ncols); k += 16)
            step_bf16(c[has_two_slices && (k - k0) / 32 % 2], rows,
                      x + (size_t)min(m, nx - 1) * ncols, k, t);
        for (int i = 0; i < 4; i++)
            total[i] = add_split(total[i], has_two_slices ? c[0][i] + c[1][i] : c[0][i], reduction);
    }
    for (unsigned i = 0; i < 4; i++) {
        unsigned to_row = row + i / 2 * 8;
        unsigned to_m = experts ? blockIdx.y : 8 * blockIdx.y + 2 * t + i % 2;
        if (to_row < nrows && to_m < nx && (!experts || (t == 0 && i % 2 == 0)))
            y[(size_t)to_m * nrows + to_row] = r4_round_bf16(total[i]);
    }
}

static inline void run_gemm_steps(const uint16_t *w, const uint16_t *x, const uint32_t *experts,
                                  uint16_t *y, unsigned nrows, unsigned nx, unsigned ncols,
                                  unsigned split_ncols, unsigned reduction = GEMM_REDUCTION_FP32,
                                  bool has_two_slices = false) {
    dim3 grid((nrows + 15) / 16, experts ? nx : (nx + 7) / 8);
    launch_kernel<gemm_steps>(grid, 32, 0, w, x, experts, y, nrows, nx, ncols, split_ncols,
                              reduction, has_two_slices);
}

#endif
