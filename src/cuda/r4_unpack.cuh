/* r4_unpack.cuh - from a lane's share of R4 to pairs of BF16. */
#ifndef BINADE_CUDA_R4_UNPACK_CUH
#define BINADE_CUDA_R4_UNPACK_CUH

#include "cuda/r4_gpu_layout.h"
#include "cuda/r4_ptx.cuh"

/* A lane's 16 weights of a group. */
struct r4_share {
    uint4 raw;
    uint2 codes;
};

/* The nslices (1..3) slices behind the last group. Missing weights are 0 with code 0. */
static __device__ __forceinline__ r4_share r4_read_singles(const unsigned char *singles,
                                                           unsigned lane, unsigned nslices) {
    r4_share share = {{0, 0, 0, 0}, {0, 0}};
    const unsigned char *raw = singles + 4 * lane, *codes = singles + R4_SLICE_CODES_AT + 2 * lane;
    unsigned second = 0;

    share.raw.x = *(const unsigned *)raw;
    if (nslices > 1) {
        share.raw.y = *(const unsigned *)(raw + R4_SLICE_NBYTES);
        second = *(const unsigned short *)(codes + R4_SLICE_NBYTES);
    }
    share.codes.x = r4_join_codes(*(const unsigned short *)codes, second);
    if (nslices > 2) {
        share.raw.z = *(const unsigned *)(raw + 2 * R4_SLICE_NBYTES);
        share.codes.y = r4_join_codes(*(const unsigned short *)(codes + 2 * R4_SLICE_NBYTES), 0);
    }
    return share;
}

/* Group g of a row; behind the last whole group come the single slices. */
static __device__ __forceinline__ r4_share r4_read_group(const unsigned char *row, unsigned g,
                                                         unsigned nslices, unsigned lane) {
    const unsigned char *group = row + (size_t)g * R4_GROUP_NBYTES;
    unsigned nleft = nslices - g * R4_GROUP_NSLICES;
    if (nleft < R4_GROUP_NSLICES) return r4_read_singles(group, lane, nleft);
    r4_share share;
    share.raw = r4_read16(group + 16 * lane);
    share.codes = r4_read8(group + R4_GROUP_CODES_AT + 8 * lane);
    return share;
}

/* Two slices, 8 weights, to pairs[4] of BF16. bases: base << 7 | base << 23. */
static __device__ __forceinline__ void r4_unpack8(unsigned raw0, unsigned raw1, unsigned codes,
                                                  unsigned bases, unsigned pairs[4]) {
    const unsigned keep = 0x807f807fu, in_place = 0x07800780u;
    unsigned swapped0 = __byte_perm(raw0, 0, 0x2301), swapped1 = __byte_perm(raw1, 0, 0x2301);

    pairs[0] = ((raw0 & keep) | (codes & in_place)) + bases;
    pairs[1] = ((swapped0 & keep) | (__funnelshift_r(codes, codes, 4) & in_place)) + bases;
    pairs[2] = ((raw1 & keep) | (__funnelshift_r(codes, codes, 8) & in_place)) + bases;
    pairs[3] = ((swapped1 & keep) | (__funnelshift_r(codes, codes, 12) & in_place)) + bases;
}

static __device__ __forceinline__ void r4_unpack(const r4_share &share, unsigned bases,
                                                 unsigned pairs[8]) {
    r4_unpack8(share.raw.x, share.raw.y, share.codes.x, bases, pairs);
    r4_unpack8(share.raw.z, share.raw.w, share.codes.y, bases, pairs + 4);
}

/* Gives the weight of one escape its exponent, in the lane that owns it. Its code, 15, has made it
 * base + 15. */
static __device__ __forceinline__ void r4_patch(unsigned escape, unsigned lane, unsigned bases,
                                                unsigned pairs[8]) {
    unsigned position = escape >> 8;
    if ((position / 4 & 31) != lane) return;
    unsigned at = (position / 128 & 3) * 2 + (position / 2 & 1);
    unsigned change = ((escape & 0xff) << 7 ^ ((bases & 0xffff) + (R4_CODE_ESCAPE << 7)))
                      << 16 * (position & 1);
#pragma unroll
    for (unsigned i = 0; i < 8; i++)
        if (at == i) pairs[i] ^= change;
}

#endif
