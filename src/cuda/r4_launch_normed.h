/* r4_launch_normed.h - the kernels that begin with the RMS norm of x. */
#ifndef BINADE_CUDA_R4_LAUNCH_NORMED_H
#define BINADE_CUDA_R4_LAUNCH_NORMED_H

/* Of one, two and three parts; then the gated one, of two. */
enum { R4_GATED_NORMED = 3, R4_NNORMED };
extern const void *const r4_normed_kernels[R4_NNORMED];

#endif
