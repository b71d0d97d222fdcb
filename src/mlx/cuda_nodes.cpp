// cuda_nodes.cpp - see cuda_nodes.h: shapes and gradients. Evaluation is in cuda_eval.cpp.
#include "mlx/cuda_nodes.h"

#include <functional>
#include <stdexcept>
#include <string_view>
#include <typeinfo>

#include "mlx/cuda_launch.h"
#include "mlx/fast_primitives.h"
#include "mlx/ops.h"
#include "mlx/r4_operand.h"
#include "mlx/r4_path.h"
#include "mlx/transforms.h"

namespace binade {

namespace {

constexpr size_t narrays = 3; // of a weight

CudaPart part_of(const R4Weight &w) {
    return {w.experts, w.rows, w.cols, w.stacked, w.row0, w.block_rows, w.base};
}

Arrays with_weights(Arrays inputs, const std::vector<R4Weight> &weights) {
    for (const auto &w : weights)
        inputs = with_weight(std::move(inputs), w);
    return inputs;
}

[[noreturn]] void no_gradient(const char *operation) {
    throw std::invalid_argument(std::string("[") + operation +
                                "] Only x has a gradient: a packed weight cannot change.");
}

void check_only_x(const std::vector<int> &argnums, const char *operation) {
    if (argnums.size() != 1 || argnums[0] != 0) no_gradient(operation);
}

// Never freed, as MLX may be gone before it.
const mx::array &no_indices() {
    static const auto *none = new mx::array(std::initializer_list<int>{}, mx::uint32);
    return *none;
}

// The nodes of a product.
template <class P, class... Arguments>
Arrays make_nodes(mx::Stream s, const std::vector<R4Weight> &weights, Arrays others,
                  Arguments... arguments) {
    auto primitive = std::make_shared<P>(s, cuda_parts_of(weights), arguments...);
    auto inputs = with_weights(std::move(others), weights);
    auto shapes = primitive->output_shapes(inputs);
    std::vector<mx::Dtype> dtypes(shapes.size(), mx::bfloat16);
    return mx::array::make_arrays(std::move(shapes), dtypes, primitive, inputs);
}

// ---- Fusing ------------------------------------------------------------------------------------

// Not what a trace made, so that fused nodes need no gradients.
template <class P> P *unevaluated(const mx::array &a) {
    if (a.is_tracer() || is_evaluated(a)) return nullptr;
    return dynamic_cast<P *>(&a.primitive());
}

// Whether the kernels that stage x serve it: those for any x know no fusing.
bool fits_matvec(mx::Stream s, const R4Weight &w) {
    r4_grid grid;
    return r4_matvec_grid(&cuda_device(s), static_cast<unsigned>(w.cols), 1, &grid);
}

bool fits_gather(mx::Stream s, const R4Weight &w, size_t nproducts) {
    r4_grid grid;
    auto nrows = static_cast<size_t>(w.rows);
    return nproducts == 0 || r4_gather_grid(&cuda_device(s), static_cast<unsigned>(w.cols),
                                            nproducts / nrows, nrows, &grid);
}

// If x is MLX's RMS norm of a row, not computed yet, which the kernels compute in the same way: its
// eps. x is its input 0, its weight input 1.
std::optional<float> find_norm(const mx::array &x, mx::Stream s) {
    constexpr int most = 8192; // beyond, MLX adds in another order
    if (x.is_tracer() || is_evaluated(x) || std::string_view(x.primitive().name()) != "RMSNorm" ||
        x.primitive().stream() != s || !r4_is_trusted("fused"))
        return std::nullopt;
    const auto &row = x.inputs()[0], &weight = x.inputs()[1];
    if (row.dtype() != mx::bfloat16 || weight.dtype() != mx::bfloat16 || weight.ndim() != 1 ||
        weight.shape(0) != x.shape(-1) || x.shape(-1) > most || !begins_aligned(row))
        return std::nullopt;
    return std::get<1>(static_cast<const mx::fast::RMSNorm &>(x.primitive()).state());
}

} // namespace

std::vector<CudaPart> cuda_parts_of(const std::vector<R4Weight> &weights) {
    std::vector<CudaPart> parts;
    for (const auto &w : weights)
        parts.push_back(part_of(w));
    return parts;
}

std::optional<mx::array> r4_fuse_add(const mx::array &residual, const mx::array &product) {
    if (residual.is_tracer() || !r4_is_trusted("fused")) return std::nullopt;
    auto *p = unevaluated<CudaMatvec>(product);
    if (!p || p->epilogue_ != CudaEpilogue::none || p->parts_.size() > 1 || p->eps_)
        return std::nullopt;
    if (residual.dtype() != mx::bfloat16 || residual.shape() != product.shape() ||
        !fits_matvec(p->stream(), p->weights(product.inputs())[0]) ||
        !begins_aligned(product.inputs()[0]))
        return std::nullopt;
    return make_nodes<CudaMatvec>(p->stream(), p->weights(product.inputs()),
                                  {product.inputs()[0], residual}, CudaEpilogue::added,
                                  std::nullopt)[0];
}

std::optional<mx::array> r4_fuse_gated(const mx::array &gate, const mx::array &up,
                                       const mx::array &act) {
    if (!r4_is_trusted("fused") || act.dtype() != mx::bfloat16 || act.shape() != mx::Shape{65536} ||
        gate.shape() != up.shape() || !gate.has_primitive() || gate.inputs().empty() ||
        !begins_aligned(gate.inputs()[0]))
        return std::nullopt;
    // The weight of each, of a launch of its own or of several.
    auto weight_of = [](const auto *p, const mx::array &a) {
        return p->weights(a.inputs())[static_cast<size_t>(a.sibling_position())];
    };
    auto *g = unevaluated<CudaMatvec>(gate), *u = unevaluated<CudaMatvec>(up);
    if (g && u && g->epilogue_ == CudaEpilogue::none && u->epilogue_ == CudaEpilogue::none &&
        fits_matvec(g->stream(), weight_of(g, gate)) && g->eps_ == u->eps_ &&
        are_same(g->others(gate.inputs()), u->others(up.inputs()))) {
        auto others = g->others(gate.inputs());
        others.insert(others.begin() + 1, act);
        return make_nodes<CudaMatvec>(g->stream(), {weight_of(g, gate), weight_of(u, up)}, others,
                                      CudaEpilogue::gated, g->eps_)[0];
    }
    auto *gg = unevaluated<CudaGather>(gate), *gu = unevaluated<CudaGather>(up);
    if (gg && gu && gg->epilogue_ == CudaEpilogue::none && gu->epilogue_ == CudaEpilogue::none &&
        gg->items_per_x_ == gu->items_per_x_ &&
        weight_of(gg, gate).experts == weight_of(gu, up).experts &&
        fits_gather(gg->stream(), weight_of(gg, gate), gate.size()) &&
        are_same(gg->others(gate.inputs()), gu->others(up.inputs()))) {
        auto others = gg->others(gate.inputs());
        others.push_back(act);
        return make_nodes<CudaGather>(gg->stream(), {weight_of(gg, gate), weight_of(gu, up)},
                                      others, gg->items_per_x_, CudaEpilogue::gated)[0];
    }
    return std::nullopt;
}

// ---- Operations --------------------------------------------------------------------------------

Arrays cuda_matvec(const mx::array &x, const std::vector<R4Weight> &weights, mx::Stream s) {
    if (auto norm = find_norm(x, s); norm && fits_matvec(s, weights[0]))
        return make_nodes<CudaMatvec>(s, weights, {x.inputs()[0], x.inputs()[1]},
                                      CudaEpilogue::none, norm);
    return make_nodes<CudaMatvec>(s, weights, {x}, CudaEpilogue::none, std::nullopt);
}

Arrays cuda_gather(const mx::array &x, const std::vector<R4Weight> &weights,
                   const std::optional<mx::array> &lhs, const mx::array &rhs, mx::Stream s) {
    int per_batch = lhs ? 0 : items_per_batch(x, rhs);
    Arrays others{x};
    if (per_batch) {
        others.push_back(no_indices());
        others.push_back(mx::astype(rhs, mx::uint32, s));
    } else {
        auto indices = gather_indices(x, lhs, rhs, s);
        others.insert(others.end(), indices.begin(), indices.end());
    }
    return make_nodes<CudaGather>(s, weights, others, per_batch, CudaEpilogue::none);
}

mx::array cuda_rows(const R4Weight &w, const mx::array &ids, mx::Stream s) {
    auto shape = ids.shape();
    shape.push_back(w.cols);
    return mx::array(std::move(shape), mx::bfloat16,
                     std::make_shared<CudaRows>(s, cuda_parts_of({w})), with_weight({ids}, w));
}

mx::array cuda_rebuild(const R4Weight &w, mx::Stream s) {
    return mx::array(w.shape(), mx::bfloat16, std::make_shared<CudaRebuild>(s, cuda_parts_of({w})),
                     *w.arrays);
}

// ---- CudaPrimitive -----------------------------------------------------------------------------

void CudaPrimitive::eval_cpu(const Arrays &, Arrays &) {
    throw std::runtime_error(std::string("[") + name() + "] This runs on NVIDIA GPUs only.");
}

bool CudaPrimitive::is_equivalent(const Primitive &other) const {
    return parts_ == static_cast<const CudaPrimitive &>(other).parts_;
}

std::vector<R4Weight> CudaPrimitive::weights(const Arrays &inputs) const {
    std::vector<R4Weight> all;
    auto at = inputs.end() - static_cast<std::ptrdiff_t>(narrays * parts_.size());
    for (const auto &p : parts_) {
        all.push_back({std::make_shared<const Arrays>(at, at + narrays), R4Layout::cuda, p.experts,
                       p.rows, p.cols, p.stacked, p.row0, p.block_rows, p.base});
        at += narrays;
    }
    return all;
}

Arrays CudaPrimitive::others(const Arrays &inputs) const {
    return {inputs.begin(), inputs.end() - static_cast<std::ptrdiff_t>(narrays * parts_.size())};
}

// ---- CudaMatvec --------------------------------------------------------------------------------

std::vector<mx::Shape> CudaMatvec::output_shapes(const Arrays &inputs) {
    std::vector<mx::Shape> shapes;
    size_t nouts = epilogue_ == CudaEpilogue::none ? parts_.size() : 1;
    for (size_t i = 0; i < nouts; i++) {
        shapes.push_back(inputs[0].shape());
        shapes.back().back() = parts_[i].rows;
    }
    return shapes;
}

bool CudaMatvec::is_equivalent(const Primitive &other) const {
    return CudaPrimitive::is_equivalent(other) &&
           epilogue_ == static_cast<const CudaMatvec &>(other).epilogue_ &&
           eps_ == static_cast<const CudaMatvec &>(other).eps_;
}

// Summed as MLX would sum the gradients of separate products, the last one first.
Arrays CudaMatvec::vjp(const Arrays &primals, const Arrays &cotangents,
                       const std::vector<int> &argnums, const Arrays &) {
    check_only_x(argnums, "r4_matmul");
    auto all = weights(primals);
    std::optional<mx::array> sum;
    for (size_t i = all.size(); i-- > 0;) {
        auto part = mx::matmul(cotangents[i], cuda_rebuild(all[i], stream()), stream());
        sum = sum ? mx::add(*sum, part, stream()) : part;
    }
    return {*sum};
}

Arrays CudaMatvec::jvp(const Arrays &primals, const Arrays &tangents,
                       const std::vector<int> &argnums) {
    check_only_x(argnums, "r4_matmul");
    return r4_matmuls(tangents[0], weights(primals), stream());
}

std::pair<Arrays, std::vector<int>> CudaMatvec::vmap(const Arrays &inputs,
                                                     const std::vector<int> &axes) {
    for (size_t i = 1; i < axes.size(); i++) {
        if (axes[i] >= 0) throw std::invalid_argument("[r4_matmul] Only x can be mapped over.");
    }
    auto x = mx::moveaxis(inputs[0], axes[0], 0, stream());
    return {r4_matmuls(x, weights(inputs), stream()), std::vector<int>(parts_.size(), 0)};
}

// ---- CudaGather --------------------------------------------------------------------------------

std::vector<mx::Shape> CudaGather::output_shapes(const Arrays &inputs) {
    std::vector<mx::Shape> shapes;
    size_t nouts = epilogue_ == CudaEpilogue::none ? parts_.size() : 1;
    for (size_t i = 0; i < nouts; i++) {
        shapes.push_back(inputs[2].shape());
        shapes.back().insert(shapes.back().end(), {1, parts_[i].rows});
    }
    return shapes;
}

bool CudaGather::is_equivalent(const Primitive &other) const {
    const auto &gather = static_cast<const CudaGather &>(other);
    return CudaPrimitive::is_equivalent(other) && items_per_x_ == gather.items_per_x_ &&
           epilogue_ == gather.epilogue_;
}

std::function<Arrays(const Arrays &)> CudaGather::rebuilt(const Arrays &inputs, size_t part) {
    auto w = weights(inputs)[part];
    std::optional<mx::array> lhs;
    if (!items_per_x_) lhs = inputs[1];
    return [w, lhs, rhs = inputs[2], s = stream()](const Arrays &x) -> Arrays {
        auto transposed = mx::swapaxes(cuda_rebuild(w, s), -1, -2, s);
        return {mx::gather_mm(x[0], transposed, lhs, rhs, false, s)};
    };
}

Arrays CudaGather::vjp(const Arrays &primals, const Arrays &cotangents,
                       const std::vector<int> &argnums, const Arrays &) {
    check_only_x(argnums, "r4_gather_mm");
    std::optional<mx::array> sum;
    for (size_t i = parts_.size(); i-- > 0;) {
        auto part = mx::vjp(rebuilt(primals, i), {primals[0]}, {cotangents[i]}).second[0];
        sum = sum ? mx::add(*sum, part, stream()) : part;
    }
    return {*sum};
}

Arrays CudaGather::jvp(const Arrays &primals, const Arrays &tangents,
                       const std::vector<int> &argnums) {
    check_only_x(argnums, "r4_gather_mm");
    std::optional<mx::array> lhs;
    if (!items_per_x_) lhs = primals[1];
    return r4_gather_mms(tangents[0], weights(primals), lhs, primals[2], false, stream());
}

// ---- CudaRows, CudaRebuild ---------------------------------------------------------------------

std::vector<mx::Shape> CudaRows::output_shapes(const Arrays &inputs) {
    auto shape = inputs[0].shape();
    shape.push_back(parts_[0].cols);
    return {shape};
}

std::pair<Arrays, std::vector<int>> CudaRows::vmap(const Arrays &inputs,
                                                   const std::vector<int> &axes) {
    return {{cuda_rows(weights(inputs)[0], inputs[0], stream())}, {axes[0]}};
}

std::vector<mx::Shape> CudaRebuild::output_shapes(const Arrays &) {
    const auto &p = parts_[0];
    return {p.stacked ? mx::Shape{p.experts, p.rows, p.cols} : mx::Shape{p.rows, p.cols}};
}

} // namespace binade
