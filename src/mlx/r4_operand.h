// r4_operand.h - what is known of an operand before it is evaluated. How it will lie in memory
// matters most: MLX chooses its kernels by that, and so do ours.
#pragma once

#include "r4_ops.h"

namespace binade {

bool is_evaluated(const mx::array &a);

// Whether these are the same nodes of the graph.
bool are_same(const std::vector<mx::array> &a, const std::vector<mx::array> &b);

// Whether an array will most likely begin at a multiple of 8 bytes. Views begin where what they
// view does, slices anywhere. Operations of MLX can still put a result at an odd place, in the
// memory of an operand; who asks must notice that when the array is evaluated.
bool begins_aligned(const mx::array &a);

// Whether it will surely begin at a multiple of `alignment` bytes, and neighbours in its last
// dimension be neighbours in memory. False where that cannot be told.
bool will_lie_by_rows(const mx::array &a, int alignment = 8);

} // namespace binade
