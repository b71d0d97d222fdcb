/* r4_matvec.cuh - y = W x, one row of x, in the order of MLX's CUDA gemv.
 *
 * Order: r4_gpu_plain.h. Split: a warp for a row at a time; rows go round the blocks, then round
 * their warps, so that every multiprocessor gets as many. The grid is what is resident at once:
 * one block of 1,024 a multiprocessor where shared memory allows.
 *
 * x is staged once a block as float32, in the order of positions, so that nothing behind that
 * depends on how many columns a lane takes at once. Behind column K it is -0: added to any sum as
 * a product with a weight that is finite and positive, it changes no bit.
 *
 * Each warp copies its rows through a ring in shared memory, R4_NSTAGES spans of 8 slices deep and
 * over the ends of rows. x is asked for before the first of them, as all else waits for it. More
 * stages are slower on an H200: a warp whose copies wait behind all copies of the other warps
 * starts late, and nobody takes over its rows.
 *
 * A row's escapes are held by the warp, one a lane, and put in where the row's header has a span
 * flagged.
 */
#ifndef BINADE_CUDA_R4_MATVEC_CUH
#define BINADE_CUDA_R4_MATVEC_CUH

#include "cuda/r4_unpack.cuh"

static __device__ __forceinline__ unsigned short r4_round_bf16(float value) {
    unsigned short rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
}

/* ---- Shared memory, by 32-bit address ---------------------------------------------------------
 * The compiler would work addresses out anew from the thread's number at each use.
 */

static __device__ __forceinline__ unsigned r4_hide(unsigned value) {
    asm volatile("" : "+r"(value));
    return value;
}

template <int AT> static __device__ __forceinline__ uint4 r4_shared16(unsigned address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address), "n"(AT));
    return v;
}

template <int AT> static __device__ __forceinline__ uint2 r4_shared8(unsigned address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2 + %3];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(address), "n"(AT));
    return v;
}

/* Copies 16 bytes if i < n. */
template <int AT>
static __device__ __forceinline__ void r4_copy_if(int i, int n, unsigned to, const uint4 *from) {
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %0, %1;\n"
                 "@p cp.async.cg.shared.global [%2 + %4], [%3 + %4], 16; }" ::"r"(i),
                 "r"(n), "r"(to), "l"(from), "n"(AT)
                 : "memory");
}

template <int N> static __device__ __forceinline__ void r4_wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

static __device__ __forceinline__ void r4_commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* ---- x ----------------------------------------------------------------------------------------
 */

/* Four positions from p on, as BF16; -0 behind column K. */
static __device__ __forceinline__ uint2 r4_read_x(const unsigned short *x, unsigned ncols,
                                                  unsigned per_lane, unsigned p) {
    unsigned v[4];
    if (per_lane == 4)
        return p < ncols ? *(const uint2 *)(x + p) : make_uint2(0x80008000u, 0x80008000u);
#pragma unroll
    for (int q = 0; q < 4; q++) {
        unsigned column = r4_column(p + q, per_lane);
        v[q] = column < ncols ? x[column] : 0x8000u;
    }
    return make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
}

static __device__ __forceinline__ float4 r4_widen4(uint2 v) {
    return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
                       __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u));
}

/* ---- Escapes ----------------------------------------------------------------------------------
 */

/* Those of a row that are still to come: `mine` is number held_from + lane. */
struct r4_escapes {
    unsigned next, end, held_from, mine, span_mask;
};

static __device__ __forceinline__ void r4_hold_escapes(const unsigned *escapes, unsigned lane,
                                                       r4_escapes &e) {
    e.held_from = e.next;
    e.mine = e.next + lane < e.end ? escapes[e.next + lane] : ~0u;
}

static __device__ __forceinline__ void r4_patch_group(const unsigned *escapes, unsigned g,
                                                      unsigned lane, r4_escapes &e,
                                                      unsigned pairs[8]) {
    while (e.next < e.end) {
        if (e.next - e.held_from == 32) r4_hold_escapes(escapes, lane, e);
        unsigned escape = __shfl_sync(~0u, e.mine, e.next - e.held_from);
        if (r4_escape_group(escape) != g) break;
        r4_patch(escape, lane, pairs);
        e.next++;
    }
}

