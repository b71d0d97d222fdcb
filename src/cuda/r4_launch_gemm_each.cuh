/* r4_launch_gemm_each.cuh - all kernels of r4_gemm.cu for R4_NX and R4_PER_LANE, for
 * r4_launch_gemm.cu. */
#define R4_NPARTS 1
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
#undef R4_NPARTS
#define R4_NPARTS 2
#define R4_NSPLITS 0
#include "cuda/r4_gemm.cu"
#undef R4_NSPLITS
#undef R4_NPARTS
