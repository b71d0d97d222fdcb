/* gemm_plan.h - how cuBLASLt would multiply several rows of x with W^T, asked as MLX 0.32.2 asks.
 *
 * MLX takes the first plan that cuBLASLt's heuristic gives; the same question to the same library
 * has the same answer. gemm_table.h says in which order such a plan adds. cuBLASLt is found at run
 * time, so that one build serves machines without it.
 */
#ifndef BINADE_CUDA_GEMM_PLAN_H
#define BINADE_CUDA_GEMM_PLAN_H

#include <stddef.h>

#include "cuda/gpu_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is configured in the plan: cuBLASLt's own numbers. */
struct gemm_plan {
    int algorithm;
    int tile, stages;
    int nsplits, reduction; /* of K, and how their sums are added: enum gemm_reduction */
    int swizzle, custom;
    int inner_shape, cluster_shape;
    size_t workspace_nbytes;
};

/* Asks the cuBLASLt of this process about one device, and remembers the answers. */
struct gemm_planner;

/* mlx_folder: where libmlx is (dladdr of one of its symbols tells), or NULL. Of the libraries that
 * a process may hold, the one is taken that libmlx is linked to; then one that is loaded; then the
 * one that MLX's wheel would load, of CUDA 13 or 12; then the system's. major: of the device's
 * compute capability. Needs no GPU. Returns 0, or -1 with a sentence in `message`. */
int gemm_planner_open(const char *mlx_folder, int major, struct gemm_planner **planner,
                      char message[GPU_MESSAGE_NBYTES]);

/* The plan of y [m, n] = x [m, k] W^T, W [n, k]: all of BF16 and row-contiguous, no bias. The
 * planner's device has to be the current one: the first call makes a handle there. Threads may
 * share a planner; a shape that was asked before costs a look at a table. Returns 0, or -1 with a
 * sentence in `message`, after which the same may be asked again. */
int gemm_planner_ask(struct gemm_planner *planner, int m, int n, int k, struct gemm_plan *plan,
                     char message[GPU_MESSAGE_NBYTES]);

/* NULL is none. The device has to be the current one. */
void gemm_planner_close(struct gemm_planner *planner);

#ifdef __cplusplus
}
#endif
#endif
