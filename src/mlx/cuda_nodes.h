// cuda_nodes.h - the nodes that r4_ops.h puts into MLX's graph for NVIDIA GPUs. Shapes and dtypes
// have been checked.
#pragma once

#include <functional>
#include <optional>

#include "mlx/r4_primitives.h"

namespace binade {

// How many weights one launch takes.
inline constexpr size_t cuda_matvec_most = 3, cuda_gather_most = 2;

// x [..., K] of one row times each weight.
Arrays cuda_matvec(const mx::array &x, const std::vector<R4Weight> &weights, mx::Stream s);

// What a launch does with its products besides writing them. Each rounds as MLX's own operations
// after the product do.
enum class CudaEpilogue {
    none,
    added, // r + product, of one weight
    gated, // act[product of the first weight] * product of the second
};

// x [..., 1, K] times the experts that rhs names, each weight of as many experts.
Arrays cuda_gather(const mx::array &x, const std::vector<R4Weight> &weights,
                   const std::optional<mx::array> &lhs, const mx::array &rhs, mx::Stream s);

// ids: int32, uint32 or int64
mx::array cuda_rows(const R4Weight &w, const mx::array &ids, mx::Stream s);

mx::array cuda_rebuild(const R4Weight &w, mx::Stream s);

// ---- Primitives --------------------------------------------------------------------------------

// What a weight is but for its arrays.
struct CudaPart {
    int experts, rows, cols;
    bool stacked;
    int row0, block_rows, base;

    bool operator==(const CudaPart &) const = default;
};

std::vector<CudaPart> cuda_parts_of(const std::vector<R4Weight> &weights);

// The last three inputs for each part are the weight's arrays.
class CudaPrimitive : public mx::Primitive {
  public:
    CudaPrimitive(mx::Stream s, std::vector<CudaPart> parts)
        : Primitive(s), parts_(std::move(parts)) {}

    void eval_cpu(const Arrays &, Arrays &) override;
    bool is_equivalent(const Primitive &other) const override;

  protected:
    // The weights, as an operation's arguments again.
    std::vector<R4Weight> weights(const Arrays &inputs) const;
    // The inputs before those of the weights.
    Arrays others(const Arrays &inputs) const;

    std::vector<CudaPart> parts_;
};

// inputs: x [..., K]; added: r [..., R]; gated: act [65536]; with the RMS norm of x: its weight [K]
class CudaMatvec : public CudaPrimitive {
  public:
    // eps: of the norm.
    CudaMatvec(mx::Stream s, std::vector<CudaPart> parts, CudaEpilogue epilogue,
               std::optional<float> eps)
        : CudaPrimitive(s, std::move(parts)), epilogue_(epilogue), eps_(eps) {}

    void eval_gpu(const Arrays &inputs, Arrays &outputs) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    bool is_equivalent(const Primitive &other) const override;
    const char *name() const override { return "R4CudaMatvec"; }
    std::pair<Arrays, std::vector<int>> vmap(const Arrays &inputs,
                                             const std::vector<int> &axes) override;
    Arrays jvp(const Arrays &primals, const Arrays &tangents,
               const std::vector<int> &argnums) override;
    Arrays vjp(const Arrays &primals, const Arrays &cotangents, const std::vector<int> &argnums,
               const Arrays &outputs) override;

  private:
    friend std::optional<mx::array> r4_fuse_add(const mx::array &, const mx::array &);
    friend std::optional<mx::array> r4_fuse_gated(const mx::array &, const mx::array &,
                                                  const mx::array &);
    CudaEpilogue epilogue_;
    std::optional<float> eps_;
};

// inputs: x [..., 1, K], lhs (no elements: item i takes row i / items_per_x of x), rhs; gated: act
class CudaGather : public CudaPrimitive {
  public:
    CudaGather(mx::Stream s, std::vector<CudaPart> parts, int items_per_x, CudaEpilogue epilogue)
        : CudaPrimitive(s, std::move(parts)), items_per_x_(items_per_x), epilogue_(epilogue) {}

    void eval_gpu(const Arrays &inputs, Arrays &outputs) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    bool is_equivalent(const Primitive &other) const override;
    const char *name() const override { return "R4CudaGather"; }
    Arrays jvp(const Arrays &primals, const Arrays &tangents,
               const std::vector<int> &argnums) override;
    Arrays vjp(const Arrays &primals, const Arrays &cotangents, const std::vector<int> &argnums,
               const Arrays &outputs) override;

  private:
    friend std::optional<mx::array> r4_fuse_gated(const mx::array &, const mx::array &,
                                                  const mx::array &);
    // MLX's own gather_mm on the rebuilt weight, as a function of x.
    std::function<Arrays(const Arrays &)> rebuilt(const Arrays &inputs, size_t part);

    int items_per_x_;
    CudaEpilogue epilogue_;
};

// inputs: ids, int32, uint32 or int64
class CudaRows : public CudaPrimitive {
  public:
    using CudaPrimitive::CudaPrimitive;

    void eval_gpu(const Arrays &inputs, Arrays &outputs) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    const char *name() const override { return "R4CudaRows"; }
    std::pair<Arrays, std::vector<int>> vmap(const Arrays &inputs,
                                             const std::vector<int> &axes) override;
};

// inputs: the weight only
class CudaRebuild : public CudaPrimitive {
  public:
    using CudaPrimitive::CudaPrimitive;

    void eval_gpu(const Arrays &inputs, Arrays &outputs) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    const char *name() const override { return "R4CudaRebuild"; }
};

} // namespace binade
