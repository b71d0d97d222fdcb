/* r4_any.cuh - products for any number of columns, any alignment of x, and any number n of elements
 * that a lane takes at once, whatever the layout has: where x is no whole allocation, or too large
 * to stage. A warp for a row, weight by weight.
 */
#ifndef BINADE_CUDA_R4_ANY_CUH
#define BINADE_CUDA_R4_ANY_CUH

#include "cuda/r4_sum.cuh"
#include "cuda/r4_weight_at.cuh"

/* Row `row` of W times x: the sum of all lanes, in every lane. */
static __device__ __forceinline__ float r4_multiply_any(const unsigned char *slices,
                                                        const r4_row *rows, const unsigned *escapes,
                                                        const unsigned short *x, size_t row,
                                                        unsigned ncols, unsigned per_lane,
                                                        unsigned base, unsigned n) {
    const unsigned lane = threadIdx.x % 32, nslices = r4_nslices(ncols);
    const unsigned char *bytes = slices + row * nslices * R4_SLICE_NBYTES;
    const unsigned start = rows[row].escape_start, end = rows[row + 1].escape_start;
    unsigned column = n * lane, left = n;
    float sum = 0;

#pragma unroll 1
    while (column < ncols) {
        unsigned position = r4_position(column, per_lane);
        unsigned weight = r4_coded_at(bytes, nslices, position);
        if ((weight >> 7 & 15) == R4_CODE_ESCAPE)
            weight = (weight & 0x807f) | r4_find_escape(escapes, start, end, position) << 7;
        else
            weight += base << 7;
        sum = __fmaf_rn(r4_widen(weight), r4_widen(x[column]), sum);
        column++;
        if (--left > 0) continue;
        left = n;
        column += 31 * n;
    }
    return r4_add_lanes(sum);
}

#endif
