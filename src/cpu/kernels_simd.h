/* kernels_simd.h - the kernels beside the plain ones; cpu/kernels.h says what each does. */
#ifndef BINADE_CPU_KERNELS_SIMD_H
#define BINADE_CPU_KERNELS_SIMD_H

#include "cpu/kernels.h"

count_exponents_kernel count_exponents_avx512, count_exponents_avx2, count_exponents_neon;
rice_encode_kernel rice_encode_avx512, rice_encode_avx2, rice_encode_neon;
rice_decode_kernel rice_decode_avx512, rice_decode_avx2, rice_decode_neon;
fixed_encode_kernel fixed_encode_avx512, fixed_encode_avx2, fixed_encode_neon;
fixed_decode_kernel fixed_decode_avx512, fixed_decode_avx2, fixed_decode_neon;
fixed_count_escapes_kernel fixed_count_escapes_avx512, fixed_count_escapes_avx2,
    fixed_count_escapes_neon;

#endif
