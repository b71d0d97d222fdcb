/* r4_kernels.h - the R4 kernels that the running CPU can use; r4/r4_layout.h says what each does.
 */
#ifndef BINADE_CPU_R4_KERNELS_H
#define BINADE_CPU_R4_KERNELS_H

#include "r4/r4_layout.h"

/* The set beside cpu_kernels(), never NULL. */
const struct r4_kernels *r4_kernels(void);
/* The set beside cpu_kernels_at(i). For tests. */
const struct r4_kernels *r4_kernels_at(size_t i);

r4_decode_kernel r4_decode_avx512, r4_decode_avx2, r4_decode_neon;
r4_matvec_kernel r4_matvec_avx512, r4_matvec_avx2, r4_matvec_neon;
r4_gemm_kernel r4_gemm_avx512, r4_gemm_avx2, r4_gemm_neon;
r4_widen_kernel r4_widen_avx512, r4_widen_avx2, r4_widen_neon;
r4_encode_kernel r4_encode_avx512, r4_encode_avx2, r4_encode_neon;

#endif
