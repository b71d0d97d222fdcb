/* r4_count.cu - how often each exponent occurs among nrows x ncols weights of BF16: counts of each
 * block, [gridDim.x][256], for the caller to add up. Blocks of 256. */
extern "C" __global__ void __launch_bounds__(256)
    binade_r4_count(const unsigned short *bf16, unsigned *counts, int nrows, int ncols) {
    __shared__ unsigned held[256];
    const size_t n = (size_t)(unsigned)nrows * (unsigned)ncols, step = (size_t)gridDim.x * 256;
    held[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 4
    for (size_t i = (size_t)blockIdx.x * 256 + threadIdx.x; i < n; i += step)
        atomicAdd(&held[bf16[i] >> 7 & 255], 1u);
    __syncthreads();
    counts[(size_t)blockIdx.x * 256 + threadIdx.x] = held[threadIdx.x];
}
