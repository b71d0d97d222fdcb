/* r4_normed.cuh - products with the RMS norm of x, as MLX's rms_norm computes it for up to 8,192
 * columns: wraps a `Rows` of r4_engine.cuh with one row of x.
 *
 * MLX gives a row to nthreads threads, each of which adds the squares of eight neighbouring columns
 * at a time, by fused steps; then lanes 16, 8, 4, 2, 1 apart are added, and so are the warps' sums.
 * The scale is 1 / sqrt(sum / columns + eps); x times it is rounded to BF16, and so is that times
 * the norm's weight. Every block computes it anew, while its first weights arrive.
 */
#ifndef BINADE_CUDA_R4_NORMED_CUH
#define BINADE_CUDA_R4_NORMED_CUH

#include "cuda/r4_epilogue.cuh"
#include "cuda/r4_sum.cuh"

enum { R4_NORM_NREADS = 8 };

/* The threads that MLX gives to a row: 64 or 128. */
static __device__ __forceinline__ unsigned r4_norm_nthreads(unsigned ncols) {
    unsigned nreads = (ncols + R4_NORM_NREADS - 1) / R4_NORM_NREADS;
    if (ncols <= 64 * R4_NORM_NREADS) return 64;
    return nreads % 128 != 0 && nreads % 64 == 0 && nreads / 64 <= 8 ? 64 : 128;
}

template <class Base> struct r4_normed : Base {
    const unsigned short *weight;
    float eps;
    unsigned ncols;
    float *sums; /* shared memory for those of the warps; it may be used again afterwards */
    mutable float scale;

    __device__ r4_normed(const Base &base, const unsigned short *weight, float eps, unsigned ncols,
                         float *sums)
        : Base(base), weight(weight), eps(eps), ncols(ncols), sums(sums), scale(0) {}

    /* The squares of this thread's columns. */
    __device__ float add_squares() const {
        const unsigned nthreads = r4_norm_nthreads(ncols);
        const unsigned short *x = Base::x_row(0);
        float sum = 0;
        if (threadIdx.x >= nthreads) return sum;
#pragma unroll 1
        for (unsigned first = threadIdx.x * R4_NORM_NREADS; first < ncols;
             first += nthreads * R4_NORM_NREADS) {
            unsigned short held[R4_NORM_NREADS];
#pragma unroll
            for (unsigned j = 0; j < R4_NORM_NREADS; j++)
                held[j] = first + j < ncols ? x[first + j] : 0;
#pragma unroll
            for (unsigned j = 0; j < R4_NORM_NREADS; j++)
                sum = __fmaf_rn(r4_widen(held[j]), r4_widen(held[j]), sum);
        }
        return sum;
    }

    template <class Start> __device__ bool prepare(Start start) const {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const unsigned nwarps = r4_norm_nthreads(ncols) / 32;
        float sum = add_squares();
        start();
        if (warp < nwarps) {
            sum = r4_add_lanes(sum);
            if (lane == 0) sums[warp] = sum;
        }
        __syncthreads();
        sum = lane < nwarps ? sums[lane] : 0.0f;
        __syncthreads();
        sum = r4_add_lanes(sum);
        scale = rsqrtf(__fadd_rn(__fdiv_rn(sum, (float)ncols), eps));
        return true;
    }

    __device__ unsigned short normalize(unsigned x, unsigned short w) const {
        const unsigned short minus_zero = 0x8000;
        return r4_fma_bf16(w, r4_round_bf16(__fmul_rn(r4_widen(x), scale)), minus_zero);
    }
    __device__ uint2 finish4(uint2 x, unsigned column) const {
        const unsigned short *w = weight + column;
        uint2 y;
        y.x = normalize(x.x & 0xffff, w[0]) | (unsigned)normalize(x.x >> 16, w[1]) << 16;
        y.y = normalize(x.y & 0xffff, w[2]) | (unsigned)normalize(x.y >> 16, w[3]) << 16;
        return y;
    }
    __device__ unsigned finish1(unsigned x, unsigned column) const {
        return normalize(x & 0xffff, weight[column]);
    }
};

#endif
