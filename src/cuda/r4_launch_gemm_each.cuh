/* r4_launch_gemm_each.cuh - all kernels of r4_gemm.cu for R4_NX and R4_PER_LANE, for
 * r4_launch_gemm_all.cuh. */
#define R4_NPARTS 1
#define R4_NSPLITS 0
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#define R4_FILE "cuda/r4_gemm.cu"
#include "cuda/r4_launch_splits_each.cuh"
#undef R4_FILE
#undef R4_NPARTS
#define R4_NPARTS 2
#define R4_NSPLITS 0
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#undef R4_NPARTS
