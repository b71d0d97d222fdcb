/* r4_from_bf16.cuh - rows of R4 from BF16. */
#ifndef BINADE_CUDA_R4_FROM_BF16_CUH
#define BINADE_CUDA_R4_FROM_BF16_CUH

#include "cuda/r4_sink.cuh"

static __device__ __forceinline__ bool r4_decode_bf16(const unsigned short *bf16,
                                                      const r4_shape &shape, unsigned row,
                                                      unsigned lane, r4_sink &sink) {
    const unsigned nslices = r4_nslices(shape.ncols), shift = r4_mask_shift(shape.ncols);
    const unsigned short *weights = bf16 + (size_t)row * shape.ncols;
    unsigned codes_before = 0;

    for (unsigned slice = 0; slice < nslices; slice++) {
        unsigned present = r4_find_present(shape.ncols, shape.per_lane, slice, lane);
        unsigned here[4], raw[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            unsigned column = r4_column(slice * 128 + lane * 4 + q, shape.per_lane);
            unsigned weight = present >> q & 1 ? weights[column] : 0;
            here[q] = weight >> 7 & 255;
            raw[q] = (weight >> 8 & 0x80) | (weight & 0x7f);
        }
        r4_put(sink, slice, nslices, shift, lane, shape.base, here, raw, present, codes_before);
    }
    return false;
}

#endif
