// r4_operand.cpp - see r4_operand.h.
#include "mlx/r4_operand.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "mlx/primitives.h"

namespace binade {

bool is_evaluated(const mx::array &a) {
    return a.status() != mx::array::Status::unscheduled || !a.has_primitive();
}

namespace {

using Names = std::set<std::string_view>;

// Operations whose result has their operand's memory; views as another dtype are named after it.
bool is_view(std::string_view name) {
    static const Names views{"Reshape",    "Flatten",   "Unflatten",  "Squeeze",
                             "ExpandDims", "Transpose", "Contiguous", "StopGradient"};
    return views.contains(name) || name.starts_with("View ");
}

bool is_slice(std::string_view name) {
    static const Names slices{"Slice", "DynamicSlice", "Split", "AsStrided"};
    return slices.contains(name);
}

// Those whose result is new memory, row after row, whatever they get.
bool is_new(std::string_view name) {
    static const Names makers{"Matmul", "AddMM",        "GatherMM",   "QuantizedMatmul",
                              "Gather", "CustomKernel", "Concatenate"};
    return makers.contains(name) || name.starts_with("R4");
}

bool is_broadcast(const mx::array &a) {
    return !is_evaluated(a) && std::string_view(a.primitive().name()).starts_with("Broadcast") &&
           a.size() != a.inputs()[0].size();
}

// Whether neighbours in the last dimension stay that in a view of what lies by rows.
bool keeps_rows(const mx::array &view, std::string_view name) {
    const auto &viewed = view.inputs()[0];
    if (viewed.ndim() == 0 || view.ndim() == 0) return false;
    if (name != "Transpose") return viewed.shape(-1) > 1 || view.shape(-1) == 1;
    return static_cast<const mx::Transpose &>(view.primitive()).state().back() ==
           static_cast<int>(view.ndim()) - 1;
}

// Whether there is something else between the rows of a part: MLX's operations on it take new
// memory.
bool has_gaps(const mx::array &part, std::string_view name) {
    const auto &whole = part.inputs()[0];
    if ((name != "Slice" && name != "Split") || part.ndim() != whole.ndim()) return false;
    int nrows = 1;
    for (int d = 0; d < static_cast<int>(part.ndim()); d++) {
        if (nrows > 1 && part.shape(d) != whole.shape(d)) return true;
        nrows *= part.shape(d);
    }
    return false;
}

struct Asked {
    int alignment;
    std::set<std::uintptr_t> seen; // what has been found to lie by rows, or is being looked at
};

// is_operand: an operation is between this array and the one that is asked for.
bool lies_by_rows(const mx::array &a, Asked &asked, bool is_operand) {
    constexpr size_t most = 10000; // far more than a model has that was not evaluated
    if (asked.seen.size() >= most) return false;
    if (!asked.seen.insert(a.id()).second) return true;
    if (is_evaluated(a)) return a.flags().row_contiguous && a.offset() % asked.alignment == 0;
    std::string_view name = a.primitive().name();
    if (is_new(name)) return true;
    if (is_slice(name))
        return is_operand && has_gaps(a, name) && lies_by_rows(a.inputs()[0], asked, true);
    if (is_broadcast(a) || (is_view(name) && !keeps_rows(a, name))) return false;
    if (is_view(name)) return lies_by_rows(a.inputs()[0], asked, is_operand);
    if (name == "ScaledDotProductAttention") return lies_by_rows(a.inputs()[0], asked, true);
    // Others may lie as operands of their size do, and in their memory, and sums as what they sum
    // up, but not as what is repeated.
    for (const auto &operand : a.inputs())
        if (operand.size() >= a.size() && !is_broadcast(operand) &&
            !lies_by_rows(operand, asked, true))
            return false;
    return true;
}

} // namespace

bool are_same(const std::vector<mx::array> &a, const std::vector<mx::array> &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto &x, const auto &y) { return x.id() == y.id(); });
}

bool begins_aligned(const mx::array &a) {
    if (is_evaluated(a)) return a.offset() % 8 == 0;
    std::string_view name = a.primitive().name();
    return is_view(name) ? begins_aligned(a.inputs()[0]) : !is_slice(name);
}

bool will_lie_by_rows(const mx::array &a, int alignment) {
    Asked asked{alignment, {}};
    return lies_by_rows(a, asked, false);
}

} // namespace binade
