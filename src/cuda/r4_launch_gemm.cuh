/* r4_launch_gemm.cuh - several rows of x times R4 on Hopper, for C++ programs: r4_launch.cuh's
 * rules hold. cudaErrorInvalidValue where r4_gemm_grid.h knows no kernel. */
#ifndef BINADE_CUDA_R4_LAUNCH_GEMM_CUH
#define BINADE_CUDA_R4_LAUNCH_GEMM_CUH

#include "cuda/r4_gemm_grid.h"
#include "cuda/r4_launch.cuh"

/* y [nx][taken] of x [nx][ncols], 16-byte aligned; K in splits of split_ncols columns, whole units
 * of 64. nx_tile: 16, 64 or 128 rows of x at a time, 0: r4_gemm_grid's choice. */
cudaError_t r4_gpu_gemm(const r4_view &part, const uint16_t *x, unsigned nx, unsigned nsplits,
                        unsigned split_ncols, cudaStream_t stream, unsigned nx_tile = 0);

/* y [nx][taken]: row i of x times block indices[i], ascending, of nexperts blocks of block_nrows.
 */
cudaError_t r4_gpu_gemm_experts(const r4_view &part, const uint16_t *x, const uint32_t *indices,
                                unsigned nx, unsigned nexperts, cudaStream_t stream,
                                unsigned nx_tile = 0);

#endif
