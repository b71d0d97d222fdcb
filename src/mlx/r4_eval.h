// r4_eval.h - what tasks on the CPU share.
//
// eval_cpu only allocates and hands over a task; contents of inputs exist when the task runs. MLX
// keeps the inputs' memory until then, so tasks hold weak copies, as MLX's own do: a strong one
// would keep memory from being used again.
#pragma once

#include <cstdint>
#include <vector>

#include "binade_r4.h"
#include "mlx/r4_primitives.h"

namespace binade {

inline mx::array weak(const mx::array &a) {
    return mx::array::unsafe_weak_copy(a);
}

// Throws if memory is out, where MLX itself would go on with a null pointer.
void allocate(mx::array &out);

const uint16_t *bits(const mx::array &a);
uint16_t *bits(mx::array &a);

// Throws std::out_of_range unless every id (uint32) is below the limit.
void check_below(const mx::array &ids, size_t limit, const char *operation);

struct WeightArrays {
    mx::array groups, escapes, escape_starts, exponents;
    R4Dims dims;

    WeightArrays(const Arrays &inputs, R4Dims dims) : WeightArrays(weight_arrays(inputs), dims) {}

    binade_r4 view() const;

  private:
    WeightArrays(const mx::array *arrays, R4Dims d)
        : groups(weak(arrays[0])), escapes(weak(arrays[1])), escape_starts(weak(arrays[2])),
          exponents(weak(arrays[3])), dims(d) {}
};

} // namespace binade
