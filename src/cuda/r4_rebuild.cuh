/* r4_rebuild.cuh - rows of R4 back to BF16.
 *
 * Split: a warp for some groups of a row. Escapes are written over what the codes gave.
 */
#ifndef BINADE_CUDA_R4_REBUILD_CUH
#define BINADE_CUDA_R4_REBUILD_CUH

#include "cuda/r4_unpack.cuh"

/* A slice of a lane: columns first .. of `out`, a row of ncols. */
static __device__ __forceinline__ void r4_put_slice(unsigned short *out, unsigned slice,
                                                    unsigned lane, unsigned ncols,
                                                    unsigned per_lane, unsigned pair0,
                                                    unsigned pair1) {
    unsigned column = slice * R4_SLICE_NCOLS + per_lane * lane;
    if (per_lane == 4) {
        __stcs((uint2 *)(out + column), make_uint2(pair0, pair1));
    } else if (per_lane == 2) {
        *(unsigned *)(out + column) = pair0;
        if (column + 64 < ncols) *(unsigned *)(out + column + 64) = pair1;
    } else {
        if (column < ncols) out[column] = (unsigned short)pair0;
        if (column + 32 < ncols) out[column + 32] = (unsigned short)(pair0 >> 16);
        if (column + 64 < ncols) out[column + 64] = (unsigned short)pair1;
        if (column + 96 < ncols) out[column + 96] = (unsigned short)(pair1 >> 16);
    }
}

/* Groups g0 .. g0 + N of a row; `out` is the row of BF16, 8-byte aligned if per_lane is 4. */
template <unsigned N>
static __device__ __forceinline__ void
r4_rebuild_groups(const unsigned char *slices, const r4_row *rows, const unsigned *escapes,
                  size_t r, unsigned short *out, unsigned ncols, unsigned per_lane, unsigned base,
                  unsigned g0) {
    const unsigned lane = threadIdx.x % 32, nslices = r4_nslices(ncols);
    const unsigned ngroups = r4_ngroups(ncols), bases = base << 7 | base << 23;
    const unsigned char *row = slices + r * nslices * R4_SLICE_NBYTES;
    const r4_row header = rows[r];
    r4_share shares[N];

#pragma unroll
    for (unsigned i = 0; i < N; i++)
        if (g0 + i < ngroups) shares[i] = r4_read_group(row, g0 + i, nslices, lane);
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
        unsigned pairs[8];
        r4_unpack(shares[i], bases, pairs);
#pragma unroll
        for (unsigned t = 0; t < R4_GROUP_NSLICES; t++) {
            unsigned slice = (g0 + i) * R4_GROUP_NSLICES + t;
            if (slice < nslices)
                r4_put_slice(out, slice, lane, ncols, per_lane, pairs[2 * t], pairs[2 * t + 1]);
        }
    }
    if (!header.span_mask) return;
    __syncwarp();
    const unsigned end = rows[r + 1].escape_start;
    for (unsigned at = header.escape_start + lane; at < end; at += 32) {
        unsigned escape = escapes[at], g = r4_escape_group(escape);
        if (g < g0 || g >= g0 + N) continue;
        unsigned short *weight = out + r4_column(escape >> 8, per_lane);
        *weight = (unsigned short)((*weight & 0x807fu) | (escape & 0xff) << 7);
    }
}

/* NaN in the place of those groups. */
template <unsigned N>
static __device__ __forceinline__ void r4_rebuild_nan(unsigned short *out, unsigned ncols,
                                                      unsigned g0) {
    unsigned end = min(ncols, (g0 + N) * R4_GROUP_NCOLS);
    for (unsigned c = g0 * R4_GROUP_NCOLS + threadIdx.x % 32; c < end; c += 32)
        out[c] = 0x7fff;
}

/* What this warp does: N groups, from g0 on, of row o of `out`. */
struct r4_rebuild_item {
    size_t o;
    unsigned g0;
};

template <unsigned N>
static __device__ __forceinline__ r4_rebuild_item r4_find_rebuild_item(unsigned ncols) {
    const unsigned nspans = (r4_ngroups(ncols) + N - 1) / N;
    const size_t item = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    return {item / nspans, (unsigned)(item % nspans) * N};
}

#endif
