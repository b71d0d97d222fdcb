// gpu_load.h - makes packed weights for GPUs: from a checkpoint's codes or from BF16.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/r4_gpu_layout.h"
#include "mlx/r4_load.h"
#include "mlx/r4_primitives.h"

namespace binade {

// The weights of a checkpoint that are in memory already, so that rows of one tensor, such as the
// gates and the ups of fused experts, share what holds them. May be used by several threads.
class GpuViews {
  public:
    // Rows [row0, row1) of tensor i, of each expert of a stack. Throws Error.
    R4Weight load(const binade_checkpoint *c, size_t i, R4Layout layout, int row0, int row1);

  private:
    struct Loaded {
        std::weak_ptr<const Arrays> arrays;
        R4Layout layout;
        int base;
    };
    std::mutex lock_;
    std::map<size_t, Loaded> loaded_;
};

// Packs a BF16 array, [R, K] or [E, R, K]. Evaluates it.
R4Weight gpu_make_r4(const mx::array &weight, R4Layout layout);

// ---- For each kind of GPU ----------------------------------------------------------------------

// A weight as rows of all experts.
struct GpuExtent {
    int nrows, ncols;
    int base; // the exponent of code 0

    unsigned cols() const { return static_cast<unsigned>(ncols); }
    int row_nwords() const { return static_cast<int>(r4_nslices(cols())) * R4_SLICE_NBYTES / 4; }
};

// A packed tensor as it is stored, in memory that CPU and GPU see.
struct GpuStored {
    int format;
    Arrays parts;     // by BINADE_PART_RAW and so on
    std::string name; // for messages
};

// Arrays of R4. Throw Error.
Arrays cuda_from_stored(const GpuStored &stored, const GpuExtent &e, mx::Stream s);
Arrays cuda_from_bf16(const mx::array &bf16, const GpuExtent &e, mx::Stream s);
Arrays metal_from_stored(const GpuStored &stored, const GpuExtent &e, mx::Stream s);
Arrays metal_from_bf16(const mx::array &bf16, const GpuExtent &e, mx::Stream s);

// How often each exponent occurs.
std::array<uint64_t, 256> cuda_count_exponents(const mx::array &bf16, const GpuExtent &e,
                                               mx::Stream s);

// ---- Shared with r4_load.cpp -------------------------------------------------------------------

// Throw Error.
void check(binade_status status, const binade_error &error);
[[noreturn]] void refuse_codes(const std::string &name);
int dimension(uint64_t n);
// Without contents, in memory that CPU and GPU see. MLX itself would go on with a null pointer.
mx::array new_array(mx::Shape shape, mx::Dtype dtype);
// The sum of all, at the end of sums of what comes before, [n + 1] or [n + 1, 2].
uint32_t total_of(const mx::array &sums, mx::Stream s);

} // namespace binade
