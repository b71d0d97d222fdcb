// r4_primitives.h - the nodes that r4_ops.h puts into MLX's graph for the CPU.
//
// The last four inputs of each are the weight's arrays, as with_weight adds them; all inputs are
// row-contiguous.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mlx/primitives.h"
#include "mlx/r4_ops.h"

namespace binade {

using Arrays = std::vector<mx::array>;

// The last four inputs: groups, escapes, escape_starts, exponents.
inline const mx::array *weight_arrays(const Arrays &inputs) {
    return inputs.data() + inputs.size() - 4;
}

struct R4Dims {
    int experts, rows, cols;
    bool stacked;

    bool operator==(const R4Dims &) const = default;
};

inline R4Dims dims_of(const R4Weight &w) {
    return {w.experts, w.rows, w.cols, w.stacked};
}

inline Arrays with_weight(Arrays inputs, const R4Weight &w) {
    inputs.insert(inputs.end(), w.arrays->begin(), w.arrays->end());
    return inputs;
}

// The indices of MLX's gather_mm, uint32 and contiguous: without lhs the batches of x in their
// order; both broadcast together.
Arrays gather_indices(const mx::array &x, const std::optional<mx::array> &lhs, const mx::array &rhs,
                      mx::Stream s);

// Products for which each batch of x meets the next few experts, as mlx-lm asks for them, need no
// indices of x: returns how many, or 0 if they are another kind.
int items_per_batch(const mx::array &x, const mx::array &rhs);

class R4Primitive : public mx::UnaryPrimitive {
  public:
    R4Primitive(mx::Stream stream, R4Dims dims) : UnaryPrimitive(stream), dims_(dims) {}

    void eval_gpu(const Arrays &, mx::array &) override;
    // Two of one type on the same inputs.
    bool is_equivalent(const Primitive &other) const override;

  protected:
    // The weight behind the last four inputs, as an operation's argument again.
    R4Weight weight(const Arrays &inputs) const;

    R4Dims dims_;
};

// inputs: x [..., K], bias [R] if has_bias
class R4Matmul : public R4Primitive {
  public:
    R4Matmul(mx::Stream stream, R4Dims dims, bool has_bias)
        : R4Primitive(stream, dims), has_bias_(has_bias) {}

    void eval_cpu(const Arrays &inputs, mx::array &out) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    bool is_equivalent(const Primitive &other) const override;
    const char *name() const override { return "R4Matmul"; }
    std::pair<Arrays, std::vector<int>> vmap(const Arrays &inputs,
                                             const std::vector<int> &axes) override;
    Arrays jvp(const Arrays &primals, const Arrays &tangents,
               const std::vector<int> &argnums) override;
    Arrays vjp(const Arrays &primals, const Arrays &cotangents, const std::vector<int> &argnums,
               const Arrays &outputs) override;

  private:
    bool has_bias_;
};

// inputs: x [..., M, K], lhs and rhs indices of one shape, uint32
class R4GatherMM : public R4Primitive {
  public:
    using R4Primitive::R4Primitive;

    void eval_cpu(const Arrays &inputs, mx::array &out) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    const char *name() const override { return "R4GatherMM"; }
    Arrays jvp(const Arrays &primals, const Arrays &tangents,
               const std::vector<int> &argnums) override;
    Arrays vjp(const Arrays &primals, const Arrays &cotangents, const std::vector<int> &argnums,
               const Arrays &outputs) override;
};

// The gradient of R4GatherMM before it is summed by batch: dy_i W[e_i], [..., M, K].
// inputs: dy [..., M, R], rhs indices [...], uint32
class R4GatherBack : public R4Primitive {
  public:
    using R4Primitive::R4Primitive;

    void eval_cpu(const Arrays &inputs, mx::array &out) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    const char *name() const override { return "R4GatherBack"; }
};

// inputs: ids, int64
class R4Rows : public R4Primitive {
  public:
    using R4Primitive::R4Primitive;

    void eval_cpu(const Arrays &inputs, mx::array &out) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    const char *name() const override { return "R4Rows"; }
    std::pair<Arrays, std::vector<int>> vmap(const Arrays &inputs,
                                             const std::vector<int> &axes) override;
};

// inputs: the weight only
class R4Rebuild : public R4Primitive {
  public:
    using R4Primitive::R4Primitive;

    void eval_cpu(const Arrays &inputs, mx::array &out) override;
    std::vector<mx::Shape> output_shapes(const Arrays &inputs) override;
    const char *name() const override { return "R4Rebuild"; }
};

} // namespace binade
