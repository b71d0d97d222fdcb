/* r4_gemm_ptx.cuh - what only PTX says of tensor cores, barriers in shared memory and clusters. */
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

#if __CUDA_ARCH__ >= 900
#define R4_TRY_WAIT "try_wait" /* sleeps a while */
#else
#define R4_TRY_WAIT "test_wait"
#endif

static __device__ __forceinline__ void r4_wait(unsigned barrier, unsigned parity) {
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier." R4_TRY_WAIT ".parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again; }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Arrives once all copies that this thread has asked for are done. */
static __device__ __forceinline__ void r4_arrive_after_copies(unsigned barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Threads of whole warps, `count` of them, wait for each other; `number` 1..15 tells which. */
static __device__ __forceinline__ void r4_sync_some(unsigned number, unsigned count) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(count) : "memory");
}

/* What this thread has written to shared memory is there for wgmma, once it arrives; for its own
 * wgmma, so is what it knows to be written. */
static __device__ __forceinline__ void r4_publish() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* ---- Registers --------------------------------------------------------------------------------
 * All warps of a warpgroup give away what they have beyond N, or wait until they have N.
 */

template <int N> static __device__ __forceinline__ void r4_give_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

template <int N> static __device__ __forceinline__ void r4_take_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* ---- Shared memory --------------------------------------------------------------------------- */

template <int AT>
static __device__ __forceinline__ void r4_put_shared8(unsigned to, unsigned a, unsigned b) {
    asm volatile("st.shared.v2.u32 [%0 + %3], {%1, %2};" ::"r"(to), "r"(a), "r"(b), "n"(AT)
                 : "memory");
}

template <int AT> static __device__ __forceinline__ void r4_put_shared4(unsigned to, unsigned a) {
    asm volatile("st.shared.u32 [%0 + %2], %1;" ::"r"(to), "r"(a), "n"(AT) : "memory");
}

static __device__ __forceinline__ void r4_put_shared_float(unsigned to, float a) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(a) : "memory");
}

static __device__ __forceinline__ void r4_put_shared2(unsigned to, unsigned short a) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(a) : "memory");
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

/* Nothing reads these sums before the wait that comes first. */
template <unsigned N> static __device__ __forceinline__ void r4_settle(float *c) {
#pragma unroll
    for (unsigned i = 0; i < N; i++)
        asm volatile("" : "+f"(c[i]));
}

/* Eight sums: their numbers in the text, and what these stand for. */
#define R4_C8(I)                                                                                   \
    "+f"(c[I]), "+f"(c[I + 1]), "+f"(c[I + 2]), "+f"(c[I + 3]), "+f"(c[I + 4]), "+f"(c[I + 5]),    \
        "+f"(c[I + 6]), "+f"(c[I + 7])
#define R4_D16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define R4_D32 R4_D16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define R4_D48 R4_D32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define R4_D64 R4_D48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define R4_D80 R4_D64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define R4_D96 R4_D80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define R4_D112 R4_D96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define R4_D128 R4_D112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define R4_D144 R4_D128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define R4_S16 R4_C8(0)
#define R4_S32 R4_S16, R4_C8(8)
#define R4_S48 R4_S32, R4_C8(16)
#define R4_S64 R4_S48, R4_C8(24)
#define R4_S80 R4_S64, R4_C8(32)
#define R4_S96 R4_S80, R4_C8(40)
#define R4_S112 R4_S96, R4_C8(48)
#define R4_S128 R4_S112, R4_C8(56)
#define R4_S144 R4_S128, R4_C8(64)
#define R4_WGMMA(N, A, B)                                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" R4_D##N              \
                 "}, %" #A ", %" #B ", 1, 1, 1, 0, 0;"                                             \
                 : R4_S##N                                                                         \
                 : "l"(a), "l"(b))

/* c += a b^T: a 64 rows, b N rows, 16 columns of each. */
template <int N>
static __device__ __forceinline__ void r4_wgmma(float *c, unsigned long long a,
                                                unsigned long long b) {
    if constexpr (N == 16) R4_WGMMA(16, 8, 9);
    if constexpr (N == 32) R4_WGMMA(32, 16, 17);
    if constexpr (N == 48) R4_WGMMA(48, 24, 25);
    if constexpr (N == 64) R4_WGMMA(64, 32, 33);
    if constexpr (N == 80) R4_WGMMA(80, 40, 41);
    if constexpr (N == 96) R4_WGMMA(96, 48, 49);
    if constexpr (N == 112) R4_WGMMA(112, 56, 57);
    if constexpr (N == 128) R4_WGMMA(128, 64, 65);
    if constexpr (N == 144) R4_WGMMA(144, 72, 73);
}

#undef R4_D16
#undef R4_S16
#undef R4_D32
#undef R4_S32
#undef R4_D48
#undef R4_S48
#undef R4_D64
#undef R4_S64
#undef R4_D80
#undef R4_S80
#undef R4_D96
#undef R4_S96
#undef R4_D112
#undef R4_S112
#undef R4_D128
#undef R4_S128
#undef R4_D144
#undef R4_S144
#undef R4_C8
#undef R4_WGMMA

/* ---- mma.sync --------------------------------------------------------------------------------
 */

/* c += a b^T: a 16 rows, b 8 rows, 16 columns of each. Lane 4 g + t holds rows g and g + 8 of a and
 * c, row g of b; of a and b two columns from 2 t on, then two from 2 t + 8 on, of c two rows of b
 * from 2 t on. a: rows g and g + 8 with the first columns, then with the others. */
static __device__ __forceinline__ void r4_mma(float c[4], const unsigned a[4],
                                              const unsigned b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same if `is_on`, which all lanes agree on. */
static __device__ __forceinline__ void r4_mma_if(bool is_on, float c[4], const unsigned a[4],
                                                 const unsigned b[2]) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %10, 0;\n"
                 "@p mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}; }"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
                   "r"((unsigned)is_on));
}

/* ldmatrix: lane 8 i + r gives the address of row r, 16 bytes, of matrix i, and gets of each matrix
 * two columns from 2 * (lane % 4) on of row lane / 4. */
static __device__ __forceinline__ void r4_load_matrix4(unsigned r[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

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
