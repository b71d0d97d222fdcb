// r4_group.cpp - see r4_group.h.
#include "mlx/r4_group.h"

#include <algorithm>

#include "mlx/r4_operand.h"

namespace binade {

std::optional<mx::array> R4Group::take(size_t i, const std::vector<mx::array> &operands,
                                       bool flag) {
    bool is_same = flag == flag_ && are_same(operands, operands_);
    if (!is_same || i >= products_.size() || !products_[i]) return std::nullopt;
    auto product = std::exchange(products_[i], std::nullopt);
    if (std::none_of(products_.begin(), products_.end(), [](auto &p) { return p.has_value(); }))
        operands_.clear(); // nothing is kept alive for nobody
    return product;
}

mx::array R4Group::keep(size_t i, std::vector<mx::array> operands, bool flag,
                        const std::vector<mx::array> &products) {
    operands_ = std::move(operands);
    flag_ = flag;
    products_.assign(products.begin(), products.end());
    products_.at(i).reset();
    return products[i];
}

mx::array R4Group::matmul(size_t i, const mx::array &x) {
    bool has_one_row = x.ndim() > 0 && x.size() == static_cast<size_t>(x.shape(-1));
    if (!has_one_row) return r4_matmul(x, weights_.at(i));
    if (auto product = take(i, {x}, false)) return *product;
    return keep(i, {x}, false, r4_matmuls(x, weights_));
}

mx::array R4Group::gather_mm(size_t i, const mx::array &x, const mx::array &rhs_indices,
                             bool sorted_indices) {
    std::vector<mx::array> operands{x, rhs_indices};
    if (auto product = take(i, operands, sorted_indices)) return *product;
    return keep(i, operands, sorted_indices,
                r4_gather_mms(x, weights_, std::nullopt, rhs_indices, sorted_indices));
}

} // namespace binade
