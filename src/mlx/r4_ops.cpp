// r4_ops.cpp - see r4_ops.h.
#include "mlx/r4_ops.h"

#include <atomic>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "mlx/ops.h"
#include "mlx/r4_primitives.h"
#include "mlx/version.h"

namespace binade {

namespace {

std::atomic<bool> rebuild_forbidden{false};

// Products on a GPU need kernels of their own; none are built yet.
mx::Stream stream_with_kernels(mx::StreamOrDevice s, const char *operation) {
    auto stream = mx::to_stream(s);
    if (stream.device != mx::Device::cpu) {
        std::ostringstream text;
        text << "[" << operation
             << "] Packed weights have kernels for the CPU only so far; choose it with "
             << "mx.set_default_device(mx.cpu).";
        throw std::invalid_argument(text.str());
    }
    return stream;
}

bool uses_kernels(const mx::array &x, const std::optional<mx::array> &bias) {
    return r4_mlx_is_proven() && x.dtype() == mx::bfloat16 &&
           (!bias || bias->dtype() == mx::bfloat16);
}

Arrays with_weight(Arrays inputs, const R4Weight &w) {
    inputs.insert(inputs.end(), {w.groups, w.escapes, w.escape_starts, w.exponents});
    return inputs;
}

R4Dims dims_of(const R4Weight &w) {
    return {w.experts, w.rows, w.cols, w.stacked};
}

void check_columns(const char *operation, const mx::array &x, const R4Weight &w) {
    if (x.ndim() == 0 || x.shape(-1) != w.cols) {
        std::ostringstream text;
        text << "[" << operation << "] x of shape " << x.shape()
             << " meets a packed weight of shape " << w.shape()
             << ": the last dimensions must be equal.";
        throw std::invalid_argument(text.str());
    }
}

void check_matrix(const char *operation, const R4Weight &w) {
    if (w.stacked)
        throw std::invalid_argument(
            std::string("[") + operation +
            "] The packed weight is a stack of experts, a matrix is needed.");
}

void check_integers(const char *operation, const mx::array &ids) {
    if (!mx::issubdtype(ids.dtype(), mx::integer))
        throw std::invalid_argument(std::string("[") + operation + "] Indices must be integers.");
}

// How many matrices x [..., M, K] holds.
int batches_of(const mx::array &x) {
    return std::accumulate(x.shape().begin(), x.shape().end() - 2, 1, std::multiplies<int>());
}

// The indices of MLX's gather_mm: without lhs_indices the batches of x in their order; both
// broadcast together.
Arrays gather_indices(const mx::array &x, const std::optional<mx::array> &lhs, const mx::array &rhs,
                      mx::Stream s) {
    mx::Shape batch(x.shape().begin(), x.shape().end() - 2);
    auto rows = lhs ? *lhs : mx::reshape(mx::arange(batches_of(x), mx::uint32, s), batch, s);
    auto indices = mx::broadcast_arrays({rows, rhs}, s);
    for (auto &i : indices)
        i = mx::contiguous(mx::astype(i, mx::uint32, s), false, s);
    return indices;
}

// MLX's own operation where its CPU backend has one, else a product for each index, which takes
// the memory of as many experts.
mx::array gather_rebuilt(const mx::array &x, const R4Weight &w, const std::optional<mx::array> &lhs,
                         const mx::array &rhs, bool sorted, mx::Stream s) {
    auto whole = mx::reshape(r4_rebuild(w, s), {w.experts, w.rows, w.cols}, s);
    if (x.dtype() != mx::bfloat16)
        return mx::gather_mm(x, mx::swapaxes(whole, -1, -2, s), lhs, rhs, sorted, s);
    auto indices = gather_indices(x, lhs, rhs, s);
    int m = x.shape(-2), nbatches = batches_of(x);
    auto batches = mx::take(mx::reshape(x, {nbatches, m, w.cols}, s), indices[0], 0, s);
    auto experts = mx::take(whole, indices[1], 0, s);
    return mx::matmul(batches, mx::swapaxes(experts, -1, -2, s), s);
}

} // namespace

mx::Shape R4Weight::shape() const {
    return stacked ? mx::Shape{experts, rows, cols} : mx::Shape{rows, cols};
}

size_t R4Weight::nbytes() const {
    return groups.nbytes() + escapes.nbytes() + escape_starts.nbytes() + exponents.nbytes();
}

bool r4_mlx_is_proven() {
#ifdef __APPLE__
    return false;
#else
    static const bool proven = std::string(mx::version()) == "0.32.2";
    return proven;
#endif
}

void r4_forbid_rebuild(bool forbid) {
    rebuild_forbidden = forbid;
}

void check_may_rebuild() {
    if (rebuild_forbidden)
        throw std::runtime_error(
            "[r4_rebuild] Rebuilding is forbidden here, and no kernel serves this product.");
}

mx::array r4_rebuild(const R4Weight &w, mx::StreamOrDevice s) {
    check_may_rebuild();
    auto stream = stream_with_kernels(s, "r4_rebuild");
    return mx::array(w.shape(), mx::bfloat16, std::make_shared<R4Rebuild>(stream, dims_of(w)),
                     with_weight({}, w));
}

mx::array r4_matmul(const mx::array &x, const R4Weight &w, const std::optional<mx::array> &bias,
                    mx::StreamOrDevice s) {
    check_matrix("r4_matmul", w);
    check_columns("r4_matmul", x, w);
    if (bias && (bias->ndim() != 1 || bias->shape(0) != w.rows))
        throw std::invalid_argument(
            "[r4_matmul] The bias must have one value for each row of the weight.");
    auto stream = stream_with_kernels(s, "r4_matmul");
    if (!uses_kernels(x, bias)) {
        auto transposed = mx::transpose(r4_rebuild(w, stream), stream);
        return bias ? mx::addmm(*bias, x, transposed, 1.0f, 1.0f, stream)
                    : mx::matmul(x, transposed, stream);
    }
    auto shape = x.shape();
    shape.back() = w.rows;
    Arrays inputs{mx::contiguous(x, false, stream)};
    if (bias) inputs.push_back(mx::contiguous(*bias, false, stream));
    return mx::array(std::move(shape), mx::bfloat16,
                     std::make_shared<R4Matmul>(stream, dims_of(w), bias.has_value()),
                     with_weight(std::move(inputs), w));
}

mx::array r4_gather_mm(const mx::array &x, const R4Weight &w,
                       const std::optional<mx::array> &lhs_indices, const mx::array &rhs_indices,
                       bool sorted_indices, mx::StreamOrDevice s) {
    check_columns("r4_gather_mm", x, w);
    if (x.ndim() < 2)
        throw std::invalid_argument("[r4_gather_mm] x needs at least two dimensions.");
    check_integers("r4_gather_mm", rhs_indices);
    if (lhs_indices) check_integers("r4_gather_mm", *lhs_indices);
    auto stream = stream_with_kernels(s, "r4_gather_mm");
    if (!uses_kernels(x, std::nullopt))
        return gather_rebuilt(x, w, lhs_indices, rhs_indices, sorted_indices, stream);
    auto indices = gather_indices(x, lhs_indices, rhs_indices, stream);
    auto shape = indices[0].shape();
    shape.push_back(x.shape(-2));
    shape.push_back(w.rows);
    return mx::array(std::move(shape), mx::bfloat16,
                     std::make_shared<R4GatherMM>(stream, dims_of(w)),
                     with_weight({mx::contiguous(x, false, stream), indices[0], indices[1]}, w));
}

mx::array r4_rows(const R4Weight &w, const mx::array &ids, mx::StreamOrDevice s) {
    check_matrix("r4_rows", w);
    check_integers("r4_rows", ids);
    auto stream = stream_with_kernels(s, "r4_rows");
    auto wide = mx::contiguous(mx::astype(ids, mx::int64, stream), false, stream);
    auto shape = ids.shape();
    shape.push_back(w.cols);
    return mx::array(std::move(shape), mx::bfloat16, std::make_shared<R4Rows>(stream, dims_of(w)),
                     with_weight({wide}, w));
}

} // namespace binade
