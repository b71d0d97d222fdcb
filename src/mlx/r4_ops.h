// r4_ops.h - MLX operations on packed weights: the same bits as MLX's own operations on the BF16
// weight, without building it. Lazy, usable under mx.compile, usable without Python.
//
// Letters: a weight is R x K, of which there may be E (experts); x is [..., K], y = x W^T [..., R].
//
// Which path an operation takes is decided when it is called, by r4_path.h. Where the kernels'
// order of sums is not proven to be MLX's, or x is not BF16, or there is no kernel, the weight is
// rebuilt and MLX's own operation called, with its dtype rules. An operation on another device than
// its weight is for throws std::invalid_argument.
//
// What is only known at evaluation, an index out of range, surfaces on the CPU as MLX lets it: as a
// std::runtime_error from eval. On a GPU such rows are NaN.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "binade.h"
#include "mlx/array.h"
#include "mlx/utils.h"

namespace binade {

namespace mx = mlx::core;

// For which device a weight is laid out.
enum class R4Layout { cpu, cuda, metal };

// A packed weight as MLX arrays, row-contiguous. Copies share them.
struct R4Weight {
    // cpu: groups, escapes, escape_starts, exponents, which binade_r4.h describes.
    // cuda, metal: slices [rows, bytes of a row / 4], rows [rows + 1, 2], escapes, all uint32
    // (docs/R4.md). On Metal the last two have at least 8 elements, if need be in one dimension.
    std::shared_ptr<const std::vector<mx::array>> arrays;
    R4Layout layout;
    int experts; // 1 for a matrix
    int rows, cols;
    bool stacked; // the weight is 3-D, [E, R, K]
    // cuda, metal: it is rows [row0, row0 + rows) of every block_rows rows of the arrays; `base` is
    // the exponent of code 0.
    int row0 = 0, block_rows = 0, base = 0;

    BINADE_API mx::Shape shape() const;
    // Of a view of some rows, its share of what the arrays take.
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

// Several products with one x, as of q, k and v; and with the same experts, as of gate and up. On
// GPUs one launch computes up to three (two) of them.
BINADE_API std::vector<mx::array>
r4_matmuls(const mx::array &x, const std::vector<R4Weight> &weights, mx::StreamOrDevice s = {});
BINADE_API std::vector<mx::array>
r4_gather_mms(const mx::array &x, const std::vector<R4Weight> &weights,
              const std::optional<mx::array> &lhs_indices, const mx::array &rhs_indices,
              bool sorted_indices = false, mx::StreamOrDevice s = {});

// residual + product, and act[gate] * up where act [65536] is what to give for each BF16, in the
// launch that computes the products; nullopt where there is no such launch: if they are not the
// products of one row on CUDA, or evaluated already, or part of a trace.
BINADE_API std::optional<mx::array> r4_fuse_add(const mx::array &residual,
                                                const mx::array &product);
BINADE_API std::optional<mx::array> r4_fuse_gated(const mx::array &gate, const mx::array &up,
                                                  const mx::array &act);

} // namespace binade
