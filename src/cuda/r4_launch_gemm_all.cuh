/* r4_launch_gemm_all.cuh - all kernels for several rows of x for R4_PER_LANE, for
 * r4_launch_gemm.cu. */
#define R4_NX 8
#include "cuda/r4_launch_skinny_each.cuh"
#undef R4_NX
#define R4_NX 16
#include "cuda/r4_launch_skinny_each.cuh"
#undef R4_NX
#define R4_NX 32
#include "cuda/r4_launch_skinny_each.cuh"
#undef R4_NX
#define R4_NX 64
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_NX
#define R4_NX 128
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_NX
#include "cuda/r4_launch_mma_each.cuh"
