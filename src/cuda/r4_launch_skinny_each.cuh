/* r4_launch_skinny_each.cuh - all kernels of r4_skinny.cu for R4_NX and R4_PER_LANE, for
 * r4_launch_gemm.cu. */
#define R4_NSPLITS 1
#include "cuda/r4_skinny.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 2
#include "cuda/r4_skinny.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 3
#include "cuda/r4_skinny.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 4
#include "cuda/r4_skinny.cu"
#undef R4_NSPLITS
#define R4_NSPLITS 5
#include "cuda/r4_skinny.cu"
#undef R4_NSPLITS
