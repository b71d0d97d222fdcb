/* runtime.cpp - CUDA's runtime: memory, and launches. */
#include "state.h"

#include <algorithm>
#include <cstdlib>

namespace emulator {

/* Few multiprocessors, so that blocks of small weights take more than one row. */
enum { NPROCESSORS = 3, SHARED_NBYTES = 48 << 10, SHARED_MOST = 227 << 10 };

static std::map<const void *, size_t> allowed_shared; /* by kernel */

static const kernel *kernel_of(const void *entry) {
    const kernel *k = (const kernel *)entry;
    return k && k->magic == KERNEL_MAGIC ? k : nullptr;
}

} // namespace emulator

using namespace emulator;

const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidDeviceFunction:
        return "invalid device function";
    default:
        return "unknown error";
    }
}

cudaError_t cudaMalloc(void **memory, size_t nbytes) {
    return posix_memalign(memory, 256, nbytes) ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int byte, size_t nbytes) {
    memset(to, byte, nbytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, cudaMemcpyKind) {
    if (nbytes > 0) memcpy(to, from, nbytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    *properties = {"emulated", 9, 0, NPROCESSORS};
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMultiProcessorCount ? (int)NPROCESSORS : (int)SHARED_MOST;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *entry, cudaFuncAttribute, int value) {
    if (!kernel_of(entry)) return cudaErrorInvalidDeviceFunction;
    if (value < 0 || value > SHARED_MOST) return cudaErrorInvalidValue;
    allowed_shared[entry] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *entry, dim3 grid, dim3 block, void **arguments,
                             size_t shared_nbytes, cudaStream_t) {
    const kernel *k = kernel_of(entry);
    const size_t allowed =
        allowed_shared.count(entry) ? allowed_shared[entry] : (size_t)SHARED_NBYTES;
    const unsigned nthreads = block.x * block.y * block.z;
    if (!k) return cudaErrorInvalidDeviceFunction;
    if (nthreads == 0 || nthreads > 1024 || shared_nbytes > allowed || grid.x % k->ncluster ||
        grid.x == 0 || grid.y == 0 || grid.y > 65535 || grid.z != 1)
        return cudaErrorInvalidValue;

    std::vector<unsigned> clusters((size_t)grid.x / k->ncluster * grid.y);
    now.of = k;
    now.arguments = arguments;
    now.shared_nbytes = shared_nbytes;
    blockDim = block;
    gridDim = grid;
    put_in_order(clusters);
    for (unsigned c : clusters) {
        unsigned x = c % (grid.x / k->ncluster) * k->ncluster;
        run_cluster({x, c / (grid.x / k->ncluster), 0}, nthreads);
    }
    now.of = nullptr;
    return cudaSuccess;
}
