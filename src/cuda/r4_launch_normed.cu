/* Apart from r4_launch.cu, as r4_parts.cuh names the arguments for one kind of kernel in a file. */
#include "cuda/r4_launch_normed.h"

#include "cuda/r4_launch.cuh"

#define R4_NPARTS 1
#include "cuda/r4_matvec_normed.cu"
#undef R4_NPARTS
#define R4_NPARTS 2
#include "cuda/r4_gated_normed.cu"
#include "cuda/r4_matvec_normed.cu"
#undef R4_NPARTS
#define R4_NPARTS 3
#include "cuda/r4_matvec_normed.cu"
#undef R4_NPARTS

const void *const r4_normed_kernels[R4_NNORMED] = {
    R4_ENTRY(binade_r4_matvec_normed_1), R4_ENTRY(binade_r4_matvec_normed_2),
    R4_ENTRY(binade_r4_matvec_normed_3), R4_ENTRY(binade_r4_matvec_gated_normed)};
