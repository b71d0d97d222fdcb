// r4_path.h - which kernel serves a product, or why none does; and what has run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "r4_ops.h"

namespace binade {

// What a product meets, as far as the choice depends on it.
struct R4Case {
    R4Layout layout;
    int nrows;                     // of x, all its leading dimensions
    int rows, cols;                // of the weight
    bool has_bias, is_bf16 = true; // x, and the bias
    bool is_sorted = false;        // gathered products: MLX is promised sorted experts
    int experts = 1;
};

// How a kernel for several rows of x adds on CUDA: enum r4_gemm_way, and of K's splits how many and
// enum gemm_reduction.
struct R4GemmOrder {
    int way = 0, nsplits = 1, reduction = 0;

    bool operator==(const R4GemmOrder &) const = default;
};

struct R4Path {
    std::string kernel; // "cpu", "matvec", "gemm", "gather", "rebuild"; on Metal "wide" too
    std::string reason;
    // Rebuilding is all there is for such a product, and no failure.
    bool is_planned = true;
    R4GemmOrder order = {}; // of "gemm" on CUDA
};

BINADE_API R4Path r4_matmul_path(const R4Case &c);
// nrows: those of each item.
BINADE_API R4Path r4_gather_path(const R4Case &c);

// A kernel ("cpu", "matvec", "wide", "gemm", "gather", "rows") whose self-check failed on this
// machine: from now on what it would serve is rebuilt. "fused": products stay, and MLX does what
// comes before and after.
BINADE_API void r4_distrust(const std::string &kernel);
bool r4_is_trusted(const std::string &kernel);

// Whether the MLX that runs is the version whose order of sums the kernels are proven to have.
BINADE_API bool r4_mlx_is_proven();

// Makes it an error, when it is asked for, to rebuild where a kernel should serve, for tests: equal
// bits by rebuilding would prove nothing. BINADE_FORBID_REBUILD=1 in the environment does the same.
BINADE_API void r4_forbid_rebuild(bool forbid);

// Throws where r4_forbid_rebuild forbids it.
void r4_check_may_rebuild();

// How often each operation was served by kernels, and how often a weight was rebuilt, in this
// process: counted when it is evaluated, on Metal when it is asked for. A gradient counts as
// rebuild.
struct R4Counts {
    uint64_t matmul, gather_mm, rows, rebuild;
};
BINADE_API R4Counts r4_counts();

// The same by kernel and shape: x [nrows, cols] and the weight's rows. Of a launch for several
// weights each counts.
struct R4Served {
    std::string operation, kernel;
    int nrows, rows, cols;
    uint64_t count;
};
BINADE_API std::vector<R4Served> r4_served();
BINADE_API void r4_reset_counts();

// One more; `operation` is a member's name of R4Counts. Both names are literals.
void r4_count(const char *operation, const char *kernel, int nrows, int rows, int cols);

} // namespace binade
