/* r4_matvec_any.cu - y = W x for any number of columns, any alignment of x, and any number n of
 * elements that a lane takes at once, whatever the layout has: where x is no whole allocation, or
 * too large to stage. A warp for a row, weight by weight.
 */
#include "cuda/r4_sum.cuh"
#include "cuda/r4_weight_at.cuh"

extern "C" __global__ void __launch_bounds__(256)
    binade_r4_matvec_any(const unsigned char *slices, const r4_row *rows, const unsigned *escapes,
                         const unsigned short *x, unsigned short *y, int ncols, int per_lane,
                         int row0, int nrows, int base, int n) {
    const unsigned lane = threadIdx.x % 32, i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= (unsigned)nrows) return;
    const unsigned row = (unsigned)row0 + i, nslices = r4_nslices((unsigned)ncols);
    const unsigned char *bytes = slices + (size_t)row * nslices * R4_SLICE_NBYTES;
    const unsigned start = rows[row].escape_start, end = rows[row + 1].escape_start;
    float sum = 0;

    unsigned column = (unsigned)n * lane, left = (unsigned)n;
#pragma unroll 1
    while (column < (unsigned)ncols) {
        unsigned position = r4_position(column, (unsigned)per_lane);
        unsigned weight = r4_coded_at(bytes, nslices, position);
        if ((weight >> 7 & 15) == R4_CODE_ESCAPE)
            weight = (weight & 0x807f) | r4_find_escape(escapes, start, end, position) << 7;
        else
            weight += (unsigned)base << 7;
        sum = __fmaf_rn(r4_widen(weight), r4_widen(x[column]), sum);
        column++;
        if (--left > 0) continue;
        left = (unsigned)n;
        column += 31 * (unsigned)n;
    }
    sum = r4_add_lanes(sum);
    if (lane == 0) y[i] = r4_round_bf16(sum);
}
