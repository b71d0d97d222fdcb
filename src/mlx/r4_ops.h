// r4_ops.h - MLX operations on packed weights: the same bits as MLX's own operations on the BF16
// weight, without building it. Lazy, usable under mx.compile, usable without Python.
//
// Letters: a weight is R x K, of which there may be E (experts); x is [..., K], y = x W^T [..., R].
//
// Which path an operation takes is decided when it is called. Where the kernels' order of sums is
// not proven to be MLX's (r4_mlx_is_proven), or x is not BF16, the weight is rebuilt and MLX's own
// operation called, with its dtype rules. A device without kernels throws std::invalid_argument.
//
// What is only known at evaluation, an index out of range, surfaces as MLX lets it: as a
// std::runtime_error from eval.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "binade.h"
#include "mlx/array.h"
#include "mlx/utils.h"

namespace binade {

namespace mx = mlx::core;

// A packed weight as MLX arrays, row-contiguous; binade_r4.h tells what they hold.
struct R4Weight {
    mx::array groups, escapes, escape_starts, exponents;
    int experts; // 1 for a matrix
    int rows, cols;
    bool stacked; // the weight is 3-D, [E, R, K]

    BINADE_API mx::Shape shape() const;
    BINADE_API size_t nbytes() const;
};

// x [..., K] times W^T, plus bias [R]. MLX's matmul(x, W^T), or addmm(bias, x, W^T).
BINADE_API mx::array r4_matmul(const mx::array &x, const R4Weight &w,
                               const std::optional<mx::array> &bias = std::nullopt,
                               mx::StreamOrDevice s = {});

// MLX's gather_mm(x, swapaxes(W, -1, -2), lhs_indices, rhs_indices): batches of x [..., M, K] meet
// the experts that rhs_indices name. MLX's CPU backend has no BF16 gather_mm; each product has the
// bits of its matmul. sorted_indices promises sorted rhs_indices; kernels need no such promise.
BINADE_API mx::array r4_gather_mm(const mx::array &x, const R4Weight &w,
                                  const std::optional<mx::array> &lhs_indices,
                                  const mx::array &rhs_indices, bool sorted_indices = false,
                                  mx::StreamOrDevice s = {});

// W[ids]: rows of a matrix, [..., K]. Negative ids count from the end.
BINADE_API mx::array r4_rows(const R4Weight &w, const mx::array &ids, mx::StreamOrDevice s = {});

// The BF16 weight, [R, K] or [E, R, K].
BINADE_API mx::array r4_rebuild(const R4Weight &w, mx::StreamOrDevice s = {});

// How often each path ran, counted when it is evaluated, in this process. A gradient counts as
// rebuild.
struct R4Counts {
    uint64_t matmul, gather_mm, rows, rebuild;
};
BINADE_API R4Counts r4_counts();
BINADE_API void r4_reset_counts();

// Makes every rebuild an error when it is asked for, for tests: equal bits by rebuilding would
// prove nothing.
BINADE_API void r4_forbid_rebuild(bool forbid);

// Whether the MLX that runs is one whose order of sums the kernels are proven to have: version
// 0.32.2 with its own matmul. On macOS MLX's CPU backend calls Apple's, whose order is not known.
BINADE_API bool r4_mlx_is_proven();

} // namespace binade
