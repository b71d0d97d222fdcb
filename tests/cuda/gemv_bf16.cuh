/* gemv_bf16.cuh - BF16 matvec and gather in the order and the launch shape of MLX's CUDA gemv:
 * blocks of 32 x 8, a warp for a row. What R4 is compared with, in bits and in time. */
#ifndef BINADE_GEMV_BF16_CUH
#define BINADE_GEMV_BF16_CUH

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/r4_gpu_layout.h"
#include "cuda/r4_ptx.cuh"
#include "launch_kernel.cuh"

template <int N> struct alignas(2 * N) bf16_vector { uint16_t v[N]; };

static __device__ __forceinline__ float widen_bf16(uint16_t bf16) {
    return __uint_as_float((unsigned)bf16 << 16);
}

/* One row of W times x, by a warp. */
template <int N>
static __device__ __forceinline__ void multiply_row_bf16(const uint16_t *w, const uint16_t *x,
                                                         uint16_t *y, unsigned ncols, int lane) {
    float sum = 0;
#pragma unroll 4
    for (int k = N * lane; k < (int)ncols; k += 32 * N) {
        bf16_vector<N> wv = *(const bf16_vector<N> *)(w + k), xv = *(const bf16_vector<N> *)(x + k);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum = fmaf(widen_bf16(wv.v[j]), widen_bf16(xv.v[j]), sum);
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(~0u, sum, apart);
    if (lane == 0) *y = r4_round_bf16(sum);
}

template <int N>
__global__ void gemv_bf16(const uint16_t *w, const uint16_t *x, uint16_t *y, unsigned nrows,
                          unsigned ncols) {
    unsigned row = blockIdx.x * 8 + threadIdx.y;
    if (row >= nrows) return;
    multiply_row_bf16<N>(w + (size_t)row * ncols, x, y + row, ncols, threadIdx.x);
}

/* Items along the grid's second side, as in MLX's gather_mv. */
template <int N>
__global__ void gather_bf16(const uint16_t *w, const uint16_t *x, const uint32_t *lhs,
                            const uint32_t *rhs, uint16_t *y, unsigned nrows, unsigned ncols) {
    unsigned row = blockIdx.x * 8 + threadIdx.y, item = blockIdx.y;
    if (row >= nrows) return;
    multiply_row_bf16<N>(w + ((size_t)rhs[item] * nrows + row) * ncols,
                         x + (size_t)lhs[item] * ncols, y + (size_t)item * nrows + row, ncols,
                         threadIdx.x);
}

static inline void run_gather_bf16(const uint16_t *w, const uint16_t *x, const uint32_t *lhs,
                                   const uint32_t *rhs, unsigned n, uint16_t *y, unsigned nrows,
                                   unsigned ncols, cudaStream_t s) {
    dim3 grid((nrows + 7) / 8, n), block(32, 8);
    unsigned per_lane = r4_per_lane(ncols);
    if (per_lane == 4)
        launch_kernel<gather_bf16<4>>(grid, block, s, w, x, lhs, rhs, y, nrows, ncols);
    if (per_lane == 2)
        launch_kernel<gather_bf16<2>>(grid, block, s, w, x, lhs, rhs, y, nrows, ncols);
    if (per_lane == 1)
        launch_kernel<gather_bf16<1>>(grid, block, s, w, x, lhs, rhs, y, nrows, ncols);
}

static inline void run_gemv_bf16(const uint16_t *w, const uint16_t *x, uint16_t *y, unsigned nrows,
                                 unsigned ncols, unsigned per_lane, cudaStream_t s) {
    dim3 grid((nrows + 7) / 8), block(32, 8);
    if (per_lane == 4) launch_kernel<gemv_bf16<4>>(grid, block, s, w, x, y, nrows, ncols);
    if (per_lane == 2) launch_kernel<gemv_bf16<2>>(grid, block, s, w, x, y, nrows, ncols);
    if (per_lane == 1) launch_kernel<gemv_bf16<1>>(grid, block, s, w, x, y, nrows, ncols);
}

#endif
