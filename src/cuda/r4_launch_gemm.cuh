/* r4_launch_gemm.cuh - several rows of x times R4 on tensor cores, for C++ programs:
 * r4_launch.cuh's rules hold. cudaErrorInvalidValue where r4_gemm_grid.h knows no kernel. */
#ifndef BINADE_CUDA_R4_LAUNCH_GEMM_CUH
#define BINADE_CUDA_R4_LAUNCH_GEMM_CUH

#include "cuda/r4_gemm_grid.h"
#include "cuda/r4_launch.cuh"

/* As tile_nx, tile_height and way of r4_gemm_product. */
struct r4_gemm_tile {
    unsigned nx, height;
    r4_gemm_way way;
};

/* That of r4_gpu_gemm: without a tile the faster one. */
inline r4_gemm_way r4_gemm_way_of(const r4_gemm_tile &tile, unsigned nx) {
    return tile.nx || tile.height ? tile.way : r4_gemm_hopper_way(nx);
}

/* y [nx][taken] of x [nx][ncols], 16-byte aligned; K in splits of split_ncols columns, whole units
 * of 64. On Hopper. */
cudaError_t r4_gpu_gemm(const r4_view &part, const uint16_t *x, unsigned nx, unsigned nsplits,
                        unsigned split_ncols, cudaStream_t stream,
                        const r4_gemm_tile &tile = r4_gemm_tile());

/* The same on any GPU. reduction: of the splits, enum gemm_reduction; has_two_slices: as
 * GEMM_TWO_SLICES, without splits. height: of r4_gemm_tile. */
cudaError_t r4_gpu_gemm_mma(const r4_view &part, const uint16_t *x, unsigned nx, unsigned nsplits,
                            unsigned split_ncols, unsigned reduction, bool has_two_slices,
                            cudaStream_t stream, unsigned height = 0);

/* y [nx][taken] of each of nparts (1..2) parts, the weights of which share ncols and per_lane, as
 * many rows of each: row i of x times block indices[i], ascending, of nexperts blocks of
 * block_nrows. way: R4_GEMM_WGMMA or R4_GEMM_MMA. */
cudaError_t r4_gpu_gemm_experts(const r4_view *parts, unsigned nparts, const uint16_t *x,
                                const uint32_t *indices, unsigned nx, unsigned nexperts,
                                cudaStream_t stream, r4_gemm_way way,
                                const r4_gemm_tile &tile = r4_gemm_tile());

#endif
