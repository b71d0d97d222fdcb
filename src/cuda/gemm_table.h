/* gemm_table.h - in which order a plan of cuBLASLt adds, for the GPUs and algorithms of which it is
 * known. A product whose plan is not found here is not fused: its weight is rebuilt and MLX's own
 * operation called, which is exact by construction.
 *
 * What others published, and no test of ours was run of, is used only if BINADE_GEMM_ROW in the
 * environment is set, to `published` or to what follows. in-order or two-slices makes a GPU or an
 * algorithm that is not known here be treated as such a row: for a check that compares bits on a
 * new GPU, nothing else. It changes nothing about a row that is known.
 */
#ifndef BINADE_CUDA_GEMM_TABLE_H
#define BINADE_CUDA_GEMM_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda/gemm_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the products of one output, or of one split of it, are added. A step is an m16n8k16 of
 * tensor cores: 16 columns into an fp32 accumulator, which begins at zero. */
enum gemm_order {
    GEMM_IN_ORDER,   /* one accumulator, steps ascending */
    GEMM_TWO_SLICES, /* two: runs of 32 columns alternate between them; added at the end */
};

/* How splits of K are added, in their order: cublasLtReductionScheme_t. */
enum gemm_reduction {
    GEMM_REDUCTION_NONE = 0,
    GEMM_REDUCTION_IN_PLACE = 1, /* each fp32 sum to the BF16 output so far, which is rounded */
    GEMM_REDUCTION_FP32 = 2,     /* fp32 sums, rounded once at the end */
    GEMM_REDUCTION_BF16 = 4,     /* sums that were rounded to BF16 */
};

struct gemm_row {
    int major, minor, algorithm; /* all 0: stands for what is not known (BINADE_GEMM_ROW) */
    enum gemm_order order;
    unsigned reductions;  /* those that are known, of enum gemm_reduction; 0: never with splits */
    bool empty_adds_zero; /* a split without columns adds 0; else what it does is not known */
    const char *proof;    /* a test, or where it was published */
};

/* The rows one by one; NULL past the last. */
const struct gemm_row *gemm_row_at(size_t i);

/* The row of a plan for K = k on a GPU of that compute capability; NULL, with a sentence in
 * `message`, where the order is not known. */
const struct gemm_row *gemm_find_row(int major, int minor, const struct gemm_plan *plan, int k,
                                     char message[GPU_MESSAGE_NBYTES]);

/* Whether BINADE_GEMM_ROW is set, and so what has not been run here may be. */
bool gemm_row_is_asked_for(void);

/* Whether products may be added so: not what was only published, unless BINADE_GEMM_ROW is set. */
bool gemm_row_is_allowed(const struct gemm_row *row);

/* ---- Splits ----------------------------------------------------------------------------------
 * k columns, 1 <= k <= 2^30, in nsplits >= 1 splits of as many columns each, ceil(k / nsplits)
 * rounded up to 64: the last that has columns may have fewer, and some at the end none.
 */

enum { GEMM_SPLIT_NCOLS = 64 };

struct gemm_range {
    int k0, k1;
};

int gemm_split_ncols(int k, int nsplits);

/* split < nsplits; [k, k) where it has no columns. */
struct gemm_range gemm_split_range(int k, int nsplits, int split);

#ifdef __cplusplus
}
#endif
#endif
