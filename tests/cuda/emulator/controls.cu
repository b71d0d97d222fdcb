/* controls.cu - small kernels that are right, and wrong where the program's argument names a
 * mistake: the emulator, or a comparison of results, must notice each.
 *
 *   controls KERNEL [MISTAKE]
 */
#include "cuda/r4_gemm_ptx.cuh"
#include "cuda/r4_ptx.cuh"
#include "gpu_check.cuh"
#include "launch_kernel.cuh"

static const char *mistake = "";

static bool makes(const char *what) {
    return !strcmp(mistake, what);
}

/* ---- Threads of a block: an array in reverse ------------------------------------------------ */

enum { NREVERSED = 64 };

__global__ void reverse(const unsigned *in, unsigned *out) {
    __shared__ unsigned held[NREVERSED];
    const unsigned t = threadIdx.x;
    held[t + makes("variable")] = in[t + makes("array")];
    if (!makes("sync") && (t < 32 || !makes("some"))) __syncthreads();
    if (makes("some") && t >= 32) r4_sync_some(1, 64);
    out[t] = held[NREVERSED - 1 - t];
}

static void check_reverse() {
    std::vector<unsigned> in(NREVERSED), expected(NREVERSED);
    for (unsigned i = 0; i < NREVERSED; i++)
        in[i] = expected[NREVERSED - 1 - i] = 7 * i;
    unsigned *from = to_device(in), *to = new_device<unsigned>(NREVERSED);
    launch_kernel<reverse>(1, NREVERSED, 0, from, to);
    same(to_host(to, NREVERSED), expected, "reversed", "block");
}

/* ---- Lanes of a warp: sums that depend on their order --------------------------------------- */

__global__ void add_lanes(const float *in, float *out) {
    __shared__ float held[32];
    const unsigned lane = threadIdx.x;
    if (makes("lane") && lane == 5) return;
    held[lane] = in[lane];
    if (!makes("syncwarp")) __syncwarp();
    float sum = held[31 - lane];
    for (unsigned i = 0; i < 5; i++)
        sum += __shfl_xor_sync(makes("mask") && lane == 1 ? 2 : ~0u, sum,
                               makes("order") ? 1u << i : 16 >> i);
    out[lane] = sum;
}

static void check_lanes() {
    std::vector<float> in(32), sums(32);
    for (unsigned i = 0; i < 32; i++)
        sums[31 - i] = in[i] = (i % 2 ? -1.0f : 1.0f) * (float)(1 << (i * 7 % 30)) + 0.1f;
    for (unsigned apart = 16; apart > 0; apart /= 2)
        for (unsigned i = 0; i < apart; i++)
            sums[i] += sums[i + apart];
    float *from = to_device(in), *to = new_device<float>(32);
    launch_kernel<add_lanes>(1, 32, 0, from, to);
    same(to_host(to, 32), std::vector<float>(32, sums[0]), "sums", "warp");
}

/* ---- Copies that run ahead ------------------------------------------------------------------ */

__global__ void copy_pieces(const uint4 *in, uint4 *out, unsigned npieces) {
    extern __shared__ __align__(16) float xs[];
    const unsigned mine = (unsigned)__cvta_generic_to_shared(xs) + 32 * threadIdx.x;
    auto ask = [&](unsigned piece) {
        unsigned to = mine + piece % 2 * 16 + makes("align") * 4 + makes("outside") * 1024;
        r4_copy_if<0>((int)piece, (int)npieces, to, in + piece * 32 + threadIdx.x);
        r4_commit_copies();
    };
    ask(0);
    for (unsigned piece = 0; piece < npieces; piece++) {
        ask(piece + 1);
        if (makes("wait") && piece + 1 < npieces)
            r4_wait_copies<2>();
        else
            r4_wait_copies<1>();
        if (makes("early")) ask(piece + 2);
        out[piece * 32 + threadIdx.x] = r4_shared16<0>(mine + piece % 2 * 16);
    }
    if (makes("end")) ask(0);
}

static std::vector<uint32_t> draw_words(size_t n) {
    std::vector<uint32_t> words(n);
    for (uint32_t &word : words)
        word = draw();
    return words;
}

static void check_copies() {
    const unsigned npieces = 5;
    const std::vector<uint32_t> in = draw_words(npieces * 32 * 4);
    uint32_t *from = to_device(in), *to = new_device<uint32_t>(in.size());
    must(launch_entry(copy_pieces, R4_ENTRY(copy_pieces), 1, 32, 1024, 0, (const uint4 *)from,
                      (uint4 *)to, npieces),
         "copies");
    same(to_host(to, in.size()), in, "copies", "pieces");
}

/* ---- Copies that a barrier counts: two warps copy halves of pieces, a third reads ----------- */

