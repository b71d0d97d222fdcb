// r4_group.h - layers that get the same x one after another, as q, k and v do: the first that is
// called computes all products in one launch, the others take theirs.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "r4_ops.h"

namespace binade {

// Not for several threads at once.
class BINADE_API R4Group {
  public:
    explicit R4Group(std::vector<R4Weight> weights) : weights_(std::move(weights)) {}

    // Product i of x, r4_matmul(x, weights[i]).
    mx::array matmul(size_t i, const mx::array &x);
    // r4_gather_mm(x, weights[i], {}, rhs_indices, sorted_indices)
    mx::array gather_mm(size_t i, const mx::array &x, const mx::array &rhs_indices,
                        bool sorted_indices);

  private:
    // Takes product i if it is kept for these operands.
    std::optional<mx::array> take(size_t i, const std::vector<mx::array> &operands, bool flag);
    mx::array keep(size_t i, std::vector<mx::array> operands, bool flag,
                   const std::vector<mx::array> &products);

    std::vector<R4Weight> weights_;
    // Arrays change in place by becoming other arrays, so an id tells what an operand was.
    std::vector<mx::array> operands_;
    bool flag_ = false;
    std::vector<std::optional<mx::array>> products_;
};

} // namespace binade
