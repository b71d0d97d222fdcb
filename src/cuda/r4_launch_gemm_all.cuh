/* r4_launch_gemm_all.cuh - all kernels for several rows of x for R4_PER_LANE, for
 * r4_launch_gemm.cu. */
#define R4_FILE "cuda/r4_skinny.cu"
#define R4_NX 8
#include "cuda/r4_launch_splits_each.cuh"
#undef R4_NX
#define R4_NX 16
#include "cuda/r4_launch_splits_each.cuh"
#undef R4_NX
#define R4_NX 32
#include "cuda/r4_launch_splits_each.cuh"
#undef R4_NX
#undef R4_FILE
#define R4_NX 64
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_NX
#define R4_NX 128
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_NX
#include "cuda/r4_launch_mma_each.cuh"