/* ---- Sums -------------------------------------------------------------------------------------
 */

template <int AT>
static __device__ __forceinline__ float r4_add4(float sum, unsigned pair0, unsigned pair1,
                                                unsigned xs) {
    uint4 x = r4_shared16<AT>(xs);
    sum = __fmaf_rn(__uint_as_float(pair0 << 16), __uint_as_float(x.x), sum);
    sum = __fmaf_rn(__uint_as_float(pair0 & 0xffff0000u), __uint_as_float(x.y), sum);
    sum = __fmaf_rn(__uint_as_float(pair1 << 16), __uint_as_float(x.z), sum);
    return __fmaf_rn(__uint_as_float(pair1 & 0xffff0000u), __uint_as_float(x.w), sum);
}

/* A group's 16 steps of a lane's sum; XAT: byte of the group's x from xs on. */
template <int XAT>
static __device__ __forceinline__ float r4_add_group(float sum, const unsigned pairs[8],
                                                     unsigned xs) {
    sum = r4_add4<XAT>(sum, pairs[0], pairs[1], xs);
    sum = r4_add4<XAT + 512>(sum, pairs[2], pairs[3], xs);
    sum = r4_add4<XAT + 1024>(sum, pairs[4], pairs[5], xs);
    return r4_add4<XAT + 1536>(sum, pairs[6], pairs[7], xs);
}

enum { R4_SPAN_NCHUNKS = R4_SPAN_NBYTES / 16, R4_NHELD = 4 };

/* x [ncols], y [nrows]. xs: shared memory, 16-byte aligned: ngroups * 512 floats, then for each
 * warp R4_RING_NBYTES. */
