/* launch_kernel.cuh - launches of a test's own kernels, in C++ that a host's compiler takes too. */
#ifndef BINADE_LAUNCH_KERNEL_CUH
#define BINADE_LAUNCH_KERNEL_CUH

#include "cuda/r4_launch.cuh"

template <class T> struct r4_argument { typedef T type; };

template <class... P>
static inline cudaError_t launch_entry(void (*)(P...), const void *entry, dim3 grid, dim3 block,
                                       size_t shared_nbytes, cudaStream_t stream,
                                       typename r4_argument<P>::type... arguments) {
    void *pointers[] = {(void *)&arguments...};
    return cudaLaunchKernel(entry, grid, block, pointers, shared_nbytes, stream);
}

/* KERNEL<<<grid, block, 0, stream>>>(arguments...) */
template <auto KERNEL, class... A>
static inline void launch_kernel(dim3 grid, dim3 block, cudaStream_t stream, A... arguments) {
    launch_entry(KERNEL, R4_ENTRY(KERNEL), grid, block, 0, stream, arguments...);
}

#endif
