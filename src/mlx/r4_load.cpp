// r4_load.cpp - see r4_load.h.
#include "mlx/r4_load.h"

#include <cstring>
#include <limits>
#include <map>

#include "binade_r4.h"
#include "mlx/allocator.h"
#include "mlx/cuda_launch.h"
#include "mlx/device.h"
#include "mlx/gpu_load.h"
#include "mlx/ops.h"
#include "mlx/r4_metal.h"

namespace binade {

namespace {

mx::array copy(const void *data, mx::Shape shape, mx::Dtype dtype) {
    auto a = new_array(std::move(shape), dtype);
    if (a.nbytes() > 0) std::memcpy(a.data<char>(), data, a.nbytes());
    return a;
}

// A weight whose memory is to be freed: MLX on CPUs takes over no memory of others.
struct OwnedR4 {
    binade_r4 w{};

    OwnedR4() = default;
    OwnedR4(const OwnedR4 &) = delete;
    ~OwnedR4() { binade_r4_free(&w); }

    R4Weight arrays(bool stacked) const {
        uint64_t block_nrows = BINADE_R4_BLOCK_NROWS, group_ncols = BINADE_R4_GROUP_NCOLS;
        uint64_t nblocks = w.nexperts * ((w.rows + block_nrows - 1) / block_nrows);
        uint64_t ngroups = (w.cols + group_ncols - 1) / group_ncols;
        uint64_t nescapes = w.escape_starts[nblocks];
        std::vector<mx::array> arrays{
            copy(w.groups, {dimension(nblocks), dimension(ngroups), BINADE_R4_GROUP_NBYTES},
                 mx::uint8),
            copy(w.escapes, {dimension(nescapes)}, mx::uint8),
            copy(w.escape_starts, {dimension(nblocks + 1)}, mx::uint32),
            copy(w.exponents, {16}, mx::uint8),
        };
        return {
            std::make_shared<const std::vector<mx::array>>(std::move(arrays)),
            R4Layout::cpu,
            dimension(w.nexperts),
            dimension(w.rows),
            dimension(w.cols),
            stacked,
        };
    }
};

mx::Dtype dtype_of(const binade_tensor &t) {
    static const std::map<std::string, mx::Dtype> dtypes{
        {"BOOL", mx::bool_},    {"U8", mx::uint8},      {"I8", mx::int8},
        {"U16", mx::uint16},    {"I16", mx::int16},     {"U32", mx::uint32},
        {"I32", mx::int32},     {"U64", mx::uint64},    {"I64", mx::int64},
        {"F16", mx::float16},   {"BF16", mx::bfloat16}, {"F32", mx::float32},
        {"F64", mx::float64},   {"C64", mx::complex64}, {"F8_E4M3", mx::uint8},
        {"F8_E5M2", mx::uint8}, {"F8_E8M0", mx::uint8},
    };
    auto found = dtypes.find(t.dtype);
    if (found == dtypes.end())
        throw Error(BINADE_E_USAGE,
                    std::string("tensor ") + t.name + ": MLX has no dtype for " + t.dtype);
    return found->second;
}

// For the device that is the default when a weight is loaded.
R4Layout default_layout() {
    if (metal_is_emulated()) return R4Layout::metal;
    if (mx::default_device() == mx::Device::cpu) return R4Layout::cpu;
    return cuda_is_available() ? R4Layout::cuda : R4Layout::metal;
}

} // namespace

void check(binade_status status, const binade_error &error) {
    if (status != BINADE_OK) throw Error(status, error.message);
}

int dimension(uint64_t n) {
    if (n > static_cast<uint64_t>(std::numeric_limits<int>::max()))
        throw Error(BINADE_E_USAGE, "a dimension passes 2^31, MLX has no such shape");
    return static_cast<int>(n);
}

mx::array new_array(mx::Shape shape, mx::Dtype dtype) {
    size_t nbytes = mx::size_of(dtype);
    for (int n : shape)
        nbytes *= static_cast<size_t>(n);
    auto buffer = mx::allocator::malloc(nbytes);
    if (!buffer.ptr())
        throw Error(BINADE_E_MEMORY, "out of memory: " + std::to_string(nbytes) + " bytes");
    return mx::array(buffer, std::move(shape), dtype);
}

Checkpoint::Checkpoint(const std::string &path, const std::string &revision) {
    binade_checkpoint *c = nullptr;
    binade_error error{};
    check(binade_open(path.c_str(), revision.empty() ? nullptr : revision.c_str(), &c, &error),
          error);
    checkpoint_ = std::shared_ptr<binade_checkpoint>(c, binade_close);
    gpu_views_ = std::make_shared<GpuViews>();
}

std::string Checkpoint::path() const {
    return binade_path(checkpoint_.get());
}

int Checkpoint::format() const {
    return binade_format(checkpoint_.get());
}

std::vector<std::string> Checkpoint::names() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < binade_count(checkpoint_.get()); i++) {
        binade_tensor t;
        binade_get(checkpoint_.get(), i, &t);
        names.emplace_back(t.name, t.name_nbytes);
    }
    return names;
}

