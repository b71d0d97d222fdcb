// r4_metal.cpp - see r4_metal.h.
#include "mlx/r4_metal.h"

#include <string_view>

#include "mlx/backend/gpu/device_info.h"
#include "mlx/memory.h"
#include "mlx/ops.h"
#include "mlx/r4_operand.h"
#include "mlx/r4_path.h"

namespace binade {

namespace {

std::string numbered(const char *name, size_t i) {
    return std::string(name) + std::to_string(i);
}

void add_weight(Named &given, const R4Weight &w, size_t i) {
    auto facts = mx::array({w.row0, w.rows, w.block_rows, w.base}, mx::int32);
    given.insert_or_assign(numbered("slices_", i), (*w.arrays)[0]);
    given.insert_or_assign(numbered("rows_", i), (*w.arrays)[1]);
    given.insert_or_assign(numbered("escapes_", i), (*w.arrays)[2]);
    given.insert_or_assign(numbered("facts_", i), facts);
}

std::vector<int> taken_of(const std::vector<R4Weight> &weights) {
    std::vector<int> taken;
    for (const auto &w : weights)
        taken.push_back(w.rows);
    return taken;
}

// Kernels are counted by their names without r4_ in front.
void count(const char *operation, const char *kernel, int nrows,
           const std::vector<R4Weight> &weights) {
    if (std::string_view(kernel).starts_with("r4_")) kernel += 3;
    for (const auto &w : weights)
        r4_count(operation, kernel, nrows, w.rows, w.cols);
}

// What cannot be launched, or needs gradients.
bool is_out_of_reach(const mx::array &x) {
    return x.size() < metal_few || x.is_tracer();
}

} // namespace

metal_product metal_product_of(int nrows, int cols, bool has_bias) {
    return {.m = nrows,
            .n = 0,
            .k = cols,
            .batch = 1,
            .has_bias = has_bias,
            .x_transposed = false,
            .w_stored_kn = false,
            .is_aligned = true};
}

bool metal_prefers_rebuilding(int nrows, const R4Weight &w) {
    constexpr int fused_most = 128;
    constexpr size_t margin = size_t{1} << 30;
    if (nrows <= fused_most || metal_is_emulated()) return false;
    const auto &info = mx::gpu::device_info();
    auto found = info.find("max_recommended_working_set_size");
    if (found == info.end()) return false;
    size_t nbytes = size_t{2} * static_cast<size_t>(w.experts) * static_cast<size_t>(w.rows) *
                    static_cast<size_t>(w.cols);
    return mx::get_active_memory() + nbytes + margin <= std::get<size_t>(found->second);
}

std::optional<Arrays> metal_matmul(const mx::array &x, const std::vector<R4Weight> &weights,
                                   const std::optional<mx::array> &bias, mx::Stream s) {
    int cols = weights[0].cols, nrows = static_cast<int>(x.size() / static_cast<size_t>(cols));
    auto taken = taken_of(weights);
    auto product = metal_product_of(nrows, cols, bias.has_value());
    metal_plan plans[2];
    if (is_out_of_reach(x) || (bias && bias->size() < metal_few)) return std::nullopt;
    // Where several rows lie otherwise, MLX takes other kernels.
    if (nrows > 1 && !will_lie_by_rows(x)) return std::nullopt;
    int nplans = metal_plan_matmul(&metal_device(), &product, taken.data(),
                                   static_cast<int>(weights.size()), plans);
    if (nplans == 0) return std::nullopt;

    Named given{{"x", x}};
    std::vector<mx::Shape> shapes;
    for (size_t i = 0; i < weights.size(); i++) {
        add_weight(given, weights[i], i);
        given.insert_or_assign(numbered("bias_", i), bias ? *bias : x);
        shapes.push_back(x.shape());
        shapes.back().back() = weights[i].rows;
    }
    count("matmul", plans[0].kernel, nrows, weights);
    if (nplans == 1) return metal_launch(plans[0], given, shapes, s);
    auto splits = metal_launch(plans[0], given, {{plans[0].sizes[2], nrows, taken[0]}}, s)[0];
    return metal_launch(plans[1], {{"splits", splits}, {"bias", given.at("bias_0")}}, shapes, s);
}

std::optional<Arrays> metal_gather(const mx::array &x, const std::vector<R4Weight> &weights,
                                   const std::optional<mx::array> &lhs, const mx::array &rhs,
                                   bool is_sorted, mx::Stream s) {
    int cols = weights[0].cols, nx = static_cast<int>(x.size() / static_cast<size_t>(cols));
    if (is_out_of_reach(x) || rhs.is_tracer() || rhs.size() == 0) return std::nullopt;
    int per_batch = lhs ? 0 : items_per_batch(x, rhs);
    // The kernels look at those of x only where per_batch is 0.
    auto indices =
        per_batch ? Arrays(2, mx::astype(rhs, mx::uint32, s)) : gather_indices(x, lhs, rhs, s);
    const auto &items = indices[1];
    auto taken = taken_of(weights);
    // Sorted items take the rows of x in their order.
    bool is_in_order = is_sorted && per_batch == 1;
    metal_items what{x.shape(-2), weights[0].rows, cols, is_in_order, true};
    metal_plan plan;
    if (is_sorted && !is_in_order) return std::nullopt;
    if (!metal_plan_gather(&metal_device(), &what, static_cast<int>(items.size()), nx,
                           weights[0].experts, per_batch, taken.data(),
                           static_cast<int>(weights.size()), &plan))
        return std::nullopt;

    Named given{{"x", x}, {"lhs", indices[0]}, {"rhs", items}, {"experts", items}};
    std::vector<mx::Shape> shapes;
    for (size_t i = 0; i < weights.size(); i++) {
        add_weight(given, weights[i], i);
        shapes.push_back(items.shape());
        shapes.back().insert(shapes.back().end(), {1, weights[i].rows});
    }
    count("gather_mm", plan.kernel, static_cast<int>(items.size()), weights);
    return metal_launch(plan, given, shapes, s);
}

mx::array metal_rows(const R4Weight &w, const mx::array &ids, mx::Stream s) {
    Named given{{"ids", ids}};
    auto shape = ids.shape();
    shape.push_back(w.cols);
    metal_plan plan;
    if (ids.size() == 0) return mx::zeros(shape, mx::bfloat16, s);
    metal_plan_rebuild("r4_rows", w.cols, static_cast<int>(ids.size()), &plan);
    add_weight(given, w, 0);
    count("rows", "rows", static_cast<int>(ids.size()), {w});
    return metal_launch(plan, given, {shape}, s)[0];
}

mx::array metal_rebuild(const R4Weight &w, mx::Stream s) {
    Named given;
    metal_plan plan;
    metal_plan_rebuild("r4_rebuild", w.cols, w.experts * w.rows, &plan);
    add_weight(given, w, 0);
    count("rebuild", "rebuild", 0, {w});
    return metal_launch(plan, given, {w.shape()}, s)[0];
}

} // namespace binade
