// r4_load.h - checkpoints as MLX arrays: packed tensors as R4, all others as they are.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "r4_ops.h"

namespace binade {

// What went wrong, by the status of binade.h.
class BINADE_API Error : public std::runtime_error {
  public:
    Error(binade_status status, const std::string &message)
        : std::runtime_error(message), status(status) {}
    binade_status status;
};

// Copies share what is open. May be used by several threads at once.
class BINADE_API Checkpoint {
  public:
    // A directory, or a hub id in the local cache; throws Error.
    explicit Checkpoint(const std::string &path, const std::string &revision = "");

    std::string path() const;
    int format() const; // 0: not packed
    std::vector<std::string> names() const;
    binade_tensor info(const std::string &name) const;

    // A packed tensor, or rows [row0, row1) of it (of each expert of a stack), for the default
    // device. On GPUs the tensor is loaded whole, and weights that are rows of it share its memory.
    R4Weight load_r4(const std::string &name) const;
    R4Weight load_r4(const std::string &name, int row0, int row1) const;
    // Any tensor in its own dtype, decoded if it is packed; 8-bit floats as uint8, as MLX loads
    // them.
    mx::array load_array(const std::string &name) const;

  private:
    std::shared_ptr<binade_checkpoint> checkpoint_;
    std::shared_ptr<class GpuViews> gpu_views_;
    size_t index_of(const std::string &name) const;
};

// Packs a BF16 array, [R, K] or [E, R, K], in memory, for the default device. Evaluates it.
BINADE_API R4Weight r4_make(const mx::array &weight);

} // namespace binade
