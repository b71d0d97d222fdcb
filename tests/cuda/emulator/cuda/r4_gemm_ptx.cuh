/* r4_gemm_ptx.cuh - src/cuda/r4_gemm_ptx.cuh for the emulator: the same functions in C++. */
#ifndef BINADE_CUDA_R4_GEMM_PTX_CUH
#define BINADE_CUDA_R4_GEMM_PTX_CUH

#include "emulator.h"

#include "cuda/r4_mma_plain.h"

static inline void r4_init_barrier(unsigned barrier, unsigned count) {
    emulator::init_barrier(barrier, count);
}

static inline void r4_arrive(unsigned barrier) {
    emulator::arrive(barrier);
}

static inline void r4_wait(unsigned barrier, unsigned parity) {
    emulator::wait_phase(barrier, parity);
}

static inline void r4_arrive_after_copies(unsigned barrier) {
    emulator::arrive_after_copies(barrier);
}

static inline void r4_sync_some(unsigned number, unsigned count) {
    emulator::sync_some(number, count);
}

static inline void r4_publish() {
    emulator::publish();
}

template <int AT> static inline void r4_put_shared8(unsigned to, unsigned a, unsigned b) {
    emulator::put_shared<uint2>(to + AT, {a, b});
}

template <int AT> static inline void r4_put_shared4(unsigned to, unsigned a) {
    emulator::put_shared(to + AT, a);
}

static inline void r4_put_shared_float(unsigned to, float a) {
    emulator::put_shared(to, a);
}

static inline void r4_put_shared2(unsigned to, unsigned short a) {
    emulator::put_shared(to, a);
}

static inline unsigned long long r4_describe(unsigned address) {
    const unsigned long long swizzle_128 = 1ull << 62, eight_rows = 1024 >> 4;
    return (address & 0x3ffff) >> 4 | 1ull << 16 | eight_rows << 32 | swizzle_128;
}

static inline void r4_wgmma_fence() {}

static inline void r4_wgmma_commit() {
    emulator::commit_products();
}

template <int N> static inline void r4_wgmma_wait() {
    emulator::wait_products(N);
}

template <unsigned N> static inline void r4_settle(float *) {}

template <int NX>
static inline void r4_wgmma(float *c, unsigned long long a, unsigned long long b) {
    static_assert(NX % 8 == 0 && NX >= 8 && NX <= 256);
    emulator::multiply_later(c, NX, a, b);
}

/* ---- mma.sync m16n8k16 -------------------------------------------------------------------------
 * Lane 4 g + t holds of a rows g (a[0], a[2]) and g + 8 (a[1], a[3]), of b row g, columns 2 t and
 * 2 t + 1, then 8 more; of c rows g and g + 8, columns 2 t and 2 t + 1.
 */

static inline void r4_mma(float c[4], const unsigned a[4], const unsigned b[2]) {
    const unsigned lane = emulator::lane_of_thread(), g = lane / 4, t = lane % 4;
    uint16_t rows[2][16], columns[2][16];
    memcpy(emulator::lane_words(lane), a, 16);
    memcpy(emulator::lane_words(lane) + 4, b, 8);
    __syncwarp();
    for (unsigned i = 0; i < 2; i++)
        for (unsigned k = 0; k < 8; k++) { /* pairs of columns */
            const unsigned of_a = i + k / 4 * 2, of_b = 4 + k / 4;
            memcpy(&rows[i][2 * k], emulator::lane_words(4 * g + k % 4) + of_a, 4);
            memcpy(&columns[i][2 * k], emulator::lane_words(4 * (2 * t + i) + k % 4) + of_b, 4);
        }
    for (unsigned i = 0; i < 4; i++)
        c[i] = r4_mma_plain(c[i], rows[i / 2], columns[i % 2]);
    __syncwarp();
}

static inline void r4_mma_if(bool is_on, float c[4], const unsigned a[4], const unsigned b[2]) {
    if (is_on) r4_mma(c, a, b);
}

/* ldmatrix.x4: lane 8 i + r gives the address of row r of matrix i. */
static inline void r4_load_matrix4(unsigned r[4], unsigned address) {
    const unsigned lane = emulator::lane_of_thread();
    *emulator::lane_words(lane) = address;
    __syncwarp();
    for (unsigned i = 0; i < 4; i++) {
        const uint4 row = emulator::get_shared<uint4>(*emulator::lane_words(8 * i + lane / 4));
        const unsigned words[] = {row.x, row.y, row.z, row.w};
        r[i] = words[lane % 4];
    }
    __syncwarp();
}

/* setmaxnreg */
template <int N> static inline void r4_take_registers() {}
template <int N> static inline void r4_give_registers() {}

/* ---- Clusters ------------------------------------------------------------------------------- */

static inline unsigned r4_cluster_rank() {
    return emulator::cluster_rank();
}

static inline void r4_sync_cluster() {
    emulator::sync_cluster();
}

static inline float r4_read_block(unsigned address, unsigned rank) {
    float value;
    memcpy(&value, emulator::shared_of_block(address, 4, rank), 4);
    return value;
}

#endif
