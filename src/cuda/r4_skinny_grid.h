/* r4_skinny_grid.h - how blocks of r4_skinny.cu share out a product, for r4_gemm_grid.c. */
#ifndef BINADE_CUDA_R4_SKINNY_GRID_H
#define BINADE_CUDA_R4_SKINNY_GRID_H

#include "cuda/r4_gemm_grid.h"

/* Clusters of n blocks, 1 .. R4_GEMM_NSPLITS_MOST, that are on the device at once, of which a part
 * stays idle where they do not fill its groups of multiprocessors: what an H200's driver answers,
 * of 132 multiprocessors. */
size_t r4_clusters_at_once(const struct r4_device *device, unsigned n);

/* The shape that is taken to be fastest, of tile_nx and tile_height if they are asked for. 0, and
 * nothing is written, where none fits. */
int r4_skinny_choose(const struct r4_device *device, const struct r4_gemm_product *product,
                     unsigned *nx, struct r4_gemm_shape *shape);

#endif
