/* r4_skinny_grid.h - how blocks of r4_skinny.cu share out a product, for r4_gemm_grid.c. */
#ifndef BINADE_CUDA_R4_SKINNY_GRID_H
#define BINADE_CUDA_R4_SKINNY_GRID_H

#include "cuda/r4_gemm_grid.h"

/* The shape that is taken to be fastest, of tile_nx and tile_height if they are asked for. 0, and
 * nothing is written, where none fits. */
int r4_skinny_choose(const struct r4_device *device, const struct r4_gemm_product *product,
                     unsigned *nx, struct r4_gemm_shape *shape);

#endif
