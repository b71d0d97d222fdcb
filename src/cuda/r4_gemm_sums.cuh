/* r4_gemm_sums.cuh - what warps of r4_gemm.cuh that multiply have in common: the sums of a thread,
 * and where they go. A warp has 16 rows of x. A thread has four sums for each eight rows of a tile:
 * two neighbours with rows r and r + 8 of x, r = lane / 4, as tensor cores give them. */
#ifndef BINADE_CUDA_R4_GEMM_SUMS_CUH
#define BINADE_CUDA_R4_GEMM_SUMS_CUH

#include "cuda/r4_gemm_slots.cuh"
#include "cuda/r4_gemm_splits.cuh"

template <int NX, int NSUMS, class Items> struct r4_gemm_sums {
    static constexpr unsigned nsums_most = NSUMS;

    const r4_gemm_slots<NX> &slots;
    const Items &items;
    unsigned warp, lane;

    /* Where this thread's sums go in y [..][taken]: rows m and m + 8 of x. */
    struct target {
        unsigned short *y;
        size_t next; /* eight rows of x on */
        bool has0, has1;
    };

    __device__ target target_of(const typename Items::Cursor &item) const {
        const unsigned m = item.m0 + 16 * warp + lane / 4;
        const unsigned taken = items.of(item.part, &r4_part::taken);
        unsigned short *y = items.of(item.part, &r4_part::y);
        return {y + m * (size_t)taken + item.y_row + 2 * (lane % 4), 8 * (size_t)taken, m < item.m1,
                m + 8 < item.m1};
    }

    __device__ static void put2(unsigned short *y, float a, float b) {
        *(unsigned *)y = r4_round_bf16(a) | (unsigned)r4_round_bf16(b) << 16;
    }
    /* Sums of eight rows of a tile, the i-th such. */
    __device__ static void put4(const float c[4], const target &to, unsigned i) {
        if (to.has0) put2(to.y + 8 * i, c[0], c[1]);
        if (to.has1) put2(to.y + 8 * i + to.next, c[2], c[3]);
    }

    template <unsigned I = 0>
    __device__ void put(const float c[nsums_most], const target &to) const {
        if (8 * I >= slots.height) return;
        put4(c + 4 * I, to, I);
        if constexpr (4 * I + 4 < nsums_most) put<I + 1>(c, to);
    }
};

#endif