size_t Checkpoint::index_of(const std::string &name) const {
    size_t i = binade_find(checkpoint_.get(), name.data(), name.size());
    if (i == SIZE_MAX) throw Error(BINADE_E_USAGE, path() + ": no tensor " + name);
    return i;
}

binade_tensor Checkpoint::info(const std::string &name) const {
    binade_tensor t;
    binade_get(checkpoint_.get(), index_of(name), &t);
    return t;
}

mx::array Checkpoint::load_array(const std::string &name) const {
    size_t i = index_of(name);
    binade_tensor t;
    binade_get(checkpoint_.get(), i, &t);
    auto dtype = dtype_of(t);
    mx::Shape shape;
    for (size_t d = 0; d < t.ndim; d++)
        shape.push_back(dimension(t.shape[d]));
    auto out = new_array(std::move(shape), dtype);
    binade_error error{};
    check(binade_read_rows(checkpoint_.get(), i, 0, t.rows, out.data<char>(), t.nbytes, &error),
          error);
    return out;
}

R4Weight Checkpoint::load_r4(const std::string &name) const {
    auto t = info(name);
    return load_r4(name, 0, static_cast<int>(t.ndim >= 2 ? t.shape[t.ndim - 2] : 0));
}

R4Weight Checkpoint::load_r4(const std::string &name, int row0, int row1) const {
    size_t i = index_of(name);
    auto t = info(name);
    if (row0 < 0 || row1 < row0)
        throw Error(BINADE_E_USAGE, "tensor " + name + ": rows " + std::to_string(row0) + " to " +
                                        std::to_string(row1) + " are no range");
    if (auto layout = default_layout(); layout != R4Layout::cpu)
        return gpu_views_->load(checkpoint_.get(), i, layout, row0, row1);
    OwnedR4 owned;
    binade_error error{};
    check(binade_r4_load(checkpoint_.get(), i, static_cast<uint64_t>(row0),
                         static_cast<uint64_t>(row1), 0, &owned.w, &error),
          error);
    return owned.arrays(t.ndim == 3);
}

R4Weight r4_make(const mx::array &weight) {
    if (weight.dtype() != mx::bfloat16 || weight.ndim() < 2 || weight.ndim() > 3)
        throw Error(BINADE_E_USAGE, "only BF16 arrays of two or three dimensions can be packed");
    if (auto layout = default_layout(); layout != R4Layout::cpu) return gpu_make_r4(weight, layout);
    auto bf16 = mx::contiguous(weight);
    bf16.eval();
    bool stacked = weight.ndim() == 3;
    OwnedR4 owned;
    binade_error error{};
    check(binade_r4_make(reinterpret_cast<const uint16_t *>(bf16.data<mx::bfloat16_t>()),
                         stacked ? static_cast<uint64_t>(weight.shape(0)) : 1,
                         static_cast<uint64_t>(weight.shape(-2)),
                         static_cast<uint64_t>(weight.shape(-1)), 0, &owned.w, &error),
          error);
    return owned.arrays(stacked);
}

} // namespace binade