__global__ void copy_counted(const uint4 *in, uint4 *out, unsigned npieces) {
    extern __shared__ __align__(16) float xs[];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned full = (unsigned)__cvta_generic_to_shared(xs), empty = full + 8;
    const unsigned at = full + 16 + 16 * lane;
    auto copy_half = [&](unsigned piece, unsigned half) {
        r4_copy_if<0>(0, 1, at + 512 * half, in + 64 * piece + 32 * half + lane);
    };
    if (threadIdx.x == 0) {
        r4_init_barrier(full, makes("turns") ? 32 : 64);
        r4_init_barrier(empty, 1);
    }
    __syncthreads();
    for (unsigned piece = 0; piece < npieces && warp < 2; piece++) {
        if (makes("turns") && piece % 2 != warp) continue;
        if (!makes("empty")) r4_wait(empty, piece % 2 ^ 1);
        copy_half(piece, warp);
        if (makes("turns")) copy_half(piece, 1 - warp);
        if (makes("arrive"))
            r4_arrive(full);
        else
            r4_arrive_after_copies(full);
    }
    if (makes("arrive")) r4_commit_copies(), r4_wait_copies<0>();
    for (unsigned piece = 0; piece < npieces && warp == 2; piece++) {
        if (makes("end") && piece + 1 == npieces) break;
        if (!makes("full")) r4_wait(full, piece % 2);
        for (unsigned half = 0; half < 2; half++)
            out[64 * piece + 32 * half + lane] = r4_shared16<0>(at + 512 * half);
        __syncwarp();
        if (lane == 0) r4_arrive(empty);
    }
}

static void check_counted() {
    const unsigned npieces = 5;
    const std::vector<uint32_t> in = draw_words(npieces * 64 * 4);
    uint32_t *from = to_device(in), *to = new_device<uint32_t>(in.size());
    must(launch_entry(copy_counted, R4_ENTRY(copy_counted), 1, 96, 16 + 1024, 0,
                      (const uint4 *)from, (uint4 *)to, npieces),
         "counted copies");
    same(to_host(to, in.size()), in, "counted copies", "pieces");
}

/* ---- wgmma: one warp writes or copies operands, four multiply ------------------------------- */

enum {
    N = 24,
    NCOLS = 64,
    NROUNDS = 3,
    W_AT = 1024,
    X_AT = W_AT + 64 * 128,
    PRODUCTS_NBYTES = X_AT + N * 128
};

static __device__ void put_rows(unsigned to, const uint16_t *from, unsigned nrows) {
    for (unsigned i = threadIdx.x % 32; i < nrows * NCOLS; i += 32)
        r4_put_shared2(to + i / NCOLS * 128 + (2 * (i % NCOLS) ^ i / NCOLS % 8 << 4), from[i]);
}

static __device__ void copy_rows(unsigned to, const uint16_t *from, unsigned nrows) {
    for (unsigned i = threadIdx.x % 32; i < nrows * NCOLS / 8; i += 32)
        r4_copy_if<0>(0, 1, to + i / 8 * 128 + 16 * (i % 8 ^ i / 8 % 8),
                      (const uint4 *)(from + 8 * i));
}