static __device__ __forceinline__ void r4_matvec(const unsigned char *slices, const r4_row *rows,
                                                 const unsigned *escapes, const unsigned short *x,
                                                 unsigned short *y, unsigned nrows, unsigned ncols,
                                                 unsigned per_lane, unsigned base, float *xs) {
    const unsigned lane = r4_hide(threadIdx.x % 32), stride = blockDim.x / 32 * gridDim.x;
    const unsigned npositions = r4_ngroups(ncols) * R4_GROUP_NCOLS, nslices = r4_nslices(ncols);
    const unsigned nspans = nslices / 8, nsingle = nslices % 8, shift = r4_mask_shift(ncols);
    const unsigned bases = base << 7 | base << 23;
    const int row_nchunks = nslices * (R4_SLICE_NBYTES / 16);
    const unsigned x_first = r4_hide((unsigned)__cvta_generic_to_shared(xs) + 16 * lane);
    const unsigned ring = r4_hide((unsigned)__cvta_generic_to_shared(xs + npositions) +
                                  threadIdx.x / 32 * R4_RING_NBYTES);
    unsigned row = threadIdx.x / 32 * gridDim.x + blockIdx.x, row_ahead = row;
    unsigned slot = 0, slot_ahead = 0, end = 0;
    const uint4 *ahead = (const uint4 *)slices + (size_t)row * row_nchunks + lane;
    int left = row < nrows ? row_nchunks : 0;
    r4_row header = {0, 0};
    uint2 held[R4_NHELD];

#pragma unroll
    for (int i = 0; i < R4_NHELD; i++) {
        unsigned p = 4 * (threadIdx.x + i * blockDim.x);
        if (p < npositions) held[i] = r4_read_x(x, ncols, per_lane, p);
    }
    if (row < nrows) {
        header = rows[row];
        end = rows[row + 1].escape_start;
    }
    auto copy_span = [&]() {
        unsigned to = ring + slot_ahead + 16 * lane;
        r4_copy_if<0>(lane, left, to, ahead);
        r4_copy_if<512>(lane + 32, left, to, ahead);
        r4_copy_if<1024>(lane + 64, left, to, ahead);
        r4_commit_copies();
        slot_ahead =
            slot_ahead == R4_RING_NBYTES - R4_SPAN_NBYTES ? 0 : slot_ahead + R4_SPAN_NBYTES;
        left -= R4_SPAN_NCHUNKS;
        ahead += R4_SPAN_NCHUNKS;
        if (left <= 0) {
            row_ahead += stride;
            ahead = (const uint4 *)slices + (size_t)row_ahead * row_nchunks + lane;
            left = row_ahead < nrows ? row_nchunks : 0;
        }
    };
#pragma unroll
    for (int i = 0; i < R4_NSTAGES - 1; i++)
        copy_span();
#pragma unroll
    for (int i = 0; i < R4_NHELD; i++) {
        unsigned p = 4 * (threadIdx.x + i * blockDim.x);
        if (p < npositions) *(float4 *)(xs + p) = r4_widen4(held[i]);
    }
    for (unsigned p = 4 * (threadIdx.x + R4_NHELD * blockDim.x); p < npositions;
         p += 4 * blockDim.x)
        *(float4 *)(xs + p) = r4_widen4(r4_read_x(x, ncols, per_lane, p));
    __syncthreads();

    while (row < nrows) {
        r4_escapes e = {header.escape_start, end, 0, 0, header.span_mask};
        unsigned xg = x_first, pairs[8];
        float sum = 0;

        if (e.span_mask) r4_hold_escapes(escapes, lane, e);
        if (row + stride < nrows) {
            header = rows[row + stride];
            end = rows[row + stride + 1].escape_start;
        }
        auto next_span = [&]() {
            r4_wait_copies<R4_NSTAGES - 2>();
            __syncwarp();
            copy_span();
            unsigned here = ring + slot;
            slot = slot == R4_RING_NBYTES - R4_SPAN_NBYTES ? 0 : slot + R4_SPAN_NBYTES;
            return here;
        };
#pragma unroll 1
        for (unsigned span = 0; span < nspans; span++) {
            unsigned here = next_span(), wide = here + 16 * lane, narrow = here + 8 * lane;
            bool flagged = e.span_mask >> (span >> shift) & 1;

            r4_unpack({r4_shared16<0>(wide), r4_shared8<512>(narrow)}, bases, pairs);
            if (flagged) r4_patch_group(escapes, 2 * span, lane, e, pairs);
            sum = r4_add_group<0>(sum, pairs, xg);
            r4_unpack({r4_shared16<768>(wide), r4_shared8<1280>(narrow)}, bases, pairs);
            if (flagged) r4_patch_group(escapes, 2 * span + 1, lane, e, pairs);
            sum = r4_add_group<2048>(sum, pairs, xg);
            xg += 4096;
        }
        if (nsingle) {
            unsigned here = next_span(), g = 2 * nspans, nleft = nsingle;
            const unsigned char *singles = (const unsigned char *)(xs + npositions) +
                                           (here - ring) + threadIdx.x / 32 * R4_RING_NBYTES;
            if (nleft >= 4) {
                r4_unpack({r4_shared16<0>(here + 16 * lane), r4_shared8<512>(here + 8 * lane)},
                          bases, pairs);
                if (e.span_mask) r4_patch_group(escapes, g, lane, e, pairs);
                sum = r4_add_group<0>(sum, pairs, xg);
                xg += 2048;
                singles += R4_GROUP_NBYTES;
                nleft -= 4;
                g++;
            }
            if (nleft) {
                r4_unpack(r4_read_singles(singles, lane, nleft), bases, pairs);
                if (e.span_mask) r4_patch_group(escapes, g, lane, e, pairs);
                sum = r4_add_group<0>(sum, pairs, xg);
            }
        }
#pragma unroll
        for (int apart = 16; apart > 0; apart /= 2)
            sum += __shfl_xor_sync(~0u, sum, apart);
        if (lane == 0) y[row] = r4_round_bf16(sum);
        row += stride;
    }
}

#endif
