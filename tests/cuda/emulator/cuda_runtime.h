/* cuda_runtime.h - as much of CUDA's C++ and of its runtime as src/cuda and tests/cuda use, for a
 * host's compiler: clang++ -femulated-tls. emulator.h says what is emulated.
 */
#ifndef BINADE_EMULATED_CUDA_RUNTIME_H
#define BINADE_EMULATED_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

/* ---- Words ---------------------------------------------------------------------------------- */

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __align__(N) __attribute__((aligned(N)))
#define __launch_bounds__(...)
#define __cluster_dims__(...) /* R4_CLUSTER_ENTRY tells */
#define __CUDA_ARCH_FEAT_SM90_ALL 1
/* Storage "of a thread" is found by a call, for which emulator.cpp gives that of the block. */
#define __shared__ thread_local

struct alignas(8) uint2 {
    unsigned x, y;
};
struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

static inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* ---- Functions of a thread ------------------------------------------------------------------ */

namespace emulator {

/* Where lanes of a warp meet; a shuffle's `source` is the lane of which `value` is wanted. */
enum meeting { SYNC, SHUFFLE, BALLOT };
uint64_t meet(meeting kind, unsigned mask, uint64_t value = 0, unsigned source = 0);
unsigned lane_of_thread();
void sync_block();
size_t address_of_shared(const void *pointer);
void *shared_of_address(size_t address);

template <class To, class From> To cast_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

template <class T> T shuffle(unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = meet(SHUFFLE, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float rsqrt(float x) {
    return (float)(1 / std::sqrt((double)x));
}

} // namespace emulator

template <class T> static inline T __shfl_sync(unsigned mask, T value, unsigned lane) {
    return emulator::shuffle(mask, value, lane % 32);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, unsigned lanes) {
    return emulator::shuffle(mask, value, emulator::lane_of_thread() ^ lanes);
}
static inline unsigned __ballot_sync(unsigned mask, int is_true) {
    return (unsigned)emulator::meet(emulator::BALLOT, mask, is_true != 0);
}
static inline int __any_sync(unsigned mask, int is_true) {
    return __ballot_sync(mask, is_true) != 0;
}
static inline void __syncwarp(unsigned mask = ~0u) {
    emulator::meet(emulator::SYNC, mask);
}
static inline void __syncthreads() {
    emulator::sync_block();
}

static inline size_t __cvta_generic_to_shared(const void *pointer) {
    return emulator::address_of_shared(pointer);
}
static inline void *__cvta_shared_to_generic(size_t address) {
    return emulator::shared_of_address(address);
}

static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned bytes = 0;
    for (int i = 0; i < 4; i++) {
        unsigned at = selector >> 4 * i & 15, byte = (at & 4 ? b : a) >> 8 * (at & 3) & 0xff;
        if (at & 8) byte = byte & 0x80 ? 0xff : 0;
        bytes |= byte << 8 * i;
    }
    return bytes;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline int __ffs(int value) {
    return __builtin_ffs(value);
}
static inline int __popc(unsigned value) {
    return __builtin_popcount(value);
}
static inline float __uint_as_float(unsigned bits) {
    return emulator::cast_bits<float>(bits);
}
static inline unsigned __float_as_uint(float value) {
    return emulator::cast_bits<unsigned>(value);
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
#define rsqrtf emulator::rsqrt /* some libraries of C have one too */

/* Threads change places only where they wait. */
static inline unsigned atomicAdd(unsigned *at, unsigned value) {
    unsigned before = *at;
    *at += value;
    return before;
}
template <class T> static inline void __stcs(T *to, T value) {
    *to = value;
}

static inline int min(int a, int b) {
    return a < b ? a : b;
}
static inline unsigned min(unsigned a, unsigned b) {
    return a < b ? a : b;
}
static inline int max(int a, int b) {
    return a > b ? a : b;
}
static inline unsigned max(unsigned a, unsigned b) {
    return a > b ? a : b;
}

/* ---- Launches ---------------------------------------------------------------------------------
 * What stands for a kernel in tables and launches: a call with the kernel's own types.
 */

namespace emulator {

enum { KERNEL_MAGIC = 0x6b65726e };

struct kernel {
    unsigned magic, ncluster; /* blocks of a cluster */
    const char *name;
    void (*run)(void **arguments);
};

template <class T> T take(const void *from) {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}
template <class... P, size_t... I>
void call(void (*function)(P...), void **arguments, std::index_sequence<I...>) {
    function(take<P>(arguments[I])...);
}
template <class... P> constexpr auto indices_of(void (*)(P...)) {
    return std::index_sequence_for<P...>();
}
template <auto KERNEL> void run(void **arguments) {
    call(KERNEL, arguments, indices_of(KERNEL));
}
template <auto KERNEL> constexpr const char *name() {
    return __PRETTY_FUNCTION__;
}
template <auto KERNEL, unsigned NCLUSTER>
inline constexpr kernel entry = {KERNEL_MAGIC, NCLUSTER, name<KERNEL>(), run<KERNEL>};

} // namespace emulator

#define R4_ENTRY(KERNEL) ((const void *)&emulator::entry<KERNEL, 1>)
#define R4_CLUSTER_ENTRY(KERNEL, NBLOCKS) ((const void *)&emulator::entry<KERNEL, NBLOCKS>)

/* ---- Runtime -------------------------------------------------------------------------------- */

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorUnknown = 999
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
typedef struct CUstream_st *cudaStream_t;

struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
};

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaMalloc(void **memory, size_t nbytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemset(void *to, int byte, size_t nbytes);
cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared_nbytes, cudaStream_t stream);

#endif
