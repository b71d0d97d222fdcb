/* r4_parts.cuh - one launch for several weights that share x: their arguments.
 *
 * MLX passes arrays that are read, arrays that are written, then numbers. R4_EACH(MACRO) is
 * MACRO(0) MACRO(1) .. for R4_NPARTS parts.
 */
#ifndef BINADE_CUDA_R4_PARTS_CUH
#define BINADE_CUDA_R4_PARTS_CUH

#include "cuda/r4_gpu_layout.h"

#define R4_JOIN_NAMES(a, b) a##b
#define R4_JOIN(a, b) R4_JOIN_NAMES(a, b)
#define R4_EACH_1(MACRO) MACRO(0)
#define R4_EACH_2(MACRO) MACRO(0) MACRO(1)
#define R4_EACH_3(MACRO) MACRO(0) MACRO(1) MACRO(2)
#define R4_EACH(MACRO) R4_JOIN(R4_EACH_, R4_NPARTS)(MACRO)

#define R4_PART_WEIGHT(I)                                                                          \
    const unsigned char *slices##I, const r4_row *rows##I, const unsigned *escapes##I,
#define R4_PART_OUT(I) unsigned short *y##I,

/* Where x is to be normalized, R4_NORMED 1: what that takes comes last of the arrays that are read
 * and last of the numbers. */
#if R4_NORMED
#define R4_NORM_ARRAY const unsigned short *norm,
#define R4_NORM_NUMBER , float eps
#else
#define R4_NORM_ARRAY
#define R4_NORM_NUMBER
#endif

/* Rows row0 .. row0 + taken of a weight, or of every expert's block_nrows. */
struct r4_part {
    const unsigned char *slices;
    const r4_row *rows;
    const unsigned *escapes;
    unsigned short *y;
    unsigned row0, taken, base, block_nrows;
};

/* A member of parts[part]: selects, as an index would put the array into memory. */
template <int P, class T>
static __device__ __forceinline__ T r4_pick(const r4_part (&parts)[P], unsigned part,
                                            T r4_part::*member) {
    T picked = parts[0].*member;
#pragma unroll
    for (unsigned i = 1; i < P; i++)
        if (part == i) picked = parts[i].*member;
    return picked;
}

#endif
