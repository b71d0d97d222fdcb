/* r4_gemm_ptx.cuh - what only PTX says of Hopper: barriers in shared memory, wgmma, clusters. */
#ifndef BINADE_CUDA_R4_GEMM_PTX_CUH
#define BINADE_CUDA_R4_GEMM_PTX_CUH

/* ---- Barriers ---------------------------------------------------------------------------------
 * A phase ends when `count` threads have arrived. A thread that waits for the phase of a parity
 * goes on when that phase is over.
 */

static __device__ __forceinline__ void r4_init_barrier(unsigned barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

static __device__ __forceinline__ void r4_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void r4_wait(unsigned barrier, unsigned parity) {
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again; }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* What this thread has written to shared memory is there for wgmma, once it arrives. */
static __device__ __forceinline__ void r4_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Copies ---------------------------------------------------------------------------------- */

template <int AT> static __device__ __forceinline__ void r4_copy16(unsigned to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0 + %2], [%1], 16;" ::"r"(to), "l"(from), "n"(AT)
                 : "memory");
}

template <int AT>
static __device__ __forceinline__ void r4_put_shared8(unsigned to, unsigned a, unsigned b) {
    asm volatile("st.shared.v2.u32 [%0 + %3], {%1, %2};" ::"r"(to), "r"(a), "r"(b), "n"(AT)
                 : "memory");
}

template <int AT> static __device__ __forceinline__ void r4_put_shared4(unsigned to, unsigned a) {
    asm volatile("st.shared.u32 [%0 + %2], %1;" ::"r"(to), "r"(a), "n"(AT) : "memory");
}

static __device__ __forceinline__ void r4_put_shared2(unsigned to, unsigned short a) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(a) : "memory");
}

static __device__ __forceinline__ unsigned short r4_read_shared2(unsigned from) {
    unsigned short a;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(a) : "r"(from) : "memory");
    return a;
}

/* ---- wgmma ----------------------------------------------------------------------------------- */

/* An operand at a shared address: rows of 128 bytes, their 16-byte chunks swizzled within each
 * eight. Columns ascend by 16 with 32 bytes. */
static __device__ __forceinline__ unsigned long long r4_describe(unsigned address) {
    const unsigned long long swizzle_128 = 1ull << 62, eight_rows = 1024 >> 4;
    return (address & 0x3ffff) >> 4 | 1ull << 16 | eight_rows << 32 | swizzle_128;
}

static __device__ __forceinline__ void r4_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void r4_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N groups are under way. */
template <int N> static __device__ __forceinline__ void r4_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define R4_C4(I) "+f"(c[I]), "+f"(c[I + 1]), "+f"(c[I + 2]), "+f"(c[I + 3])
#define R4_C16(I) R4_C4(I), R4_C4(I + 4), R4_C4(I + 8), R4_C4(I + 12)

/* c += a b^T: a 64 rows of W, b NX rows of x, 16 columns of each. */
template <int NX>
static __device__ __forceinline__ void r4_wgmma(float *c, unsigned long long a,
                                                unsigned long long b) {
    if constexpr (NX == 16)
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                     : R4_C4(0), R4_C4(4)
                     : "l"(a), "l"(b));
    if constexpr (NX == 64)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                     "%31}, %32, %33, 1, 1, 1, 0, 0;"
                     : R4_C16(0), R4_C16(16)
                     : "l"(a), "l"(b));
    if constexpr (NX == 128)
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                     "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
                     "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                     "%61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
                     : R4_C16(0), R4_C16(16), R4_C16(32), R4_C16(48)
                     : "l"(a), "l"(b));
}

#undef R4_C16
#undef R4_C4

/* ---- Clusters -------------------------------------------------------------------------------- */

static __device__ __forceinline__ unsigned r4_cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of all blocks of the cluster. */
static __device__ __forceinline__ void r4_sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* A float at a shared address of a block of the cluster. */
static __device__ __forceinline__ float r4_read_block(unsigned address, unsigned rank) {
    float value;
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %1, %2;\n"
                 "ld.shared::cluster.f32 %0, [there]; }"
                 : "=f"(value)
                 : "r"(address), "r"(rank)
                 : "memory");
    return value;
}

#endif
