#include "cuda/r4_launch_gemm.cuh"

#include <vector>

#include "cuda/gemm_table.h"

#define R4_PER_LANE 4
#include "cuda/r4_launch_gemm_all.cuh"
#undef R4_PER_LANE
#define R4_PER_LANE 2
#include "cuda/r4_launch_gemm_all.cuh"
#undef R4_PER_LANE

/* By splits: a name up to their number, and behind it. */
#define SPLITS_OF(NAME, MORE)                                                                      \
    R4_ENTRY(NAME##1##MORE), R4_CLUSTER_ENTRY(NAME##2##MORE, 2),                                   \
        R4_CLUSTER_ENTRY(NAME##3##MORE, 3), R4_CLUSTER_ENTRY(NAME##4##MORE, 4),                    \
        R4_CLUSTER_ENTRY(NAME##5##MORE, 5)
/* Experts with one part and with two, then by splits. */
#define KERNELS_OF(NX, PER_LANE)                                                                   \
    {                                                                                              \
        R4_ENTRY(binade_r4_gemm_##NX##_##PER_LANE##_0_1),                                          \
            R4_ENTRY(binade_r4_gemm_##NX##_##PER_LANE##_0_2),                                      \
            SPLITS_OF(binade_r4_gemm_##NX##_##PER_LANE##_, _1)                                     \
    }
/* The same, then by enum r4_gemm_way. */
#define MMA_KERNELS_OF(PER_LANE)                                                                   \
    {                                                                                              \
        R4_ENTRY(binade_r4_gemm_mma_##PER_LANE##_0_1),                                             \
            R4_ENTRY(binade_r4_gemm_mma_##PER_LANE##_0_2),                                         \
            R4_ENTRY(binade_r4_gemm_mma_##PER_LANE##_1_1),                                         \
            R4_ENTRY(binade_r4_gemm_mma_##PER_LANE##_2_1),                                         \
            R4_ENTRY(binade_r4_gemm_mma_##PER_LANE##_3_1)                                          \
    }

/* By rows of x, columns a lane. */
static const void *const wgmma_kernels[2][2][R4_GEMM_NSPLITS_MOST + 2] = {
    {KERNELS_OF(64, 4), KERNELS_OF(64, 2)}, {KERNELS_OF(128, 4), KERNELS_OF(128, 2)}};
static const void *const mma_kernels[2][R4_GEMM_MMA_TWO_SLICES + 2] = {MMA_KERNELS_OF(4),
                                                                       MMA_KERNELS_OF(2)};

#define SKINNY_OF(NX, PER_LANE)                                                                    \
    { SPLITS_OF(binade_r4_skinny_##NX##_##PER_LANE##_, ) }
/* By rows of x, columns a lane, splits. */
static const void *const skinny_kernels[3][2][R4_GEMM_NSPLITS_MOST] = {
    {SKINNY_OF(8, 4), SKINNY_OF(8, 2)},
    {SKINNY_OF(16, 4), SKINNY_OF(16, 2)},
    {SKINNY_OF(32, 4), SKINNY_OF(32, 2)}};

static const void *find_entry(const r4_gemm_kernel &k, bool has_experts) {
    const bool is_narrow = k.per_lane == 2;
    if (k.way == R4_GEMM_WGMMA)
        return wgmma_kernels[k.nx / 128][is_narrow][has_experts ? k.nparts - 1 : k.nsplits + 1];
    if (k.way == R4_GEMM_SKINNY) return skinny_kernels[k.nx / 16][is_narrow][k.nsplits - 1];
    return mma_kernels[is_narrow][has_experts ? k.nparts - 1 : k.way + 1];
}

static_assert(+R4_MMA_REDUCTION_IN_PLACE == +GEMM_REDUCTION_IN_PLACE &&
              +R4_MMA_REDUCTION_FP32 == +GEMM_REDUCTION_FP32 &&
              +R4_MMA_REDUCTION_BF16 == +GEMM_REDUCTION_BF16);
static_assert(R4_STARTS_NBYTES >= 4 * (R4_GEMM_EXPERTS_MOST + 1));

/* `numbers`: those of the kernel before height. */
static cudaError_t launch(const r4_gemm_product &product, const r4_view *parts, const uint16_t *x,
                          const uint32_t *indices, std::vector<unsigned> numbers,
                          cudaStream_t stream) {
    r4_gemm_kernel kernel;
    r4_grid grid;
    std::vector<r4_view> views(parts, parts + product.nparts);
    std::vector<void *> arguments;

    if (!r4_gemm_grid(&r4_gpu_device(), &product, &kernel, &grid)) return cudaErrorInvalidValue;
    for (auto &v : views)
        arguments.insert(arguments.end(), {&v.w.slices, &v.w.rows, &v.w.escapes});
    arguments.push_back(&x);
    if (indices) arguments.push_back(&indices);
    for (auto &v : views)
        arguments.push_back(&v.y);
    for (auto &number : numbers)
        arguments.push_back(&number);
    int shape[R4_GEMM_SHAPE_MOST];
    const unsigned nshape = r4_gemm_list_shape(&kernel, shape);
    for (unsigned i = 0; i < nshape; i++)
        arguments.push_back(&shape[i]);
    for (auto &v : views) {
        arguments.insert(arguments.end(), {&v.row0, &v.taken});
        if (indices) arguments.push_back(&v.block_nrows);
        arguments.push_back(&v.w.base);
    }

    const void *entry = find_entry(kernel, indices);
    cudaError_t status = cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)grid.shared_nbytes);
    if (status != cudaSuccess) return status;
    return cudaLaunchKernel(entry, dim3(grid.nblocks), dim3(grid.nthreads), arguments.data(),
                            grid.shared_nbytes, stream);
}

cudaError_t r4_gpu_gemm(const r4_view &part, const uint16_t *x, unsigned nx, unsigned nsplits,
                        unsigned split_ncols, cudaStream_t stream, const r4_gemm_tile &tile) {
    const unsigned ncols = part.w.ncols;
    return launch(
        {nx, ncols, part.taken, 1, nsplits, 0, tile.nx, tile.height, r4_gemm_way_of(tile, nx)},
        &part, x, nullptr, {nx, ncols, split_ncols}, stream);
}

cudaError_t r4_gpu_gemm_mma(const r4_view &part, const uint16_t *x, unsigned nx, unsigned nsplits,
                            unsigned split_ncols, unsigned reduction, bool has_two_slices,
                            cudaStream_t stream, unsigned height) {
    const unsigned ncols = part.w.ncols;
    const r4_gemm_way way = has_two_slices ? R4_GEMM_MMA_TWO_SLICES
                            : nsplits > 1  ? R4_GEMM_MMA_SPLITS
                                           : R4_GEMM_MMA;
    return launch({nx, ncols, part.taken, 1, nsplits, 0, 0, height, way}, &part, x, nullptr,
                  {nx, ncols, split_ncols, reduction}, stream);
}

cudaError_t r4_gpu_gemm_experts(const r4_view *parts, unsigned nparts, const uint16_t *x,
                                const uint32_t *indices, unsigned nx, unsigned nexperts,
                                cudaStream_t stream, r4_gemm_way way, const r4_gemm_tile &tile) {
    const unsigned ncols = parts[0].w.ncols;
    return launch({nx, ncols, parts[0].taken, nparts, 0, nexperts, tile.nx, tile.height, way},
                  parts, x, indices, {nx, ncols, nexperts}, stream);
}
