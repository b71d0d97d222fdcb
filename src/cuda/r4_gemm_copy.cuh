/* r4_gemm_copy.cuh - the warps of r4_gemm.cuh that bring x into shared memory: a thread the same 16
 * bytes of every fourth or eighth row. */
#ifndef BINADE_CUDA_R4_GEMM_COPY_CUH
#define BINADE_CUDA_R4_GEMM_COPY_CUH

#include "cuda/r4_gemm_slots.cuh"

template <int NX, class Items> struct r4_gemm_copier {
    using Slots = r4_gemm_slots<NX>;
    static constexpr int nunits = Slots::nunits;
    static constexpr int nrows_at_once = 32 * R4_NCOPIERS / (8 * nunits);
    /* Slots that are under way: multipliers free one a slot late. */
    static constexpr int ahead = Slots::nslots - 2;

    const Slots &slots;
    const Items &items;
    const unsigned short *x; /* [..][ncols] */
    unsigned ncols, thread;  /* of the copiers' threads */

    /* Row R and those behind of a thread's, of nleft that there are. Rows that are not there are
     * sums of their own, which nobody reads. */
    template <int R>
    __device__ static void copy_rows(unsigned to, const unsigned short *from, size_t step,
                                     unsigned nleft) {
        constexpr unsigned swizzle = nrows_at_once * R % 8 << 4;
        if (R < nleft) r4_copy16<nrows_at_once * R * R4_UNIT_ROW_NBYTES>(to ^ swizzle, from);
        if constexpr (R + 1 < NX / nrows_at_once) copy_rows<R + 1>(to, from + step, step, nleft);
    }

    __device__ void run() const {
        const unsigned chunk = thread % 8, unit = thread / 8 % nunits, row = thread / (8 * nunits);
        const unsigned to =
            unit * Slots::x_nbytes + row * R4_UNIT_ROW_NBYTES + ((chunk ^ row) << 4);
        const size_t step = nrows_at_once * (size_t)ncols;
        r4_slot at = {0, 0}, done = {0, 0};
        unsigned started = 0;

#pragma unroll 1
        for (auto item = items.first(); items.has(item); items.advance(item)) {
            const unsigned m = item.m0 + row;
            const unsigned nleft = m < item.m1 ? r4_divide_up(item.m1 - m, nrows_at_once) : 0;
            const unsigned short *from = x + m * (size_t)ncols + slots.piece0() * Slots::ncols +
                                         unit * R4_UNIT_NCOLS + 8 * chunk;
#pragma unroll 1
            for (unsigned piece = slots.piece0(); piece < slots.piece1(); piece++) {
                slots.wait_empty(at);
                if (slots.has_unit(nunits * piece + unit))
                    copy_rows<0>(slots.x_at(at) + to, from, step, nleft);
                r4_commit_copies();
                from += Slots::ncols;
                slots.advance(at);
                if (++started <= ahead) continue;
                r4_wait_copies<ahead>();
                slots.fill(done, thread % 32);
                slots.advance(done);
            }
        }
        r4_wait_copies<0>();
        for (unsigned n = min(started, (unsigned)ahead); n > 0; n--) {
            slots.fill(done, thread % 32);
            slots.advance(done);
        }
    }
};

#endif
