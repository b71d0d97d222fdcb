/* r4_gemm.cuh - several rows of x times a weight on tensor cores, in the order of cublasLt's
 * kernels and, for sorted experts, of CUTLASS's: steps of 16 columns, ascending, into a float32
 * accumulator from +0; where K is split, one for each split, and their sums added in order. Within
 * a step the order of columns changes no bit (r4_mma_plain.h).
 *
 * A block works on one item (r4_gemm_items.cuh) at a time with three kinds of warps, which meet in
 * slots (r4_gemm_slots.cuh). Some copy x there (r4_gemm_copy.cuh), decoders put BF16 weights there
 * (r4_gemm_decode.cuh), and four warps for each 64 rows of x multiply, by wgmma on Hopper
 * (r4_gemm_wgmma.cuh), else by mma.sync (r4_gemm_mma.cuh). Few rows of x have kernels of their own
 * there (r4_skinny.cuh).
 */
#ifndef BINADE_CUDA_R4_GEMM_CUH
#define BINADE_CUDA_R4_GEMM_CUH

#include "cuda/r4_gemm_copy.cuh"
#include "cuda/r4_gemm_decode.cuh"
#include "cuda/r4_gemm_sums.cuh"

/* Registers of a thread: an equal share at first, of which those that decode take what the others
 * give. */
template <int NX> struct r4_gemm_registers {
    static constexpr int nwarps = R4_GEMM_NWARPS(NX), share = 65536 / (32 * nwarps) / 8 * 8;
    static constexpr int copier = 32, multiplier = NX == 64 ? 104 : 88,
                         decoder = NX == 64 ? 184 : 136;
    static_assert(copier <= share && multiplier <= share &&
                      R4_NCOPIERS * copier + NX / 16 * multiplier + R4_NDECODERS * decoder <=
                          nwarps * share,
                  "nobody would give them");
};

/* Columns from column0 to column1. shared: 1,024-byte aligned, barriers and then, slots_at bytes
 * on, slots. multiply(slots, warp, lane) and join() are what warps do that multiply, and all others
 * in the end. */
template <int PER_LANE, int NX, int HEIGHT, class Items, class Multiply, class Join>
static __device__ __forceinline__ void
r4_gemm(const Items &items, const unsigned short *x, unsigned ncols, unsigned column0,
        unsigned column1, unsigned shared, unsigned slots_at, const r4_gemm_shape &shape,
        Multiply multiply, Join join) {
    using registers = r4_gemm_registers<NX>;
    constexpr unsigned nmultipliers = NX / 16;
    const unsigned lane = threadIdx.x % 32;
    const r4_gemm_slots<NX> slots(r4_hide(shared + slots_at), r4_hide(shared), shape,
                                  column0 / R4_UNIT_NCOLS, column1 / R4_UNIT_NCOLS);
    unsigned warp = r4_warp();

    if (threadIdx.x == 0) slots.init();
    __syncthreads();
    if (warp < nmultipliers) {
        r4_give_registers<registers::multiplier>();
        multiply(slots, warp, lane);
        return;
    }
    warp -= nmultipliers;
    if (warp < R4_NDECODERS) {
        r4_take_registers<registers::decoder>();
        const unsigned nrows = slots.height / R4_NDECODERS;
        const unsigned nheld = nrows > 16 ? 1 : nrows > 8 ? 2 : nrows > 4 ? 4 : nrows > 2 ? 8 : 16;
        r4_gemm_decoder<PER_LANE, NX, HEIGHT, Items>{slots, items, ncols, nrows,
                                                     warp,  lane,  nheld, lane / nheld}
            .run();
    } else {
        r4_give_registers<registers::copier>();
        r4_gemm_copier<NX, Items>{slots, items, x, ncols, warp - R4_NDECODERS, lane}.run();
    }
    join();
}

#endif
