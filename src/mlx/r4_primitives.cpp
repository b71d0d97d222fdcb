// r4_primitives.cpp - see r4_primitives.h: shapes and gradients. Evaluation is in r4_eval.cpp.
#include "mlx/r4_primitives.h"

#include <stdexcept>
#include <typeinfo>

#include "mlx/ops.h"
#include "mlx/r4_path.h"

namespace binade {

namespace {

[[noreturn]] void no_gradient(const char *operation) {
    throw std::invalid_argument(
        std::string("[") + operation +
        "] Only x (and a bias) has a gradient: a packed weight cannot change.");
}

// The sum over all but the last dimension, as MLX sums the gradient of a broadcast bias.
mx::array sum_rows(const mx::array &dy, mx::Stream s) {
    if (dy.ndim() == 1) return dy;
    return mx::sum(dy.ndim() == 2 ? dy : mx::flatten(dy, 0, -2, s), 0, false, s);
}

} // namespace

void R4Primitive::eval_gpu(const Arrays &, mx::array &) {
    throw std::runtime_error(std::string("[") + name() + "] This runs on the CPU only.");
}

bool R4Primitive::is_equivalent(const Primitive &other) const {
    return dims_ == static_cast<const R4Primitive &>(other).dims_;
}

R4Weight R4Primitive::weight(const Arrays &inputs) const {
    auto arrays = weight_arrays(inputs);
    return {std::make_shared<const Arrays>(arrays, arrays + 4),
            R4Layout::cpu,
            dims_.experts,
            dims_.rows,
            dims_.cols,
            dims_.stacked};
}

// ---- R4Matmul ---------------------------------------------------------------------------------

std::vector<mx::Shape> R4Matmul::output_shapes(const Arrays &inputs) {
    auto shape = inputs[0].shape();
    shape.back() = dims_.rows;
    return {shape};
}

bool R4Matmul::is_equivalent(const Primitive &other) const {
    return R4Primitive::is_equivalent(other) &&
           has_bias_ == static_cast<const R4Matmul &>(other).has_bias_;
}

Arrays R4Matmul::vjp(const Arrays &primals, const Arrays &cotangents,
                     const std::vector<int> &argnums, const Arrays &) {
    Arrays grads;
    for (int arg : argnums) {
        if (arg == 0)
            grads.push_back(
                mx::matmul(cotangents[0], r4_rebuild(weight(primals), stream()), stream()));
        else if (arg == 1 && has_bias_)
            grads.push_back(sum_rows(cotangents[0], stream()));
        else
            no_gradient("r4_matmul");
    }
    return grads;
}

Arrays R4Matmul::jvp(const Arrays &primals, const Arrays &tangents,
                     const std::vector<int> &argnums) {
    std::optional<mx::array> sum;
    for (size_t i = 0; i < argnums.size(); i++) {
        if (argnums[i] > static_cast<int>(has_bias_)) no_gradient("r4_matmul");
        auto part = argnums[i] == 0
                        ? r4_matmul(tangents[i], weight(primals), std::nullopt, stream())
                        : mx::broadcast_to(tangents[i], output_shapes(primals)[0], stream());
        sum = sum ? mx::add(*sum, part, stream()) : part;
    }
    return {*sum};
}

std::pair<Arrays, std::vector<int>> R4Matmul::vmap(const Arrays &inputs,
                                                   const std::vector<int> &axes) {
    for (size_t i = 1; i < axes.size(); i++) {
        if (axes[i] >= 0) throw std::invalid_argument("[r4_matmul] Only x can be mapped over.");
    }
    std::optional<mx::array> bias;
    if (has_bias_) bias = inputs[1];
    auto x = mx::moveaxis(inputs[0], axes[0], 0, stream());
    return {{r4_matmul(x, weight(inputs), bias, stream())}, {0}};
}

// ---- R4GatherMM -------------------------------------------------------------------------------

std::vector<mx::Shape> R4GatherMM::output_shapes(const Arrays &inputs) {
    auto shape = inputs[1].shape();
    shape.push_back(inputs[0].shape(-2));
    shape.push_back(dims_.rows);
    return {shape};
}

Arrays R4GatherMM::vjp(const Arrays &primals, const Arrays &cotangents,
                       const std::vector<int> &argnums, const Arrays &) {
    const auto &x = primals[0], &lhs = primals[1], &rhs = primals[2];
    auto s = stream();
    if (argnums.size() != 1 || argnums[0] != 0) no_gradient("r4_gather_mm");
    r4_check_may_rebuild();
    int m = x.shape(-2), n = static_cast<int>(rhs.size());
    auto shape = rhs.shape();
    shape.insert(shape.end(), {m, dims_.cols});
    Arrays inputs{mx::contiguous(cotangents[0], false, s), rhs};
    inputs.insert(inputs.end(), primals.end() - 4, primals.end());
    auto products = mx::array(std::move(shape), mx::bfloat16,
                              std::make_shared<R4GatherBack>(s, dims_), std::move(inputs));
    // A batch of x gets the sum over all indices that name it.
    auto zeros = mx::flatten(mx::zeros_like(x, s), 0, -3, s);
    auto updates = mx::reshape(products, {n, 1, m, dims_.cols}, s);
    auto sums = mx::scatter_add(zeros, mx::reshape(lhs, {n}, s), updates, 0, s);
    return {mx::reshape(sums, x.shape(), s)};
}

Arrays R4GatherMM::jvp(const Arrays &primals, const Arrays &tangents,
                       const std::vector<int> &argnums) {
    if (argnums.size() != 1 || argnums[0] != 0) no_gradient("r4_gather_mm");
    return {r4_gather_mm(tangents[0], weight(primals), primals[1], primals[2], false, stream())};
}

std::vector<mx::Shape> R4GatherBack::output_shapes(const Arrays &inputs) {
    auto shape = inputs[0].shape();
    shape.back() = dims_.cols;
    return {shape};
}

// ---- R4Rows, R4Rebuild ------------------------------------------------------------------------

std::vector<mx::Shape> R4Rows::output_shapes(const Arrays &inputs) {
    auto shape = inputs[0].shape();
    shape.push_back(dims_.cols);
    return {shape};
}

std::pair<Arrays, std::vector<int>> R4Rows::vmap(const Arrays &inputs,
                                                 const std::vector<int> &axes) {
    return {{r4_rows(weight(inputs), inputs[0], stream())}, {axes[0]}};
}

std::vector<mx::Shape> R4Rebuild::output_shapes(const Arrays &) {
    return {dims_.stacked ? mx::Shape{dims_.experts, dims_.rows, dims_.cols}
                          : mx::Shape{dims_.rows, dims_.cols}};
}

} // namespace binade
