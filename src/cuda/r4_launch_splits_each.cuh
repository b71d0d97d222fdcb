/* r4_launch_splits_each.cuh - the kernels of R4_FILE for each number of splits of K that kernels on
 * Hopper have, for r4_launch_gemm_all.cuh. */
#define R4_NSPLITS 1
#include R4_FILE
#undef R4_NSPLITS
#define R4_NSPLITS 2
#include R4_FILE
#undef R4_NSPLITS
#define R4_NSPLITS 3
#include R4_FILE
#undef R4_NSPLITS
#define R4_NSPLITS 4
#include R4_FILE
#undef R4_NSPLITS
#define R4_NSPLITS 5
#include R4_FILE
#undef R4_NSPLITS