template <bool COPIES> __global__ void multiply(const uint16_t *w, const uint16_t *x, float *y) {
    extern __shared__ __align__(1024) unsigned char r4_shared[];
    const unsigned shared = (unsigned)__cvta_generic_to_shared(r4_shared);
    const unsigned full = shared, empty = shared + 8, lane = threadIdx.x % 32;
    float c[N / 2] = {0};
    if (threadIdx.x == 0 && !makes("init")) {
        r4_init_barrier(full, (COPIES ? 32 : 1) + makes("count"));
        r4_init_barrier(empty, 4);
    }
    __syncthreads();
    for (unsigned round = 0; round < NROUNDS; round++) {
        if (threadIdx.x >= 128) {
            r4_wait(empty, round % 2 ^ 1);
            (COPIES ? copy_rows : put_rows)(shared + W_AT, w + round * 64 * NCOLS, 64);
            (COPIES ? copy_rows : put_rows)(shared + X_AT, x + round * N * NCOLS, N);
            if (COPIES) {
                r4_arrive_after_copies(full);
                continue;
            }
            if (!makes("publish")) r4_publish();
            __syncwarp();
            if (lane == 0) r4_arrive(full);
            continue;
        }
        if (!makes("full")) r4_wait(full, round % 2);
        if (COPIES && !makes("publish")) r4_publish();
        r4_wgmma_fence();
        for (unsigned step = 0; step < NCOLS / 16; step++)
            r4_wgmma<N>(c, r4_describe(shared + W_AT) + 2 * step,
                        r4_describe(shared + X_AT) + 2 * step);
        r4_wgmma_commit();
        if (makes("release") && lane == 0) r4_arrive(empty);
        if (makes("release") || makes("sums"))
            r4_wgmma_wait<1>();
        else
            r4_wgmma_wait<0>();
        if (!makes("release") && lane == 0) r4_arrive(empty);
    }
    if (makes("release")) r4_wgmma_wait<0>();
    const unsigned row = threadIdx.x / 32 * 16 + lane / 4;
    for (unsigned i = 0; i < N / 2 && threadIdx.x < 128; i++)
        y[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = c[i];
}

template <bool COPIES> static void check_products() {
    auto w = draw_weights(NROUNDS * 64, NCOLS, FINITE), x = draw_weights(NROUNDS * N, NCOLS, MODEL);
    std::vector<float> expected(64 * N);
    for (unsigned i = 0; i < 64 * N; i++)
        for (unsigned round = 0; round < NROUNDS; round++)
            for (unsigned k = 0; k < NCOLS; k += 16)
                expected[i] = r4_mma_plain(expected[i], &w[(round * 64 + i / N) * NCOLS + k],
                                           &x[(round * N + i % N) * NCOLS + k]);
    const uint16_t *from_w = to_device(w), *from_x = to_device(x);
    float *to = new_device<float>(64 * N);
    must(launch_entry(multiply<COPIES>, R4_ENTRY(multiply<COPIES>), 1, 160, PRODUCTS_NBYTES, 0,
                      from_w, from_x, to),
         "products");
    same(to_host(to, 64 * N), expected, "products", "wgmma");
}

/* ---- mma.sync, of matrices by ldmatrix ------------------------------------------------------ */

__global__ void multiply_warp(const uint16_t *w, const uint16_t *x, float *y) {
    extern __shared__ __align__(1024) unsigned char r4_shared[];
    const unsigned at = (unsigned)__cvta_generic_to_shared(r4_shared), lane = threadIdx.x;
    for (unsigned i = lane; i < 16 * 16; i += 32) {
        r4_put_shared2(at + 2 * i, w[i]);
        r4_put_shared2(at + 512 + 2 * i, x[i]);
    }
    __syncwarp();
    float c[4] = {0, 0, 0, 0};
    unsigned a[4], b[4];
    r4_load_matrix4(a, at + lane % 16 * 32 + lane / 16 * 16);
    r4_load_matrix4(b, at + 512 + lane % 16 * 32 + lane / 16 * 16);
    const unsigned first[2] = {b[makes("matrix")], b[2]};
    r4_mma(c, a, first);
    for (unsigned i = 0; i < 4; i++)
        y[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
}

static void check_warp() {
    auto w = draw_weights(16, 16, MODEL), x = draw_weights(16, 16, MODEL);
    std::vector<float> expected(16 * 8);
    for (unsigned i = 0; i < 16 * 8; i++)
        expected[i] = r4_mma_plain(0, &w[i / 8 * 16], &x[i % 8 * 16]);
    const uint16_t *from_w = to_device(w), *from_x = to_device(x);
    float *to = new_device<float>(16 * 8);
    must(launch_entry(multiply_warp, R4_ENTRY(multiply_warp), 1, 32, 1024, 0, from_w, from_x, to),
         "mma");
    same(to_host(to, 16 * 8), expected, "products", "mma");
}

/* ---- Blocks of a cluster -------------------------------------------------------------------- */

__global__ void exchange(float *out) {
    extern __shared__ __align__(1024) unsigned char r4_shared[];
    const unsigned at = (unsigned)__cvta_generic_to_shared(r4_shared) + 4 * threadIdx.x;
    const unsigned rank = r4_cluster_rank();
    r4_put_shared4<0>(at, __float_as_uint((float)(100 * blockIdx.x + threadIdx.x)));
    if (!makes("sync")) r4_sync_cluster();
    if (!makes("end") || rank != 1)
        out[blockIdx.x * 32 + threadIdx.x] = r4_read_block(at, makes("rank") ? 3 : (rank + 1) % 3);
    if (!makes("end")) r4_sync_cluster();
}

static void check_exchange() {
    std::vector<float> expected(6 * 32);
    for (unsigned i = 0; i < 6 * 32; i++)
        expected[i] = (float)(100 * (i / 32 / 3 * 3 + (i / 32 + 1) % 3) + i % 32);
    float *to = new_device<float>(6 * 32);
    const void *entry = R4_CLUSTER_ENTRY(exchange, 3);
    expect(launch_entry(exchange, entry, 5, 32, 128, 0, to) == cudaErrorInvalidValue,
           "a part of a cluster", "cluster");
    must(launch_entry(exchange, entry, 6, 32, 128, 0, to), "exchange");
    same(to_host(to, 6 * 32), expected, "values", "cluster");
}

int main(int argc, char **argv) {
    if (argc > 2) mistake = argv[2];
    std::string kernel = argc > 1 ? argv[1] : "";
    if (kernel == "reverse") check_reverse();
    if (kernel == "lanes") check_lanes();
    if (kernel == "copies") check_copies();
    if (kernel == "counted") check_counted();
    if (kernel == "products") check_products<false>();
    if (kernel == "copied") check_products<true>();
    if (kernel == "warp") check_warp();
    if (kernel == "exchange") check_exchange();
    return end_checks();
}
