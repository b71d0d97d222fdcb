// r4_metal.h - packed products on Apple GPUs: launches of src/metal's kernels as nodes of MLX's
// graph.
//
// MLX's metal_kernel takes a kernel's text, so the files travel inside the library, unchanged.
// Which kernel serves a product, and how it is launched, is planned in C (metal/metal_plan.h).
// Nodes have no gradient: whatever is part of a trace is rebuilt.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "metal/metal_plan.h"
#include "mlx/r4_primitives.h"

namespace binade {

// A launch: inputs in the order of the kernel's table, outputs of these shapes and dtypes.
struct MetalLaunch {
    const metal_plan &plan;
    const Arrays &inputs;
    const std::vector<mx::Shape> &shapes;
    const std::vector<mx::Dtype> &dtypes;
};
using MetalLauncher = std::function<Arrays(const MetalLaunch &)>;

// For tests: another thing that carries out launches, for the GPU that `architecture` names, on
// whatever device; {} undoes it.
BINADE_API void metal_set_launcher(const std::string &architecture, MetalLauncher launcher);

// Whether MLX's GPU, or what stands for it, is Apple's.
bool metal_is_available();
bool metal_is_emulated();
const metal_gpu &metal_device();

// MLX gives a kernel what has fewer elements in another address space.
inline constexpr int metal_few = 8;

// Arrays by the names of a kernel's table, without sizes.
using Named = std::map<std::string, mx::array>;

// Carries out a plan; `shapes` of outputs.
Arrays metal_launch(const metal_plan &plan, const Named &given,
                    const std::vector<mx::Shape> &shapes, mx::Stream s);

metal_product metal_product_of(int nrows, int cols, bool has_bias);

// Whether a weight had rather be rebuilt for so many rows of x, although a kernel serves them: from
// 129 rows on MLX's own GEMM is faster (measured by the published package on an M4 Max), if memory
// for the BF16 weight and 1 GiB are left in the working set that Metal recommends.
bool metal_prefers_rebuilding(int nrows, const R4Weight &w);

// Products of x with up to three weights; nullopt where weights are to be rebuilt. A bias comes
// with one weight.
std::optional<Arrays> metal_matmul(const mx::array &x, const std::vector<R4Weight> &weights,
                                   const std::optional<mx::array> &bias, mx::Stream s);

std::optional<Arrays> metal_gather(const mx::array &x, const std::vector<R4Weight> &weights,
                                   const std::optional<mx::array> &lhs, const mx::array &rhs,
                                   bool is_sorted, mx::Stream s);

// ids: int32, uint32 or int64
mx::array metal_rows(const R4Weight &w, const mx::array &ids, mx::Stream s);
mx::array metal_rebuild(const R4Weight &w, mx::Stream s);

} // namespace binade
