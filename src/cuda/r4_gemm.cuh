/* r4_gemm.cuh - several rows of x times a weight on Hopper, in the order of cublasLt's kernels
 * there and of CUTLASS's for sorted experts: steps of 16 columns, ascending, into one float32
 * accumulator from +0; where K is split, one for each split, and their sums added in order. Within
 * a step the order of columns changes no bit (r4_mma_plain.h).
 *
 * A block works on one item (r4_gemm_items.cuh) at a time with three kinds of warps, which meet in
 * slots (r4_gemm_slots.cuh): decoders put BF16 weights there, copiers x, and one warpgroup
 * multiplies. Splits of K are multiplied by the blocks of a cluster, the first of which adds.
 */
#ifndef BINADE_CUDA_R4_GEMM_CUH
#define BINADE_CUDA_R4_GEMM_CUH

#include "cuda/r4_gemm_copy.cuh"
#include "cuda/r4_gemm_decode.cuh"

template <int NX> struct r4_gemm_multiplier {
    using Slots = r4_gemm_slots<NX>;

    const Slots &slots;
    unsigned warp, lane;

    /* The sums of an item; `at` goes on by its slots. */
    __device__ void multiply(float c[NX / 2], r4_slot &at) const {
        constexpr int nunits = Slots::nunits;
        r4_slot before = {Slots::nslots, 0}; /* none */
#pragma unroll
        for (int i = 0; i < NX / 2; i++)
            c[i] = 0;
#pragma unroll 1
        for (unsigned piece = slots.piece0(); piece < slots.piece1(); piece++) {
            const unsigned w = slots.w_at(at), x = slots.x_at(at);
            /* Units of a piece; only the first and the last may be cut. */
            const unsigned u0 = max(slots.unit0, nunits * piece) - nunits * piece;
            const unsigned u1 = min(slots.unit1, nunits * (piece + 1)) - nunits * piece;
            slots.wait_full(at);
            r4_wgmma_fence();
#pragma unroll 1
            for (unsigned u = u0; u < u1; u++) {
                unsigned long long a = r4_describe(w + u * R4_W_NBYTES);
                unsigned long long b = r4_describe(x + u * Slots::x_nbytes);
#pragma unroll
                for (int step = 0; step < 4; step++)
                    r4_wgmma<NX>(c, a + 2 * step, b + 2 * step);
            }
            r4_wgmma_commit();
            r4_wgmma_wait<1>();
            release(before);
            before = at;
            slots.advance(at);
        }
        r4_wgmma_wait<0>();
        release(before);
    }

    __device__ void release(const r4_slot &at) const {
        if (at.number < Slots::nslots && lane == 0) r4_arrive(slots.empty(at));
    }

    /* Where a lane's sums go in y [..][taken]: rows of x from m on, y at row m and its first row of
     * the weight. */
    struct target {
        unsigned m, m1;
        unsigned short *y;
    };

    template <class Cursor>
    __device__ target target_of(const Cursor &item, const r4_part &part) const {
        const unsigned m = item.m0 + 2 * (lane % 4);
        return {m, item.m1, part.y + m * (size_t)part.taken + item.y_row + 16 * warp + lane / 4};
    }

    /* Four of them; then to the next eight rows of x. */
    __device__ static void put4(const float c[4], target &to, size_t taken) {
        if (to.m < to.m1) {
            to.y[0] = r4_round_bf16(c[0]);
            to.y[8] = r4_round_bf16(c[2]);
        }
        if (to.m + 1 < to.m1) {
            to.y[taken] = r4_round_bf16(c[1]);
            to.y[taken + 8] = r4_round_bf16(c[3]);
        }
        to.m += 8;
        to.y += 8 * taken;
    }

    __device__ void put(const float c[NX / 2], target to, size_t taken) const {
#pragma unroll
        for (int i = 0; i < NX / 2; i += 4)
            put4(c + i, to, taken);
    }

    /* Splits meet in the cluster's first block, where slots were: they are used no more. All other
     * warps of the cluster join in with r4_sync_cluster, twice. */
    template <int NSPLITS>
    __device__ void put_splits(const float c[NX / 2], target to, size_t taken) const {
        const unsigned at = slots.slots + 4 * threadIdx.x;
#pragma unroll
        for (int i = 0; i < NX / 2; i++)
            r4_put_shared4<0>(at + 512 * i, __float_as_uint(c[i]));
        r4_sync_cluster();
        if (r4_cluster_rank() == 0) {
#pragma unroll 1
            for (int i = 0; i < NX / 2; i += 4) {
                float sums[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    sums[k] = r4_read_block(at + 512 * (i + k), 0);
#pragma unroll
                    for (unsigned split = 1; split < NSPLITS; split++)
                        sums[k] += r4_read_block(at + 512 * (i + k), split);
                }
                put4(sums, to, taken);
            }
        }
        r4_sync_cluster(); /* no block goes before its sums are read */
    }
};

/* Columns split * split_ncols and as many on, as far as there are. shared: 1,024-byte aligned,
 * barriers and then slots_at bytes on the slots. */
template <int PER_LANE, int NX, int NSPLITS, class Items>
static __device__ __forceinline__ void
r4_gemm(const Items &items, const r4_part &part, const unsigned short *x, unsigned ncols,
        unsigned split_ncols, unsigned shared, unsigned slots_at) {
    const unsigned warp = r4_warp(), lane = threadIdx.x % 32;
    const unsigned split = NSPLITS > 1 ? r4_cluster_rank() : 0;
    const unsigned column0 = min(split * split_ncols, ncols);
    const r4_gemm_slots<NX> slots = {r4_hide(shared), r4_hide(shared + slots_at),
                                     column0 / R4_UNIT_NCOLS,
                                     min(column0 + split_ncols, ncols) / R4_UNIT_NCOLS};
    constexpr unsigned decoders = R4_NMULTIPLIERS, copiers = decoders + slots.ndecoders;
    const r4_gemm_multiplier<NX> multiplier = {slots, warp, lane};

    slots.init();
    if (warp < decoders) {
        float c[NX / 2];
        r4_slot at = {0, 0};
        auto item = items.first();
#pragma unroll 1
        for (; items.has(item); items.advance(item)) {
            multiplier.multiply(c, at);
            auto to = multiplier.target_of(item, part);
            if constexpr (NSPLITS > 1) /* one item a cluster */
                multiplier.template put_splits<NSPLITS>(c, to, part.taken);
            else
                multiplier.put(c, to, part.taken);
        }
        return;
    }
    if (warp < copiers)
        r4_gemm_decoder<PER_LANE, NX, Items>{slots, items, part, ncols, warp - decoders, lane}
            .run();
    else
        r4_gemm_copier<NX, Items>{slots, items, x, ncols, threadIdx.x - 32 * copiers}.run();
    for (int i = 0; NSPLITS > 1 && i < 2; i++) {
        __syncwarp();
        r4_sync_cluster();
    }
}

#endif
