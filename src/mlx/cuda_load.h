// cuda_load.h - makes packed weights for NVIDIA GPUs: from a checkpoint's codes or from BF16, by
// kernels of src/cuda.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "mlx/r4_load.h"

namespace binade {

// The weights of a checkpoint that are in memory already, so that rows of one tensor, such as the
// gates and the ups of fused experts, share what holds them. May be used by several threads.
class CudaViews {
  public:
    // Rows [row0, row1) of tensor i, of each expert of a stack. Throws Error.
    R4Weight load(const binade_checkpoint *c, size_t i, int row0, int row1);

  private:
    struct Loaded {
        std::weak_ptr<const std::vector<mx::array>> arrays;
        int base;
    };
    std::mutex lock_;
    std::map<size_t, Loaded> loaded_;
};

// Packs a BF16 array, [R, K] or [E, R, K]. Evaluates it.
R4Weight cuda_make_r4(const mx::array &weight);

// ---- Shared with r4_load.cpp -------------------------------------------------------------------

// Throw Error.
void check(binade_status status, const binade_error &error);
int dimension(uint64_t n);
// Without contents, in memory that CPU and GPU see. MLX itself would go on with a null pointer.
mx::array new_array(mx::Shape shape, mx::Dtype dtype);

} // namespace binade
