/* r4_matvec_normed.cu - binade_r4_matvec_normed_1, _2 or _3: products with the RMS norm of x. */
#define R4_NORMED 1
#include "cuda/r4_matvec.cu"
#undef R4_NORMED
