/* r4_launch_mma_each.cuh - all kernels of r4_gemm_mma.cu for R4_PER_LANE, for
 * r4_launch_gemm_all.cuh. */
#define R4_NPARTS 1
#define R4_ORDER 0
#include "cuda/r4_gemm_mma.cu"
#undef R4_ORDER
#define R4_ORDER 1
#include "cuda/r4_gemm_mma.cu"
#undef R4_ORDER
#define R4_ORDER 2
#include "cuda/r4_gemm_mma.cu"
#undef R4_ORDER
#define R4_ORDER 3
#include "cuda/r4_gemm_mma.cu"
#undef R4_ORDER
#undef R4_NPARTS
#define R4_NPARTS 2
#define R4_ORDER 0
#include "cuda/r4_gemm_mma.cu"
#undef R4_ORDER
#undef R4_NPARTS
