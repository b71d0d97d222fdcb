/* r4_sum.cuh - steps of a lane's sum in the order of MLX's CUDA gemv (r4_gpu_plain.h). */
#ifndef BINADE_CUDA_R4_SUM_CUH
#define BINADE_CUDA_R4_SUM_CUH

#include "cuda/r4_ptx.cuh"

static __device__ __forceinline__ float r4_widen(unsigned bf16) {
    return __uint_as_float(bf16 << 16);
}

/* The sum of all lanes' sums, in every lane. */
static __device__ __forceinline__ float r4_add_lanes(float sum) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(~0u, sum, apart);
    return sum;
}

template <int AT>
static __device__ __forceinline__ float r4_add4(float sum, unsigned pair0, unsigned pair1,
                                                unsigned xs) {
    uint4 x = r4_shared16<AT>(xs);
    sum = __fmaf_rn(__uint_as_float(pair0 << 16), __uint_as_float(x.x), sum);
    sum = __fmaf_rn(__uint_as_float(pair0 & 0xffff0000u), __uint_as_float(x.y), sum);
    sum = __fmaf_rn(__uint_as_float(pair1 << 16), __uint_as_float(x.z), sum);
    return __fmaf_rn(__uint_as_float(pair1 & 0xffff0000u), __uint_as_float(x.w), sum);
}

/* A group's 16 steps; XAT: byte of the group's x from xs on. */
template <int XAT>
static __device__ __forceinline__ float r4_add_group(float sum, const unsigned pairs[8],
                                                     unsigned xs) {
    sum = r4_add4<XAT>(sum, pairs[0], pairs[1], xs);
    sum = r4_add4<XAT + 512>(sum, pairs[2], pairs[3], xs);
    sum = r4_add4<XAT + 1024>(sum, pairs[4], pairs[5], xs);
    return r4_add4<XAT + 1536>(sum, pairs[6], pairs[7], xs);
}

#endif
