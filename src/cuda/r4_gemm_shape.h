/* r4_gemm_shape.h - sizes that the kernels of r4_gemm.cuh and r4_skinny.cuh have to agree on with
 * r4_gemm_grid.c and r4_skinny_grid.c, which launch them. Includes nothing, so that C, nvcc and
 * NVRTC all take it. */
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

/* How a launch shares out its block: rows of W at a time; rows of x in a slot, whole 8; slots. Of
 * r4_skinny.cuh warps of a tile and, of each tile, stages too, and no x_nrows. */
struct r4_gemm_shape {
    int height, x_nrows, nslots, nturns, nstages;
};

/* The greatest height, as there are registers for: by wgmma with NX rows of x at a time, and by
 * mma.sync with one or two sums for each output. */
#define R4_WGMMA_HEIGHT_MOST(NX) ((NX) == 64 ? 144 : 112)
#define R4_MMA_HEIGHT_MOST(NSUMS) ((NSUMS) == 1 ? 112 : 64)

/* Kernels of r4_skinny.cuh with NX rows of x: how many warps copy x. */
#define R4_SKINNY_NCOPIERS(NX) ((NX) == 32 ? 2 : 1)
#define R4_SKINNY_NWARPS(NX, HEIGHT, NTURNS)                                                       \
    ((HEIGHT) / R4_SKINNY_NROWS * (NTURNS) + R4_SKINNY_NCOPIERS(NX))
enum {
    R4_SKINNY_NX_MOST = 32,
    R4_SKINNY_NWARPS_MOST = 16, /* of a block */
    R4_SKINNY_NROWS = 16,       /* of a tile */
    R4_SKINNY_NUNITS = 4,       /* of half a group, a turn's */
    R4_SKINNY_NSLOTS_MOST = 8,
    R4_SKINNY_NSTAGES_MOST = 4,
    R4_SKINNY_NTURNS_MOST = 4,
    R4_SKINNY_TILE_BARRIERS_NBYTES = 16 * R4_SKINNY_NSTAGES_MOST + 8 * R4_SKINNY_NTURNS_MOST,
    R4_SKINNY_BARRIERS_NBYTES = 2048,
    R4_SKINNY_ROW_NBYTES = 768 + 32, /* of a stage, shifted against banks */
    R4_SKINNY_STAGE_NBYTES = R4_SKINNY_NROWS * R4_SKINNY_ROW_NBYTES,
    R4_SKINNY_X_ROW_NBYTES = 512 + 32, /* of a slot, likewise */
    R4_SKINNY_SUMS_NBYTES = 64,        /* of a tile, for each row of x */
};

/* Warps of a block: those that multiply, decode and copy. */
#define R4_GEMM_NWARPS(NX) ((NX) / 16 + R4_NDECODERS + R4_NCOPIERS)

#endif
