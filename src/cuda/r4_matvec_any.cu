/* r4_matvec_any.cu - y = W x for any x. */
#include "cuda/r4_any.cuh"

extern "C" __global__ void __launch_bounds__(256)
    binade_r4_matvec_any(const unsigned char *slices, const r4_row *rows, const unsigned *escapes,
                         const unsigned short *x, unsigned short *y, int ncols, int per_lane,
                         int row0, int nrows, int base, int n) {
    const unsigned i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= (unsigned)nrows) return;
    float sum = r4_multiply_any(slices, rows, escapes, x, (unsigned)row0 + i, (unsigned)ncols,
                                (unsigned)per_lane, (unsigned)base, (unsigned)n);
    if (threadIdx.x % 32 == 0) y[i] = r4_round_bf16(sum);
}
