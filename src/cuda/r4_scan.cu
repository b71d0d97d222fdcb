/* r4_scan.cu - sums of what comes before: sums[i * width] for i <= n, of counts[i * width]. With
 * width 2, what follows each count is copied, and 0 follows the last sum: r4_row of loading's
 * counts. Sums that do not fit 32 bits stay at the most that does, so that the last one tells. One
 * block of 1024.
 */
static __device__ __forceinline__ unsigned r4_add_most(unsigned a, unsigned b) {
    return a + b < a ? ~0u : a + b;
}

extern "C" __global__ void __launch_bounds__(1024)
    binade_r4_scan(const unsigned *counts, unsigned *sums, int n, int width) {
    __shared__ unsigned parts[1024];
    const unsigned each = ((unsigned)n + 1023) / 1024;
    const unsigned first = min(threadIdx.x * each, (unsigned)n);
    const unsigned last = min(first + each, (unsigned)n);
    unsigned sum = 0;

#pragma unroll 4
    for (unsigned i = first; i < last; i++)
        sum = r4_add_most(sum, counts[(size_t)i * (unsigned)width]);
    parts[threadIdx.x] = sum;
    __syncthreads();
#pragma unroll 1
    for (unsigned apart = 1; apart < 1024; apart *= 2) {
        unsigned before = threadIdx.x >= apart ? parts[threadIdx.x - apart] : 0;
        __syncthreads();
        parts[threadIdx.x] = r4_add_most(parts[threadIdx.x], before);
        __syncthreads();
    }
    sum = threadIdx.x > 0 ? parts[threadIdx.x - 1] : 0;
#pragma unroll 1
    for (unsigned i = first; i < last; i++) {
        size_t at = (size_t)i * (unsigned)width;
        sums[at] = sum;
        sum = r4_add_most(sum, counts[at]);
        if (width == 2) sums[at + 1] = counts[at + 1];
    }
    if (threadIdx.x < 1023) return;
    sums[(size_t)(unsigned)n * (unsigned)width] = parts[1023];
    if (width == 2) sums[(size_t)(unsigned)n * 2 + 1] = 0;
}
