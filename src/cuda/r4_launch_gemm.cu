#include "cuda/r4_launch_gemm.cuh"

#define R4_NX 16
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_NX
#define R4_NX 64
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_NX
#define R4_NX 128
#include "cuda/r4_launch_gemm_each.cuh"
#undef R4_NX

#define KERNELS_OF(NX, PER_LANE)                                                                   \
    {                                                                                              \
        (const void *)binade_r4_gemm_##NX##_##PER_LANE##_0,                                        \
            (const void *)binade_r4_gemm_##NX##_##PER_LANE##_1,                                    \
            (const void *)binade_r4_gemm_##NX##_##PER_LANE##_2,                                    \
            (const void *)binade_r4_gemm_##NX##_##PER_LANE##_3,                                    \
            (const void *)binade_r4_gemm_##NX##_##PER_LANE##_4,                                    \
            (const void *)binade_r4_gemm_##NX##_##PER_LANE##_5                                     \
    }

/* By rows of x, columns a lane, splits. */
static const void *const kernels[3][2][R4_GEMM_NSPLITS_MOST + 1] = {
    {KERNELS_OF(16, 4), KERNELS_OF(16, 2)},
    {KERNELS_OF(64, 4), KERNELS_OF(64, 2)},
    {KERNELS_OF(128, 4), KERNELS_OF(128, 2)}};

/* What r4_gemm_grid.c says of slots, in C, is so. */
template <int NX, int NSLOTS, int NUNITS, int NTHREADS> static constexpr bool is_as_in_grid() {
    using slots = r4_gemm_slots<NX>;
    return slots::nslots == NSLOTS && slots::nunits == NUNITS && slots::nthreads == NTHREADS;
}
static_assert(is_as_in_grid<16, 5, 4, 768>() && is_as_in_grid<64, 3, 4, 768>() &&
              is_as_in_grid<128, 4, 2, 512>());
static_assert(R4_TILE_NROWS == 64 && R4_UNIT_NCOLS == 64 && R4_BARRIERS_NBYTES == 1024 &&
              R4_STARTS_NBYTES == 5 * 1024 && R4_STARTS_NBYTES >= 4 * (R4_GEMM_EXPERTS_MOST + 1));

static cudaError_t launch(const r4_gemm_product &product, void **arguments, cudaStream_t stream) {
    r4_gemm_kernel kernel;
    r4_grid grid;

    if (!r4_gemm_grid(&r4_gpu_device(), &product, &kernel, &grid)) return cudaErrorInvalidValue;
    const void *entry = kernels[kernel.nx / 64][kernel.per_lane == 2][kernel.nsplits];
    cudaError_t status = cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)grid.shared_nbytes);
    if (status != cudaSuccess) return status;
    return cudaLaunchKernel(entry, dim3(grid.nblocks), dim3(grid.nthreads), arguments,
                            grid.shared_nbytes, stream);
}

cudaError_t r4_gpu_gemm(const r4_view &part, const uint16_t *x, unsigned nx, unsigned nsplits,
                        unsigned split_ncols, cudaStream_t stream, unsigned nx_tile) {
    r4_view v = part;
    void *arguments[] = {&v.w.slices, &v.w.rows, &v.w.escapes, &x,         &v.y,        &v.row0,
                         &v.taken,    &v.w.base, &nx,          &v.w.ncols, &split_ncols};
    return launch({nx, v.w.ncols, v.taken, nsplits, 0, nx_tile}, arguments, stream);
}

cudaError_t r4_gpu_gemm_experts(const r4_view &part, const uint16_t *x, const uint32_t *indices,
                                unsigned nx, unsigned nexperts, cudaStream_t stream,
                                unsigned nx_tile) {
    r4_view v = part;
    void *arguments[] = {&v.w.slices, &v.w.rows, &v.w.escapes,   &x,        &indices,  &v.y,
                         &v.row0,     &v.taken,  &v.block_nrows, &v.w.base, &nexperts, &nx,
                         &v.w.ncols};
    return launch({nx, v.w.ncols, v.taken, 0, nexperts, nx_tile}, arguments, stream);
}
