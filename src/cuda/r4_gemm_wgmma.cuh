/* r4_gemm_wgmma.cuh - the warps of r4_gemm.cuh that multiply on Hopper: a warpgroup 64 rows of x,
 * wgmma's first operand, so that tiles of W can have any height. The blocks of a cluster have a
 * split of K each, and share the adding. */
#ifndef BINADE_CUDA_R4_GEMM_WGMMA_CUH
#define BINADE_CUDA_R4_GEMM_WGMMA_CUH

#include "cuda/r4_gemm.cuh"

enum { R4_GROUP_NWARPS = 4 };

template <int NX, int NSPLITS, class Items>
struct r4_gemm_wgmma : r4_gemm_sums<NX, R4_WGMMA_HEIGHT_MOST(NX) / 2, Items> {
    using Sums = r4_gemm_sums<NX, R4_WGMMA_HEIGHT_MOST(NX) / 2, Items>;
    using Sums::items, Sums::lane, Sums::nsums_most, Sums::slots, Sums::warp;
    using typename Sums::target;

    __device__ unsigned group() const { return warp / R4_GROUP_NWARPS; }

    /* The sums of an item. */
    __device__ void multiply(float c[nsums_most], r4_slot &at) const {
        const unsigned rows = group() * R4_X_NROWS * R4_UNIT_ROW_NBYTES;
#pragma unroll
        for (unsigned i = 0; i < nsums_most; i++)
            c[i] = 0;
#pragma unroll 1
        for (unsigned piece = slots.piece0(); piece < slots.piece1(); piece++) {
            /* Units of the piece; only the first and the last piece may be cut. */
            unsigned u = max(slots.unit0, 2 * piece) - 2 * piece;
            const unsigned u1 = min(slots.unit1, 2 * piece + 2) - 2 * piece;
            at.wait_full();
            r4_publish(); /* x, which other threads' copies have written */
#pragma unroll 1
            do
                add_unit(c, r4_describe(slots.x_of(at, u) + rows), r4_describe(slots.w_of(at, u)));
            while (++u < u1);
            r4_wgmma_wait<0>();
            at.release(lane);
            slots.advance(at);
        }
        r4_settle<nsums_most>(c);
    }

    /* The steps of a unit, of tiles of HEIGHT or more. No branch comes between them: the compiler
     * would have each wait for the one before. */
    template <int HEIGHT = R4_HEIGHT_STEP>
    __device__ void add_unit(float c[nsums_most], unsigned long long a,
                             unsigned long long b) const {
        if (slots.height == HEIGHT) {
            r4_wgmma_fence();
#pragma unroll
            for (int step = 0; step < 4; step++)
                r4_wgmma<HEIGHT>(c, a + 2 * step, b + 2 * step);
            r4_wgmma_commit();
        } else if constexpr (HEIGHT < R4_WGMMA_HEIGHT_MOST(NX)) {
            add_unit<HEIGHT + R4_HEIGHT_STEP>(c, a, b);
        }
    }

    /* Splits leave their sums where slots were, which are no smaller; then each block adds some.
     * All other warps of the cluster join in with r4_join_cluster. */
    static constexpr unsigned sum_step = 4 * 32 * R4_GROUP_NWARPS; /* bytes from sum to sum */

    template <unsigned I = 0> __device__ void leave(const float c[nsums_most], unsigned at) const {
        if (2 * I >= slots.height) return;
#pragma unroll
        for (unsigned i = I; i < I + 4; i++)
            r4_put_shared_float(at + sum_step * i, c[i]);
        if constexpr (I + 4 < nsums_most) leave<I + 4>(c, at);
    }

    __device__ void put_splits(const float c[nsums_most],
                               const typename Items::Cursor &item) const {
        const unsigned at = slots.at + group() * slots.height / 2 * sum_step +
                            4 * (threadIdx.x % (32 * R4_GROUP_NWARPS));
        r4_sync_some(1, 2 * NX); /* all have multiplied */
        leave(c, at);
        r4_sync_cluster();
        const target to = this->target_of(item);
#pragma unroll 1
        for (unsigned i = r4_cluster_rank(); 8 * i < slots.height; i += NSPLITS) {
            float sums[4];
            r4_add_splits<NSPLITS>(sums, at + sum_step * 4 * i, sum_step);
            this->put4(sums, to, i);
        }
        r4_sync_cluster(); /* no block goes before its sums are read */
    }

    __device__ void run() const {
        float c[nsums_most];
        r4_slot at = slots.first();
        if constexpr (NSPLITS > 1) { /* one item a cluster */
            multiply(c, at);
            put_splits(c, items.first());
        } else {
#pragma unroll 1
            for (auto item = items.first(); items.has(item); items.advance(item)) {
                multiply(c, at);
                this->put(c, this->target_of(item));
            }
        }
    }
};

/* Of K the columns of this block's split: split_ncols, as far as there are. */
template <int PER_LANE, int NX, int NSPLITS, class Items>
static __device__ __forceinline__ void
r4_gemm_hopper(const Items &items, const unsigned short *x, unsigned ncols, unsigned split_ncols,
               unsigned shared, unsigned slots_at, const r4_gemm_shape &shape) {
    const unsigned column0 = NSPLITS > 1 ? min(r4_cluster_rank() * split_ncols, ncols) : 0;
    r4_gemm<PER_LANE, NX, R4_WGMMA_HEIGHT_MOST(NX)>(
        items, x, ncols, column0, min(column0 + split_ncols, ncols), shared, slots_at, shape,
        [&](const r4_gemm_slots<NX> &slots, unsigned warp, unsigned lane) {
            r4_gemm_wgmma<NX, NSPLITS, Items>{{slots, items, warp, lane}}.run();
        },
        [] { r4_join_cluster<NSPLITS>(); });
}

#endif
