/* gemv_bf16.cuh - a BF16 matvec in the order and the launch shape of MLX's CUDA gemv: blocks of
 * 32 x 8, a warp for a row. What R4 is compared with, in bits and in time. */
#ifndef BINADE_GEMV_BF16_CUH
#define BINADE_GEMV_BF16_CUH

#include <cuda_runtime.h>

#include <cstdint>

template <int N> struct alignas(2 * N) bf16_vector { uint16_t v[N]; };

static __device__ __forceinline__ float widen_bf16(uint16_t bf16) {
    return __uint_as_float((unsigned)bf16 << 16);
}

template <int N>
__global__ void gemv_bf16(const uint16_t *w, const uint16_t *x, uint16_t *y, unsigned nrows,
                          unsigned ncols) {
    int row = blockIdx.x * 8 + threadIdx.y, lane = threadIdx.x;
    if (row >= (int)nrows) return;
    float sum = 0;
    w += (size_t)row * ncols;
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
    if (lane == 0)
        asm("{ .reg .b16 r; cvt.rn.bf16.f32 r, %1; st.global.b16 [%0], r; }" ::"l"(y + row),
            "f"(sum)
            : "memory");
}

static inline void run_gemv_bf16(const uint16_t *w, const uint16_t *x, uint16_t *y, unsigned nrows,
                                 unsigned ncols, unsigned per_lane, cudaStream_t stream) {
    dim3 grid((nrows + 7) / 8), block(32, 8);
    if (per_lane == 4) gemv_bf16<4><<<grid, block, 0, stream>>>(w, x, y, nrows, ncols);
    if (per_lane == 2) gemv_bf16<2><<<grid, block, 0, stream>>>(w, x, y, nrows, ncols);
    if (per_lane == 1) gemv_bf16<1><<<grid, block, 0, stream>>>(w, x, y, nrows, ncols);
}

#endif
