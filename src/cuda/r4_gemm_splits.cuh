/* r4_gemm_splits.cuh - sums of splits of K, each of a block of the cluster. */
#ifndef BINADE_CUDA_R4_GEMM_SPLITS_CUH
#define BINADE_CUDA_R4_GEMM_SPLITS_CUH

#include "cuda/r4_gemm_ptx.cuh"

/* Four sums of each of NSPLITS splits of K, a block of the cluster each, added in order. at: of the
 * first, each sum_step bytes on. */
template <int NSPLITS>
static __device__ __forceinline__ void r4_add_splits(float sums[4], unsigned at,
                                                     unsigned sum_step) {
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
        sums[k] = r4_read_block(at + sum_step * k, 0);
#pragma unroll
        for (unsigned split = 1; split < NSPLITS; split++)
            sums[k] += r4_read_block(at + sum_step * k, split);
    }
}

/* What warps that have no sums do while others add those of NSPLITS splits. */
template <int NSPLITS> static __device__ __forceinline__ void r4_join_cluster() {
    for (int i = 0; NSPLITS > 1 && i < 2; i++) {
        __syncwarp();
        r4_sync_cluster();
    }
}

#endif
