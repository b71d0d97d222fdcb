#include "metal/metal_kernels.h"

#include <stddef.h>
#include <string.h>

#define LAYOUT "cuda/r4_gpu_layout.h", "metal/r4_lanes.metal"
#define SHARE LAYOUT, "metal/r4_share.metal"
#define MATVEC                                                                                     \
    { SHARE, "metal/r4_sum.metal", "metal/r4_matvec.metal" }
#define WIDE                                                                                       \
    { SHARE, "metal/r4_sum.metal", "metal/r4_wide.metal" }
#define GEMM                                                                                       \
    { SHARE, "metal/r4_tile.metal", "metal/r4_gemm.metal" }
#define REBUILD                                                                                    \
    { SHARE, "metal/r4_rebuild.metal" }
#define RICE                                                                                       \
    { LAYOUT, "metal/r4_sink.metal", "metal/r4_rice.metal" }
#define FIXED                                                                                      \
    { LAYOUT, "metal/r4_sink.metal", "metal/r4_rice.metal", "metal/r4_fixed.metal" }
#define BF16                                                                                       \
    { LAYOUT, "metal/r4_sink.metal", "metal/r4_bf16.metal" }

/* facts: row0, taken, block_nrows, base */
#define WEIGHT(I)                                                                                  \
    {"slices_" #I, "uint32", METAL_MANY}, {"rows_" #I, "uint32", METAL_MANY},                      \
        {"escapes_" #I, "uint32", METAL_MANY}, {                                                   \
        "facts_" #I, "int32", METAL_FEW                                                            \
    }
#define BIAS(I)                                                                                    \
    { "bias_" #I, "bfloat16", METAL_MANY }
#define OUT(I)                                                                                     \
    { "y_" #I, "bfloat16", METAL_MANY }
#define X                                                                                          \
    { "x", "bfloat16", METAL_MANY }
#define SIZES                                                                                      \
    { "sizes", "int32", METAL_FEW }
#define INPUT(NAME, DTYPE)                                                                         \
    { NAME, DTYPE, METAL_ANY }
#define WRITTEN(NAME, DTYPE)                                                                       \
    { NAME, DTYPE, METAL_MANY }

#define TILE_PARAMETERS "BM", "BN", "WM", "WN"

#define MADE                                                                                       \
    {                                                                                              \
        WRITTEN("slices", "uint32"), WRITTEN("counts", "uint32"), WRITTEN("masks", "uint32"),      \
            WRITTEN("kept", "uint32"), WRITTEN("faults", "uint32")                                 \
    }
#define PLACES INPUT("starts", "uint32"), INPUT("masks", "uint32"), INPUT("kept", "uint32")
#define PLACED                                                                                     \
    { WRITTEN("rows", "uint32"), WRITTEN("escapes", "uint32") }
#define RICE_PARTS                                                                                 \
    INPUT("raw", "uint8"), INPUT("table", "uint8"), INPUT("meta", "uint8"),                        \
        INPUT("bits", "uint32"), INPUT("row_starts", "uint32"), SIZES
#define FIXED_PARTS                                                                                \
    INPUT("raw", "uint8"), INPUT("table", "uint8"), INPUT("meta", "uint8"),                        \
        INPUT("idx", "uint32"), INPUT("esc", "uint8"), INPUT("code_starts", "uint32"),             \
        INPUT("esc_starts", "uint32"), SIZES

const struct metal_kernel metal_kernels[] = {
    /* One row of x. sizes: K */
    {"r4_matvec_1", MATVEC, {X, WEIGHT(0), BIAS(0), SIZES}, {OUT(0)}, {"BIAS"}},
    {"r4_matvec_2",
     MATVEC,
     {X, WEIGHT(0), BIAS(0), WEIGHT(1), BIAS(1), SIZES},
     {OUT(0), OUT(1)},
     {"BIAS"}},
    {"r4_matvec_3",
     MATVEC,
     {X, WEIGHT(0), BIAS(0), WEIGHT(1), BIAS(1), WEIGHT(2), BIAS(2), SIZES},
     {OUT(0), OUT(1), OUT(2)},
     {"BIAS"}},
    {"r4_matvec_short", MATVEC, {X, WEIGHT(0), BIAS(0), SIZES}, {OUT(0)}, {"BIAS"}},
    {"r4_matvec_long", MATVEC, {X, WEIGHT(0), BIAS(0), SIZES}, {OUT(0)}, {"BIAS"}},

    /* Items and experts. sizes: K, rows of x, experts, items on a row of x or 0 */
    {"r4_gather_1",
     MATVEC,
     {X, INPUT("lhs", "uint32"), INPUT("rhs", "uint32"), WEIGHT(0), SIZES},
     {OUT(0)},
     {NULL}},
    {"r4_gather_2",
     MATVEC,
     {X, INPUT("lhs", "uint32"), INPUT("rhs", "uint32"), WEIGHT(0), WEIGHT(1), SIZES},
     {OUT(0), OUT(1)},
     {NULL}},

    /* 2 to 15 rows of x. sizes: K, rows of x */
    {"r4_wide_1", WIDE, {X, WEIGHT(0), BIAS(0), SIZES}, {OUT(0)}, {"NV", "L", "BIAS"}},
    {"r4_wide_2",
     WIDE,
     {X, WEIGHT(0), BIAS(0), WEIGHT(1), BIAS(1), SIZES},
     {OUT(0), OUT(1)},
     {"NV", "L", "BIAS"}},
    {"r4_wide_3",
     WIDE,
     {X, WEIGHT(0), BIAS(0), WEIGHT(1), BIAS(1), WEIGHT(2), BIAS(2), SIZES},
     {OUT(0), OUT(1), OUT(2)},
     {"NV", "L", "BIAS"}},

    /* Many rows of x. sizes: K, rows of x */
    {"r4_gemm_1", GEMM, {X, WEIGHT(0), BIAS(0), SIZES}, {OUT(0)}, {TILE_PARAMETERS, "BK", "BIAS"}},
    {"r4_gemm_2",
     GEMM,
     {X, WEIGHT(0), BIAS(0), WEIGHT(1), BIAS(1), SIZES},
     {OUT(0), OUT(1)},
     {TILE_PARAMETERS, "BK", "BIAS"}},
    {"r4_gemm_3",
     GEMM,
     {X, WEIGHT(0), BIAS(0), WEIGHT(1), BIAS(1), WEIGHT(2), BIAS(2), SIZES},
     {OUT(0), OUT(1), OUT(2)},
     {TILE_PARAMETERS, "BK", "BIAS"}},
    /* sizes: K, rows of x, splits, columns of each but the last */
    {"r4_gemm_split",
     GEMM,
     {X, WEIGHT(0), SIZES},
     {WRITTEN("splits", "float32")},
     {TILE_PARAMETERS}},
    /* sizes: rows of x, rows of W, splits */
    {"r4_add_splits",
     GEMM,
     {WRITTEN("splits", "float32"), {"bias", "bfloat16", METAL_MANY}, SIZES},
     {{"y", "bfloat16", METAL_MANY}},
     {"BIAS"}},
    /* sizes: K, rows of x, experts */
    {"r4_gemm_experts_1",
     GEMM,
     {X, INPUT("experts", "uint32"), WEIGHT(0), SIZES},
     {OUT(0)},
     {TILE_PARAMETERS}},
    {"r4_gemm_experts_2",
     GEMM,
     {X, INPUT("experts", "uint32"), WEIGHT(0), WEIGHT(1), SIZES},
     {OUT(0), OUT(1)},
     {TILE_PARAMETERS}},

    /* Back to BF16. sizes: K, rows of y or ids */
    {"r4_rebuild", REBUILD, {WEIGHT(0), SIZES}, {OUT(0)}, {NULL}},
    {"r4_rows", REBUILD, {INPUT("ids", "ANY_INT"), WEIGHT(0), SIZES}, {OUT(0)}, {NULL}},

    /* Loading. sizes: K, rows, words of bits, base */
    {"r4_from_rice_1", RICE, {RICE_PARTS}, MADE, {NULL}},
    {"r4_from_rice_2", RICE, {RICE_PARTS, PLACES}, PLACED, {NULL}},
    /* sizes: K, rows, words of idx, bytes of esc, base */
    {"r4_from_fixed_1", FIXED, {FIXED_PARTS}, MADE, {NULL}},
    {"r4_from_fixed_2", FIXED, {FIXED_PARTS, PLACES}, PLACED, {NULL}},
    /* sizes: K, rows */
    {"r4_measure_fixed",
     FIXED,
     {INPUT("meta", "uint8"), SIZES},
     {WRITTEN("widths", "uint32"), WRITTEN("faults", "uint32")},
     {NULL}},
    /* sizes: K, rows, words of idx */
    {"r4_count_fixed",
     FIXED,
     {INPUT("meta", "uint8"), INPUT("idx", "uint32"), INPUT("code_starts", "uint32"), SIZES},
     {WRITTEN("counts", "uint32"), WRITTEN("faults", "uint32")},
     {NULL}},
    /* sizes: K, rows, base */
    {"r4_from_bf16_1", BF16, {INPUT("weights", "bfloat16"), SIZES}, MADE, {NULL}},
    {"r4_from_bf16_2", BF16, {INPUT("weights", "bfloat16"), SIZES, PLACES}, PLACED, {NULL}},
    /* sizes: n */
    {"r4_scan",
     {"metal/r4_scan.metal"},
     {INPUT("values", "uint32"), SIZES},
     {WRITTEN("starts", "uint32")},
     {NULL}},
};

const int metal_nkernels = sizeof metal_kernels / sizeof *metal_kernels;

const struct metal_kernel *metal_find_kernel(const char *name) {
    for (int i = 0; i < metal_nkernels; i++)
        if (strcmp(metal_kernels[i].name, name) == 0) return &metal_kernels[i];
    return NULL;
}
