/* r4_gated_normed.cu - binade_r4_matvec_gated_normed: a gated unit of the RMS norm of x. */
#define R4_NORMED 1
#include "cuda/r4_matvec_fused.cu"
#undef R4_NORMED
