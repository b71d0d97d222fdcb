/* r4_gather_any.cu - products of items with their experts' rows for any x. See r4_gather.cuh;
 * n_lane: the elements that a lane takes at once. */
#include "cuda/r4_any.cuh"

extern "C" __global__ void __launch_bounds__(256)
    binade_r4_gather_any(const unsigned char *slices, const r4_row *rows, const unsigned *escapes,
                         const unsigned short *x, const unsigned *lhs, const unsigned *rhs,
                         unsigned short *y, int n, int nx, int items_per_x, int nexperts, int ncols,
                         int per_lane, int row0, int taken, int block_nrows, int base, int n_lane) {
    const size_t o = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const unsigned item = (unsigned)(o / (unsigned)taken), row = (unsigned)(o % (unsigned)taken);
    if (item >= (unsigned)n) return;
    const unsigned x_row = lhs ? lhs[item] : item / (unsigned)items_per_x, expert = rhs[item];
    float sum = __uint_as_float(0x7fffffffu);
    if (x_row < (unsigned)nx && expert < (unsigned)nexperts)
        sum =
            r4_multiply_any(slices, rows, escapes, x + (size_t)x_row * (unsigned)ncols,
                            (size_t)expert * (unsigned)block_nrows + (unsigned)row0 + row,
                            (unsigned)ncols, (unsigned)per_lane, (unsigned)base, (unsigned)n_lane);
    if (threadIdx.x % 32 == 0) y[o] = r4_round_bf16(sum);
}
