/* r4_weight_at.cuh - any one weight of R4, as BF16. */
#ifndef BINADE_CUDA_R4_WEIGHT_AT_CUH
#define BINADE_CUDA_R4_WEIGHT_AT_CUH

#include "cuda/r4_unpack.cuh"

/* The exponent of the escape at a position; `from` .. `end` are those of its row. */
static __device__ __forceinline__ unsigned r4_find_escape(const unsigned *escapes, unsigned from,
                                                          unsigned end, unsigned position) {
#pragma unroll 1
    while (from + 1 < end) {
        unsigned middle = from + (end - from) / 2;
        if (escapes[middle] >> 8 <= position)
            from = middle;
        else
            end = middle;
    }
    return escapes[from] & 0xff;
}

/* BF16 but for the exponent, in the place of which is the code. */
static __device__ __forceinline__ unsigned r4_coded_at(const unsigned char *row, unsigned nslices,
                                                       unsigned position) {
    unsigned slice = position / 128, lane = position / 4 % 32, in_group = slice % R4_GROUP_NSLICES;
    const unsigned char *at = row + (size_t)(slice - in_group) * R4_SLICE_NBYTES;
    unsigned raw, codes;

    if (slice < nslices / R4_GROUP_NSLICES * R4_GROUP_NSLICES) {
        raw = *(const unsigned *)(at + 16 * lane + 4 * in_group);
        codes = *(const unsigned *)(at + R4_GROUP_CODES_AT + 8 * lane + in_group / 2 * 4);
        codes = __funnelshift_r(codes, codes, 8 * (in_group % 2));
    } else {
        at += in_group * R4_SLICE_NBYTES;
        raw = *(const unsigned *)(at + 4 * lane);
        codes = r4_join_codes(*(const unsigned short *)(at + R4_SLICE_CODES_AT + 2 * lane), 0);
    }
    if (position & 2) {
        raw = __byte_perm(raw, 0, 0x2301);
        codes = __funnelshift_r(codes, codes, 4);
    }
    unsigned pair = (raw & 0x807f807fu) | (codes & 0x07800780u);
    return position & 1 ? pair >> 16 : pair & 0xffff;
}

#endif
