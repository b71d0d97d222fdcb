/* r4_ptx.cuh - what only PTX says: shared memory by 32-bit address, copies to it that run ahead,
 * reads past L1, rounding. */
#ifndef BINADE_CUDA_R4_PTX_CUH
#define BINADE_CUDA_R4_PTX_CUH

/* Weights are read once: they need not stay in L1, where x is. */
static __device__ __forceinline__ uint4 r4_read16(const void *from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

static __device__ __forceinline__ uint2 r4_read8(const void *from) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(from));
    return v;
}

/* NaN becomes 0x7fff. */
static __device__ __forceinline__ unsigned short r4_round_bf16(float value) {
    unsigned short rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
}

/* a * b + c of BF16, rounded once. */
static __device__ __forceinline__ unsigned short r4_fma_bf16(unsigned short a, unsigned short b,
                                                             unsigned short c) {
    unsigned short sum;
    asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(sum) : "h"(a), "h"(b), "h"(c));
    return sum;
}

/* ---- Shared memory, by 32-bit address ---------------------------------------------------------
 * The compiler would work addresses out anew from the thread's number at each use.
 */

static __device__ __forceinline__ unsigned r4_hide(unsigned value) {
    asm volatile("" : "+r"(value));
    return value;
}

template <class T> static __device__ __forceinline__ T *r4_hide(T *value) {
    asm volatile("" : "+l"(value));
    return value;
}

/* This warp's number in its block, the same in all lanes for the compiler to see. */
static __device__ __forceinline__ unsigned r4_warp() {
    return __shfl_sync(~0u, threadIdx.x / 32, 0);
}

template <int AT> static __device__ __forceinline__ uint4 r4_shared16(unsigned address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address), "n"(AT));
    return v;
}

template <int AT> static __device__ __forceinline__ uint2 r4_shared8(unsigned address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2 + %3];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(address), "n"(AT));
    return v;
}

/* Four BF16 as float32 if `four`, the lowest one if `one`. */
static __device__ __forceinline__ void r4_put_x(unsigned to, uint2 v, bool four, bool one) {
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %0, 0; setp.ne.u32 q, %1, 0;\n"
                 "@p st.shared.v4.u32 [%2], {%3, %4, %5, %6}; @q st.shared.u32 [%2], %3; }" ::"r"(
                     (unsigned)four),
                 "r"((unsigned)one), "r"(to), "r"(v.x << 16), "r"(v.x & 0xffff0000u),
                 "r"(v.y << 16), "r"(v.y & 0xffff0000u)
                 : "memory");
}

template <int AT> static __device__ __forceinline__ unsigned r4_shared4(unsigned address) {
    unsigned v;
    asm volatile("ld.shared.u32 %0, [%1 + %2];" : "=r"(v) : "r"(address), "n"(AT));
    return v;
}

template <int AT> static __device__ __forceinline__ unsigned r4_shared2(unsigned address) {
    unsigned short v;
    asm volatile("ld.shared.u16 %0, [%1 + %2];" : "=h"(v) : "r"(address), "n"(AT));
    return v;
}

template <int AT>
static __device__ __forceinline__ void r4_put_shared_floats(unsigned address, const float v[4]) {
    asm volatile("st.shared.v4.f32 [%0 + %5], {%1, %2, %3, %4};" ::"r"(address), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3]), "n"(AT)
                 : "memory");
}

/* Copies 16 bytes. */
template <int TO, int FROM>
static __device__ __forceinline__ void r4_copy(unsigned to, const unsigned char *from) {
    asm volatile("cp.async.cg.shared.global [%0 + %2], [%1 + %3], 16;" ::"r"(to), "l"(from),
                 "n"(TO), "n"(FROM)
                 : "memory");
}

/* Copies 16 bytes if i < n. */
template <int AT>
static __device__ __forceinline__ void r4_copy_if(int i, int n, unsigned to, const uint4 *from) {
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %0, %1;\n"
                 "@p cp.async.cg.shared.global [%2 + %4], [%3 + %4], 16; }" ::"r"(i),
                 "r"(n), "r"(to), "l"(from), "n"(AT)
                 : "memory");
}

template <int N> static __device__ __forceinline__ void r4_wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

static __device__ __forceinline__ void r4_commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

#endif
