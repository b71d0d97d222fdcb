/* r4_gemm_shape.h - sizes that the kernels of r4_gemm.cuh and r4_gemm_grid.c, which launches them,
 * have to agree on. Includes nothing, so that C, nvcc and NVRTC all take it. */
#ifndef BINADE_CUDA_R4_GEMM_SHAPE_H
#define BINADE_CUDA_R4_GEMM_SHAPE_H

enum {
    R4_UNIT_NCOLS = 64, /* half a slice; splits of K begin and end there */
    R4_UNIT_ROW_NBYTES = 2 * R4_UNIT_NCOLS,
    R4_X_NROWS = 64,           /* of x, that a warpgroup multiplies */
    R4_NDECODERS = 8,          /* warps of a block; a tile has as many rows for each */
    R4_NCOPIERS = 4,           /* warps that copy */
    R4_HEIGHT_STEP = 16,       /* heights are whole such: wgmma takes 8, a decoder pairs of rows */
    R4_BARRIERS_NBYTES = 1024, /* slots are aligned so */
    R4_STARTS_NBYTES = 5 * 1024, /* where 1,024 experts begin, and the last one ends */
};

/* How a launch shares out its block's memory: rows of a tile; of x in a slot, whole 8; slots. */
struct r4_gemm_shape {
    int height, x_nrows, nslots;
};

/* The greatest height, as there are registers for: by wgmma with NX rows of x at a time, and by
 * mma.sync with one or two sums for each output. */
#define R4_WGMMA_HEIGHT_MOST(NX) ((NX) == 64 ? 144 : 112)
#define R4_MMA_HEIGHT_MOST(NSUMS) ((NSUMS) == 1 ? 112 : 64)

/* Warps of a block: those that multiply, decode and copy. */
#define R4_GEMM_NWARPS(NX) ((NX) / 16 + R4_NDECODERS + R4_NCOPIERS)

#endif
