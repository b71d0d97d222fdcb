/* r4_launch_gemm_each.cuh - all kernels of r4_gemm.cu for R4_NX, for r4_launch_gemm.cu. It includes
 * itself once for each R4_PER_LANE. */
#ifndef R4_PER_LANE
#define R4_PER_LANE 4
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_PER_LANE
#define R4_PER_LANE 2
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_PER_LANE
#else
#define R4_NSPLITS 0
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 1
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 2
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 3
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 4
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 5
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#endif
