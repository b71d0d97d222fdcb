// cuda_gemm.h - several rows of x on NVIDIA GPUs: which products are computed from packed weights,
// in the order of cublasLt's own plan for them or of CUTLASS's for sorted experts, and their nodes.
#pragma once

#include <optional>
#include <string>

#include "mlx/cuda_nodes.h"
#include "mlx/r4_path.h"

namespace binade {

// What MLX would run for a product, and whether a kernel has its order and pays.
struct CudaGemmChoice {
    bool has_kernel;
    R4GemmOrder order;
    std::string why;
};

// y [m, n] = x [m, k] W^T, 1 < m. Remembered: BINADE_GEMM_ROW is to be set before the first
// product.
CudaGemmChoice cuda_gemm_choice(int m, int n, int k);

// A row of x for each sorted index of nexperts experts [n, k].
CudaGemmChoice cuda_experts_choice(int n, int k, int nexperts);

// The plan that cublasLt has for a product, and what is known of such plans, in a line: for
// reports.
BINADE_API std::string cuda_gemm_plan_text(int m, int n, int k);

// Nothing where x may not lie row by row, from a multiple of 16 bytes on, or is traced: MLX would
// take another kernel, or needs a gradient. Nothing but on the first GPU, which plans are asked
// for. Of experts, rows whose index is out of range are left as they are.
std::optional<mx::array> cuda_gemm(const mx::array &x, const R4Weight &w, const R4GemmOrder &order,
                                   mx::Stream s);
// One or two weights of as many experts, columns and rows, else nothing too.
std::optional<Arrays> cuda_gemm_experts(const mx::array &x, const std::vector<R4Weight> &weights,
                                        const mx::array &indices, const R4GemmOrder &order,
                                        mx::Stream s);

// inputs: x [..., K]
class CudaGemm : public CudaPrimitive {
  public:
    CudaGemm(mx::Stream s, std::vector<CudaPart> parts, const R4GemmOrder &order)
        : CudaPrimitive(s, std::move(parts)), order_(order) {}

    void eval_gpu(const Arrays &inputs, Arrays &outputs) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    bool is_equivalent(const Primitive &other) const override;
    const char *name() const override { return "R4CudaGemm"; }

  private:
    R4GemmOrder order_;
};

// inputs: x [..., 1, K], indices [...], uint32 and sorted, one for each row of x
class CudaGemmExperts : public CudaPrimitive {
  public:
    CudaGemmExperts(mx::Stream s, std::vector<CudaPart> parts, const R4GemmOrder &order)
        : CudaPrimitive(s, std::move(parts)), order_(order) {}

    void eval_gpu(const Arrays &inputs, Arrays &outputs) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    bool is_equivalent(const Primitive &other) const override;
    const char *name() const override { return "R4CudaGemmExperts"; }

  private:
    R4GemmOrder order_;
};

} // namespace binade
