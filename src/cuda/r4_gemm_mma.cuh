/* r4_gemm_mma.cuh - the warps of r4_gemm.cuh that multiply where there is no wgmma: a warp 16 rows
 * of x by mma.sync. A block multiplies the splits of K one after another. */
#ifndef BINADE_CUDA_R4_GEMM_MMA_CUH
#define BINADE_CUDA_R4_GEMM_MMA_CUH

#include "cuda/r4_gemm.cuh"
#include "cuda/r4_sum.cuh"

/* How sums are added besides: as gemm_order and gemm_reduction of gemm_table.h. */
enum { R4_MMA_IN_ORDER, R4_MMA_SPLITS, R4_MMA_TWO_SLICES };
enum { R4_MMA_REDUCTION_IN_PLACE = 1, R4_MMA_REDUCTION_FP32 = 2, R4_MMA_REDUCTION_BF16 = 4 };

/* The greatest height: R4_MMA_IN_ORDER needs one accumulator, the others two. */
#define R4_MMA_HEIGHT(ORDER) R4_MMA_HEIGHT_MOST((ORDER) == R4_MMA_IN_ORDER ? 1 : 2)

template <int ORDER, class Items>
struct r4_gemm_mma : r4_gemm_sums<R4_X_NROWS, R4_MMA_HEIGHT(ORDER) / 2, Items> {
    using Sums = r4_gemm_sums<R4_X_NROWS, R4_MMA_HEIGHT(ORDER) / 2, Items>;
    using Sums::items, Sums::lane, Sums::nsums_most, Sums::slots, Sums::warp;
    static constexpr bool has_two = ORDER != R4_MMA_IN_ORDER;

    unsigned split_nunits, reduction; /* of R4_MMA_SPLITS */

    __device__ r4_gemm_mma(const Sums &sums, unsigned split_nunits = 0, unsigned reduction = 0)
        : Sums(sums), split_nunits(split_nunits), reduction(reduction) {}

    /* Shared addresses for r4_load_matrix4 of this lane's rows: of x, and of 16 rows of W. `step`:
     * of a unit. */
    __device__ unsigned x_at(unsigned unit, unsigned step) const {
        const unsigned row = 16 * warp + lane % 16;
        return unit + row * R4_UNIT_ROW_NBYTES + ((2 * step + lane / 16 ^ row % 8) << 4);
    }
    __device__ unsigned w_at(unsigned unit, unsigned step) const {
        const unsigned row = lane / 16 * 8 + lane % 8;
        return unit + row * R4_UNIT_ROW_NBYTES + ((2 * step + lane / 8 % 2 ^ row % 8) << 4);
    }

    /* A step with 16 rows of W, the I-th such, and those behind. */
    template <unsigned I>
    __device__ void add_rows(float c[nsums_most], const unsigned a[4], unsigned w) const {
        unsigned b[4];
        r4_load_matrix4(b, w + 16 * I * R4_UNIT_ROW_NBYTES);
        r4_mma(c + 8 * I, a, b);
        r4_mma(c + 8 * I + 4, a, b + 2);
        if constexpr (8 * (I + 1) < nsums_most)
            if (16 * (I + 1) < slots.height) add_rows<I + 1>(c, a, w);
    }

    __device__ void add_steps(float c[nsums_most], unsigned x, unsigned w, unsigned step0,
                              unsigned step1) const {
#pragma unroll 1
        for (unsigned step = step0; step < step1; step++) {
            unsigned a[4];
            r4_load_matrix4(a, x_at(x, step));
            add_rows<0>(c, a, w_at(w, step));
        }
    }

    /* The sums of a split that is over to those of the ones before. */
    __device__ void add_split(float total[nsums_most], float c[nsums_most]) const {
#pragma unroll
        for (unsigned i = 0; i < nsums_most; i++) {
            float sum = c[i];
            if (reduction == R4_MMA_REDUCTION_BF16) sum = r4_widen(r4_round_bf16(sum));
            total[i] += sum;
            if (reduction == R4_MMA_REDUCTION_IN_PLACE)
                total[i] = r4_widen(r4_round_bf16(total[i]));
            c[i] = 0;
        }
    }

    /* The sums of an item. c1: of the second accumulator. */
    __device__ void multiply(float c[nsums_most], float c1[has_two ? nsums_most : 1],
                             r4_slot &at) const {
        unsigned left = split_nunits; /* units of this split */
#pragma unroll
        for (unsigned i = 0; i < nsums_most; i++)
            c[i] = 0;
#pragma unroll
        for (unsigned i = 0; has_two && i < nsums_most; i++)
            c1[i] = 0;
#pragma unroll 1
        for (unsigned piece = 0; piece < slots.piece1(); piece++) {
            at.wait_full();
#pragma unroll 1
            for (unsigned u = 0; u < R4_PIECE_NUNITS && slots.has_unit(2 * piece + u); u++) {
                const unsigned x = slots.x_of(at, u), w = slots.w_of(at, u);
                if constexpr (ORDER == R4_MMA_TWO_SLICES) {
                    add_steps(c, x, w, 0, 2);
                    add_steps(c1, x, w, 2, 4);
                } else {
                    add_steps(c, x, w, 0, 4);
                }
                if constexpr (ORDER == R4_MMA_SPLITS) {
                    if (--left > 0) continue;
                    add_split(c1, c);
                    left = split_nunits;
                }
            }
            __syncwarp();
            at.release(lane);
            slots.advance(at);
        }
        if constexpr (ORDER == R4_MMA_SPLITS)
            if (left < split_nunits) add_split(c1, c);
#pragma unroll
        for (unsigned i = 0; has_two && i < nsums_most; i++)
            c[i] = ORDER == R4_MMA_SPLITS ? c1[i] : c[i] + c1[i];
    }

    __device__ void run() const {
        float c[nsums_most], c1[has_two ? nsums_most : 1];
        r4_slot at = slots.first();
#pragma unroll 1
        for (auto item = items.first(); items.has(item); items.advance(item)) {
            multiply(c, c1, at);
            this->put(c, this->target_of(item));
        }
    }
};

#endif
