// r4_ops.cpp - see r4_ops.h: shapes are checked, a path is chosen, nodes are made.
#include "mlx/r4_ops.h"

#include <numeric>
#include <sstream>
#include <stdexcept>

#include "mlx/cuda_gemm.h"
#include "mlx/ops.h"
#include "mlx/r4_metal.h"
#include "mlx/r4_path.h"
#include "mlx/r4_primitives.h"

namespace binade {

namespace {

// ---- What is asked of the operands -------------------------------------------------------------

// A weight lies in memory as one kind of device wants it.
mx::Stream stream_for(const R4Weight &w, mx::StreamOrDevice s, const char *operation) {
    auto stream = mx::to_stream(s);
    bool on_cpu = stream.device == mx::Device::cpu, for_cpu = w.layout == R4Layout::cpu;
    if (on_cpu != for_cpu && !metal_is_emulated()) {
        std::ostringstream text;
        text << "[" << operation << "] The packed weight was made for "
             << (for_cpu ? "the CPU" : "a GPU") << ", the operation is to run on "
             << (on_cpu ? "the CPU" : "a GPU")
             << "; choose the device before weights are loaded, with mx.set_default_device.";
        throw std::invalid_argument(text.str());
    }
    return stream;
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

bool is_bf16(const mx::array &x, const std::optional<mx::array> &bias = std::nullopt) {
    return x.dtype() == mx::bfloat16 && (!bias || bias->dtype() == mx::bfloat16);
}

int product_of(const mx::Shape &shape, size_t nbehind) {
    return std::accumulate(shape.begin(), shape.end() - nbehind, 1, std::multiplies<int>());
}

// ---- Rebuilding --------------------------------------------------------------------------------

bool is_empty(const R4Weight &w) {
    return w.experts == 0 || w.rows == 0 || w.cols == 0;
}

mx::array rebuilt(const R4Weight &w, mx::Stream s) {
    if (is_empty(w)) return mx::zeros(w.shape(), mx::bfloat16, s);
    if (w.layout == R4Layout::cuda) return cuda_rebuild(w, s);
    if (w.layout == R4Layout::metal) return metal_rebuild(w, s);
    return mx::array(w.shape(), mx::bfloat16, std::make_shared<R4Rebuild>(s, dims_of(w)),
                     *w.arrays);
}

// The weight for a product that takes this path.
mx::array rebuilt(const R4Weight &w, const R4Path &path, mx::Stream s) {
    if (!path.is_planned) r4_check_may_rebuild();
    return rebuilt(w, s);
}

// MLX's own operation; where its CPU backend has none, a product for each index, which takes the
// memory of as many experts.
mx::array gather_rebuilt(const mx::array &x, const R4Weight &w, const R4Path &path,
                         const std::optional<mx::array> &lhs, const mx::array &rhs, bool sorted,
                         mx::Stream s) {
    auto whole = mx::reshape(rebuilt(w, path, s), {w.experts, w.rows, w.cols}, s);
    if (x.dtype() != mx::bfloat16 || w.layout != R4Layout::cpu)
        return mx::gather_mm(x, mx::swapaxes(whole, -1, -2, s), lhs, rhs, sorted, s);
    auto indices = gather_indices(x, lhs, rhs, s);
    int m = x.shape(-2);
    auto rows = mx::reshape(x, {product_of(x.shape(), 2), m, w.cols}, s);
    auto batches = mx::take(rows, indices[0], 0, s);
    auto experts = mx::take(whole, indices[1], 0, s);
    return mx::matmul(batches, mx::swapaxes(experts, -1, -2, s), s);
}

// ---- Paths -------------------------------------------------------------------------------------

R4Path path_of_matmul(const mx::array &x, const R4Weight &w,
                      const std::optional<mx::array> &bias = std::nullopt) {
    return r4_matmul_path({.layout = w.layout,
                           .nrows = product_of(x.shape(), 1),
                           .rows = w.rows,
                           .cols = w.cols,
                           .has_bias = bias.has_value(),
                           .is_bf16 = is_bf16(x, bias)});
}

R4Path path_of_gather(const mx::array &x, const R4Weight &w, bool has_lhs, bool sorted) {
    return r4_gather_path({.layout = w.layout,
                           .nrows = x.shape(-2),
                           .rows = w.rows,
                           .cols = w.cols,
                           .has_bias = false,
                           .is_bf16 = is_bf16(x),
                           .is_sorted = sorted && !has_lhs,
                           .experts = w.experts});
}

void check_gather(const mx::array &x, const R4Weight &w, const std::optional<mx::array> &lhs,
                  const mx::array &rhs) {
    check_columns("r4_gather_mm", x, w);
    if (x.ndim() < 2)
        throw std::invalid_argument("[r4_gather_mm] x needs at least two dimensions.");
    check_integers("r4_gather_mm", rhs);
    if (lhs) check_integers("r4_gather_mm", *lhs);
}

// Whether a kernel takes several weights: on NVIDIA GPUs those for one row of x. Sorted experts are
// looked at apart.
bool takes_several(const R4Path &path, const R4Weight &w) {
    if (w.layout == R4Layout::cuda) return path.kernel == "matvec" || path.kernel == "gather";
    return path.kernel != "cpu" && path.kernel != "rebuild";
}

bool share_kernel(const R4Weight &a, const R4Weight &b) {
    return a.layout == b.layout && a.experts == b.experts && a.cols == b.cols;
}

} // namespace

// ---- Gathering --------------------------------------------------------------------------------

Arrays gather_indices(const mx::array &x, const std::optional<mx::array> &lhs, const mx::array &rhs,
                      mx::Stream s) {
    mx::Shape batch(x.shape().begin(), x.shape().end() - 2);
    auto rows =
        lhs ? *lhs : mx::reshape(mx::arange(product_of(x.shape(), 2), mx::uint32, s), batch, s);
    auto indices = mx::broadcast_arrays({rows, rhs}, s);
    for (auto &i : indices)
        i = mx::contiguous(mx::astype(i, mx::uint32, s), false, s);
    return indices;
}

int items_per_batch(const mx::array &x, const mx::array &rhs) {
    mx::Shape batch(x.shape().begin(), x.shape().end() - 2);
    const auto &items = rhs.shape();
    if (batch.size() > items.size()) return 0;
    batch.insert(batch.begin(), items.size() - batch.size(), 1);
    size_t d = 0;
    while (d < items.size() && batch[d] == items[d])
        d++;
    for (size_t rest = d; rest < items.size(); rest++)
        if (batch[rest] != 1) return 0;
    return std::accumulate(items.begin() + d, items.end(), 1, std::multiplies<int>());
}

// ---- Weights -----------------------------------------------------------------------------------

mx::Shape R4Weight::shape() const {
    return stacked ? mx::Shape{experts, rows, cols} : mx::Shape{rows, cols};
}

size_t R4Weight::nbytes() const {
    size_t sum = 0;
    for (const auto &a : *arrays)
        sum += a.nbytes();
    return block_rows ? sum / static_cast<size_t>(block_rows) * static_cast<size_t>(rows) : sum;
}

// ---- Operations --------------------------------------------------------------------------------

mx::array r4_rebuild(const R4Weight &w, mx::StreamOrDevice s) {
    r4_check_may_rebuild();
    return rebuilt(w, stream_for(w, s, "r4_rebuild"));
}

mx::array r4_matmul(const mx::array &x, const R4Weight &w, const std::optional<mx::array> &bias,
                    mx::StreamOrDevice s) {
    check_matrix("r4_matmul", w);
    check_columns("r4_matmul", x, w);
    if (bias && (bias->ndim() != 1 || bias->shape(0) != w.rows))
        throw std::invalid_argument(
            "[r4_matmul] The bias must have one value for each row of the weight.");
    auto stream = stream_for(w, s, "r4_matmul");
    auto path = path_of_matmul(x, w, bias);
    bool has_no_sums = product_of(x.shape(), 1) == 0 || w.rows == 0;
    if (has_no_sums && w.layout != R4Layout::cpu && is_bf16(x, bias)) {
        auto shape = x.shape(); // MLX's addmm divides by these numbers on CUDA
        shape.back() = w.rows;
        return mx::zeros(shape, mx::bfloat16, stream);
    }
    if (w.layout == R4Layout::metal && path.kernel != "rebuild" && !is_empty(w)) {
        if (!metal_prefers_rebuilding(product_of(x.shape(), 1), w))
            if (auto products = metal_matmul(x, {w}, bias, stream)) return (*products)[0];
        path = {"rebuild", ""};
    }
    if (w.layout == R4Layout::cuda && path.kernel == "gemm" && !is_empty(w)) {
        if (auto product = cuda_gemm(x, w, path.order, stream)) return *product;
        path = {"rebuild", ""};
    }
    if (path.kernel == "rebuild" || (is_empty(w) && w.layout != R4Layout::cpu)) {
        auto transposed = mx::transpose(rebuilt(w, path, stream), stream);
        return bias ? mx::addmm(*bias, x, transposed, 1.0f, 1.0f, stream)
                    : mx::matmul(x, transposed, stream);
    }
    if (w.layout == R4Layout::cuda) return cuda_matvec(x, {w}, stream)[0];
    auto shape = x.shape();
    shape.back() = w.rows;
    Arrays inputs{mx::contiguous(x, false, stream)};
    if (bias) inputs.push_back(mx::contiguous(*bias, false, stream));
    return mx::array(std::move(shape), mx::bfloat16,
                     std::make_shared<R4Matmul>(stream, dims_of(w), bias.has_value()),
                     with_weight(std::move(inputs), w));
}

std::vector<mx::array> r4_matmuls(const mx::array &x, const std::vector<R4Weight> &weights,
                                  mx::StreamOrDevice s) {
    size_t nfused = 0; // that one launch can take
    for (const auto &w : weights) {
        check_matrix("r4_matmul", w);
        check_columns("r4_matmul", x, w);
        stream_for(w, s, "r4_matmul");
        auto path = path_of_matmul(x, w);
        nfused += takes_several(path, w) && share_kernel(w, weights[0]) && !is_empty(w);
    }
    if (nfused == weights.size() && nfused > 1) {
        auto stream = mx::to_stream(s);
        if (weights[0].layout == R4Layout::cuda && nfused <= cuda_matvec_most)
            return cuda_matvec(x, weights, stream);
        if (weights[0].layout == R4Layout::metal && nfused <= METAL_NPARTS &&
            !metal_prefers_rebuilding(product_of(x.shape(), 1), weights[0]))
            if (auto products = metal_matmul(x, weights, std::nullopt, stream)) return *products;
    }
    std::vector<mx::array> products;
    for (const auto &w : weights)
        products.push_back(r4_matmul(x, w, std::nullopt, s));
    return products;
}

mx::array r4_gather_mm(const mx::array &x, const R4Weight &w,
                       const std::optional<mx::array> &lhs_indices, const mx::array &rhs_indices,
                       bool sorted_indices, mx::StreamOrDevice s) {
    check_gather(x, w, lhs_indices, rhs_indices);
    auto stream = stream_for(w, s, "r4_gather_mm");
    auto path = path_of_gather(x, w, lhs_indices.has_value(), sorted_indices);
    if (w.layout == R4Layout::metal && path.kernel != "rebuild" && !is_empty(w)) {
        auto products =
            metal_gather(x, {w}, lhs_indices, rhs_indices, sorted_indices && !lhs_indices, stream);
        if (products) return (*products)[0];
        path = {"rebuild", ""};
    }
    if (w.layout == R4Layout::cuda && path.kernel == "gemm" && !is_empty(w)) {
        if (auto products = cuda_gemm_experts(x, {w}, rhs_indices, path.order, stream))
            return (*products)[0];
        path = {"rebuild", ""};
    }
    if (path.kernel == "rebuild" || (is_empty(w) && w.layout != R4Layout::cpu))
        return gather_rebuilt(x, w, path, lhs_indices, rhs_indices, sorted_indices, stream);
    if (w.layout == R4Layout::cuda) return cuda_gather(x, {w}, lhs_indices, rhs_indices, stream)[0];
    auto indices = gather_indices(x, lhs_indices, rhs_indices, stream);
    auto shape = indices[0].shape();
    shape.push_back(x.shape(-2));
    shape.push_back(w.rows);
    return mx::array(std::move(shape), mx::bfloat16,
                     std::make_shared<R4GatherMM>(stream, dims_of(w)),
                     with_weight({mx::contiguous(x, false, stream), indices[0], indices[1]}, w));
}

std::vector<mx::array> r4_gather_mms(const mx::array &x, const std::vector<R4Weight> &weights,
                                     const std::optional<mx::array> &lhs_indices,
                                     const mx::array &rhs_indices, bool sorted_indices,
                                     mx::StreamOrDevice s) {
    size_t nfused = 0, nsorted = 0;
    R4GemmOrder order;
    for (const auto &w : weights) {
        check_gather(x, w, lhs_indices, rhs_indices);
        stream_for(w, s, "r4_gather_mm");
        auto path = path_of_gather(x, w, lhs_indices.has_value(), sorted_indices);
        nsorted += w.layout == R4Layout::cuda && path.kernel == "gemm" &&
                   share_kernel(w, weights[0]) && !is_empty(w);
        order = path.order;
        nfused += takes_several(path, w) && share_kernel(w, weights[0]) && !is_empty(w);
    }
    if (nfused == weights.size() && nfused > 1 && nfused <= cuda_gather_most) {
        auto stream = mx::to_stream(s);
        if (weights[0].layout == R4Layout::cuda)
            return cuda_gather(x, weights, lhs_indices, rhs_indices, stream);
        if (auto products = metal_gather(x, weights, lhs_indices, rhs_indices,
                                         sorted_indices && !lhs_indices, stream))
            return *products;
    }
    if (nsorted == weights.size() && nsorted > 1)
        if (auto products = cuda_gemm_experts(x, weights, rhs_indices, order, mx::to_stream(s)))
            return *products;
    std::vector<mx::array> products;
    for (const auto &w : weights)
        products.push_back(r4_gather_mm(x, w, lhs_indices, rhs_indices, sorted_indices, s));
    return products;
}

mx::array r4_rows(const R4Weight &w, const mx::array &ids, mx::StreamOrDevice s) {
    check_matrix("r4_rows", w);
    check_integers("r4_rows", ids);
    auto stream = stream_for(w, s, "r4_rows");
    if (!r4_is_trusted(w.layout == R4Layout::cpu ? "cpu" : "rows")) {
        r4_check_may_rebuild();
        return mx::take(rebuilt(w, stream), ids, 0, stream);
    }
    bool is_traced = w.layout == R4Layout::metal && ids.is_tracer();
    if (w.layout != R4Layout::cpu && (is_empty(w) || is_traced))
        return mx::take(rebuilt(w, stream), ids, 0, stream);
    bool is_taken_as_is =
        w.layout != R4Layout::cpu && (ids.dtype() == mx::int32 || ids.dtype() == mx::uint32);
    auto taken = is_taken_as_is ? ids : mx::astype(ids, mx::int64, stream);
    if (w.layout == R4Layout::cuda) return cuda_rows(w, taken, stream);
    if (w.layout == R4Layout::metal) return metal_rows(w, taken, stream);
    taken = mx::contiguous(taken, false, stream);
    auto shape = ids.shape();
    shape.push_back(w.cols);
    return mx::array(std::move(shape), mx::bfloat16, std::make_shared<R4Rows>(stream, dims_of(w)),
                     with_weight({taken}, w));
}

} // namespace binade
