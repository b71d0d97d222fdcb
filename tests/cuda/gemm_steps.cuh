/* gemm_steps.cuh - y = x W^T of BF16 in steps of m16n8k16, ascending, from +0 in each split of K: a
 * warp for 16 rows of W and 8 of x, with plain loads. What R4 is compared with on a GPU. */
#ifndef BINADE_GEMM_STEPS_CUH
#define BINADE_GEMM_STEPS_CUH

#include <cuda_runtime.h>

#include <cstdint>

/* One split's sum of a tile: c of rows g and g + 8 of W, 2 t and 2 t + 1 of x. */
static __device__ __forceinline__ void step_bf16(float c[4], const uint16_t *const w[2],
                                                 const uint16_t *x, unsigned k, unsigned t) {
    auto two = [](const uint16_t *from) { return (unsigned)from[0] | (unsigned)from[1] << 16; };
    unsigned a0 = two(w[0] + k + 2 * t), a1 = two(w[1] + k + 2 * t);
    unsigned a2 = two(w[0] + k + 2 * t + 8), a3 = two(w[1] + k + 2 * t + 8);
    unsigned b0 = two(x + k + 2 * t), b1 = two(x + k + 2 * t + 8);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* experts: of each row of x, null where there is one weight of nrows. */
static __global__ void gemm_steps(const uint16_t *w, const uint16_t *x, const uint32_t *experts,
                                  uint16_t *y, unsigned nrows, unsigned nx, unsigned ncols,
                                  unsigned split_ncols) {
    const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4, row = 16 * blockIdx.x + g;
    /* Experts: one row of x at a time, eight times. */
    const unsigned m = experts ? blockIdx.y : 8 * blockIdx.y + g;
    if (experts) w += (size_t)experts[m] * nrows * ncols;
    const uint16_t *const rows[2] = {w + (size_t)min(row, nrows - 1) * ncols,
                                     w + (size_t)min(row + 8, nrows - 1) * ncols};
    float total[4] = {0, 0, 0, 0};
    for (unsigned k0 = 0; k0 < ncols; k0 += split_ncols) {
        float c[4] = {0, 0, 0, 0};
        for (unsigned k = k0; k < min(k0 + split_ncols, ncols); k += 16)
            step_bf16(c, rows, x + (size_t)min(m, nx - 1) * ncols, k, t);
        for (int i = 0; i < 4; i++)
            total[i] = k0 > 0 ? total[i] + c[i] : c[i];
    }
    for (unsigned i = 0; i < 4; i++) {
        unsigned to_row = row + i / 2 * 8;
        unsigned to_m = experts ? blockIdx.y : 8 * blockIdx.y + 2 * t + i % 2;
        if (to_row < nrows && to_m < nx && (!experts || (t == 0 && i % 2 == 0)))
            asm("{ .reg .b16 r; cvt.rn.bf16.f32 r, %1; st.global.b16 [%0], r; }" ::"l"(
                    y + (size_t)to_m * nrows + to_row),
                "f"(total[i])
                : "memory");
    }
}

static inline void run_gemm_steps(const uint16_t *w, const uint16_t *x, const uint32_t *experts,
                                  uint16_t *y, unsigned nrows, unsigned nx, unsigned ncols,
                                  unsigned split_ncols) {
    dim3 grid((nrows + 15) / 16, experts ? nx : (nx + 7) / 8);
    gemm_steps<<<grid, 32>>>(w, x, experts, y, nrows, nx, ncols, split_ncols);
}

#endif
