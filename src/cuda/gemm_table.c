#include "cuda/gemm_table.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEASURED "tests/cuda/test_cuda_gemm_lt.cu"
#define PUBLISHED "published, not run here"
#define ASSUMED "none: assumed because of BINADE_GEMM_ROW"

enum { EVERY_REDUCTION = GEMM_REDUCTION_IN_PLACE | GEMM_REDUCTION_FP32 | GEMM_REDUCTION_BF16 };

/* Tile, stages, swizzle, shapes and custom options change who computes an output, not its bits. */
static const struct gemm_row rows[] = {
    {9, 0, 66, GEMM_IN_ORDER, GEMM_REDUCTION_FP32, false, MEASURED},
    {8, 0, 21, GEMM_IN_ORDER, EVERY_REDUCTION, true, PUBLISHED},
    {8, 0, 6, GEMM_IN_ORDER, EVERY_REDUCTION, true, PUBLISHED},
    {8, 0, 31, GEMM_TWO_SLICES, 0, false, PUBLISHED},
    {8, 9, 21, GEMM_IN_ORDER, EVERY_REDUCTION, true, PUBLISHED},
    {8, 9, 6, GEMM_IN_ORDER, EVERY_REDUCTION, true, PUBLISHED},
    {8, 9, 5, GEMM_IN_ORDER, EVERY_REDUCTION, true, PUBLISHED},
    {8, 9, 31, GEMM_TWO_SLICES, 0, false, PUBLISHED},
    {12, 0, 21, GEMM_IN_ORDER, EVERY_REDUCTION, true, PUBLISHED},
};

enum { NROWS = sizeof rows / sizeof *rows };

static const struct {
    const char *name;
    struct gemm_row row;
} assumed[] = {
    {"in-order", {0, 0, 0, GEMM_IN_ORDER, EVERY_REDUCTION, true, ASSUMED}},
    {"two-slices", {0, 0, 0, GEMM_TWO_SLICES, 0, false, ASSUMED}},
};

const struct gemm_row *gemm_row_at(size_t i) {
    return i < NROWS ? &rows[i] : NULL;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static const char *read_name(void) {
    const char *name = getenv("BINADE_GEMM_ROW");
    return name ? name : "";
}

/* *row: what stands for the unknown, or NULL. Returns -1 where the environment names no row. */
static int read_assumed(const struct gemm_row **row, char message[GPU_MESSAGE_NBYTES]) {
    const char *name = read_name();

    *row = NULL;
    if (!*name || strcmp(name, "published") == 0) return 0;
    for (size_t i = 0; i < sizeof assumed / sizeof *assumed; i++) {
        if (strcmp(name, assumed[i].name) == 0) *row = &assumed[i].row;
    }
    if (*row) return 0;
    snprintf(message, GPU_MESSAGE_NBYTES,
             "BINADE_GEMM_ROW is \"%.100s\", expected published, in-order or two-slices", name);
    return -1;
}

static const struct gemm_row *find(int major, int minor, int algorithm,
                                   char message[GPU_MESSAGE_NBYTES]) {
    bool is_known_gpu = false;

    for (int i = 0; i < NROWS; i++) {
        if (rows[i].major != major || rows[i].minor != minor) continue;
        if (rows[i].algorithm == algorithm) return &rows[i];
        is_known_gpu = true;
    }
    if (is_known_gpu)
        snprintf(message, GPU_MESSAGE_NBYTES,
                 "the order of cuBLASLt's algorithm %d is not known on compute capability %d.%d",
                 algorithm, major, minor);
    else
        snprintf(message, GPU_MESSAGE_NBYTES,
                 "the order of cuBLASLt's sums is not known on compute capability %d.%d", major,
                 minor);
    return NULL;
}

/* Whether the row tells how the splits of this plan are added. */
static bool knows_splits(const struct gemm_row *row, const struct gemm_plan *plan, int k,
                         char message[GPU_MESSAGE_NBYTES]) {
    int n = plan->nsplits, reduction = plan->reduction;
    bool is_one = reduction == GEMM_REDUCTION_IN_PLACE || reduction == GEMM_REDUCTION_FP32 ||
                  reduction == GEMM_REDUCTION_BF16;

    if (n == 0 || n == 1) return true; /* cuBLASLt splits where the number is greater than one */
    if (n < 0) {
        snprintf(message, GPU_MESSAGE_NBYTES, "what cuBLASLt means by %d splits of K is not known",
                 n);
    } else if (row->reductions == 0) {
        snprintf(message, GPU_MESSAGE_NBYTES,
                 "cuBLASLt's algorithm %d adds two slices, and its order is not known where it "
                 "splits K too, here in %d",
                 plan->algorithm, n);
    } else if (!is_one || !(row->reductions & (unsigned)reduction)) {
        snprintf(message, GPU_MESSAGE_NBYTES,
                 "how cuBLASLt's algorithm %d adds %d splits of K by reduction scheme %d is not "
                 "known on this GPU",
                 plan->algorithm, n, reduction);
    } else if (!row->empty_adds_zero && gemm_split_range(k, n, n - 1).k0 == k) {
        snprintf(message, GPU_MESSAGE_NBYTES,
                 "what cuBLASLt's algorithm %d adds for a split without columns, as K = %d in %d "
                 "has, is not known on this GPU",
                 plan->algorithm, k, n);
    } else {
        return true;
    }
    return false;
}

const struct gemm_row *gemm_find_row(int major, int minor, const struct gemm_plan *plan, int k,
                                     char message[GPU_MESSAGE_NBYTES]) {
    const struct gemm_row *instead = NULL, *row = NULL;

    if (read_assumed(&instead, message)) return NULL;
    row = find(major, minor, plan->algorithm, message);
    if (!row) row = instead;
    return row && knows_splits(row, plan, k, message) ? row : NULL;
}

bool gemm_row_is_asked_for(void) {
    return *read_name();
}

bool gemm_row_is_allowed(const struct gemm_row *row) {
    return strcmp(row->proof, PUBLISHED) != 0 || gemm_row_is_asked_for();
}

/* ---- Splits ---------------------------------------------------------------------------------- */

static int64_t split_ncols(int k, int nsplits) {
    int64_t each = ((int64_t)k + nsplits - 1) / nsplits;
    return (each + GEMM_SPLIT_NCOLS - 1) / GEMM_SPLIT_NCOLS * GEMM_SPLIT_NCOLS;
}

int gemm_split_ncols(int k, int nsplits) {
    return (int)split_ncols(k, nsplits);
}

struct gemm_range gemm_split_range(int k, int nsplits, int split) {
    int64_t ncols = split_ncols(k, nsplits), k0 = ncols * split, k1 = k0 + ncols;
    return (struct gemm_range){(int)(k0 < k ? k0 : k), (int)(k1 < k ? k1 : k)};
}
