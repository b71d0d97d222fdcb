// gpu_load.cpp - see gpu_load.h.
//
// A tensor's parts are read into memory that the GPU sees, two passes of kernels make R4 of them,
// and they are let go: more than one tensor's parts are never in memory. Between the passes the
// host learns how many escapes there are.
#include "mlx/gpu_load.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "binade_r4.h"
#include "cuda/r4_gpu_plain.h"
#include "mlx/memory.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace binade {

void refuse_codes(const std::string &name) {
    throw Error(BINADE_E_DATA, name + ": the codes are damaged: rows, or their number of words or "
                                      "escapes, do not end where they should");
}

// It is copied: what the host reads moves to its memory, and the rest of the array is to stay.
uint32_t total_of(const mx::array &sums, mx::Stream s) {
    int width = sums.ndim() == 2 ? sums.shape(1) : 1;
    auto last = mx::array(static_cast<int>(sums.size()) - width);
    return mx::take(mx::flatten(sums, s), last, s).item<uint32_t>();
}

namespace {

// Rows [row0, row1) of every expert.
R4Weight view_of(std::shared_ptr<const Arrays> arrays, R4Layout layout, const GpuExtent &e,
                 int nexperts, bool stacked, int row0, int row1) {
    return {.arrays = std::move(arrays),
            .layout = layout,
            .experts = nexperts,
            .rows = row1 - row0,
            .cols = e.ncols,
            .stacked = stacked,
            .row0 = row0,
            .block_rows = e.nrows / nexperts,
            .base = e.base};
}

GpuStored read_stored(const binade_checkpoint *c, size_t i, const std::string &name) {
    binade_stored facts;
    binade_error error{};
    check(binade_describe_stored(c, i, &facts, &error), error);
    GpuStored stored{facts.format, {}, name};
    for (unsigned p = 0; p < BINADE_NPARTS; p++) {
        bool are_words = p == BINADE_PART_CODES || (p == BINADE_PART_TAIL && facts.format == 2);
        auto dtype = are_words ? mx::uint32 : mx::uint8;
        auto part = new_array({dimension(facts.part_nbytes[p] / mx::size_of(dtype))}, dtype);
        check(binade_read_stored(c, i, p, part.data<char>(), part.nbytes(), &error), error);
        stored.parts.push_back(part);
    }
    return stored;
}

// On Apple GPUs the CPU reads the same memory.
std::array<uint64_t, 256> count_exponents(const mx::array &bf16) {
    std::array<uint64_t, 256> counts{};
    const auto *bits = reinterpret_cast<const uint16_t *>(bf16.data<mx::bfloat16_t>());
    for (size_t i = 0; i < bf16.size(); i++)
        counts[bits[i] >> 7 & 255]++;
    return counts;
}

} // namespace

R4Weight GpuViews::load(const binade_checkpoint *c, size_t i, R4Layout layout, int row0, int row1) {
    binade_tensor t;
    binade_get(c, i, &t);
    std::string name(t.name, t.name_nbytes);
    if (!t.packed || t.ndim < 2 || t.ndim > 3)
        throw Error(BINADE_E_USAGE, "tensor " + name +
                                        ": only packed ones of two or three dimensions can be "
                                        "held packed");
    int nrows = dimension(t.shape[t.ndim - 2]);
    int nexperts = t.ndim == 3 ? dimension(t.shape[0]) : 1;
    if (row1 > nrows)
        throw Error(BINADE_E_USAGE, "tensor " + name + ": rows " + std::to_string(row0) + " to " +
                                        std::to_string(row1) + " of " + std::to_string(nrows));
    GpuExtent e{dimension(t.rows), dimension(t.cols), 0};
    if (e.ncols > R4_COLS_MOST)
        throw Error(BINADE_E_USAGE, "tensor " + name + ": has too many columns for a GPU");

    std::lock_guard guard(lock_);
    auto &known = loaded_[i];
    auto arrays = known.layout == layout ? known.arrays.lock() : nullptr;
    e.base = known.base;
    if (!arrays) {
        auto s = mx::default_stream(mx::default_device());
        {
            auto stored = read_stored(c, i, name);
            uint8_t table[256];
            std::copy_n(stored.parts[BINADE_PART_TABLE].data<uint8_t>(), 256, table);
            e.base = static_cast<int>(r4_choose_base(table));
            auto load = layout == R4Layout::cuda ? cuda_from_stored : metal_from_stored;
            arrays = std::make_shared<const Arrays>(load(stored, e, s));
        }
        // What held the parts would otherwise be given to later arrays, in memory that CPU and GPU
        // share.
        mx::clear_cache();
        known = {arrays, layout, e.base};
    }
    return view_of(arrays, layout, e, nexperts, t.ndim == 3, row0, row1);
}

R4Weight gpu_make_r4(const mx::array &weight, R4Layout layout) {
    auto s = mx::default_stream(mx::default_device());
    bool stacked = weight.ndim() == 3, on_cuda = layout == R4Layout::cuda;
    int nexperts = stacked ? weight.shape(0) : 1, nrows = weight.shape(-2);
    if (weight.size() == 0) {
        auto none = mx::zeros({0}, mx::uint32, s);
        mx::eval(none);
        return {std::make_shared<const Arrays>(Arrays{none, none, none}),
                layout,
                nexperts,
                nrows,
                weight.shape(-1),
                stacked,
                0,
                nrows,
                0};
    }
    auto bf16 = mx::contiguous(weight, false, s);
    bf16.eval();
    GpuExtent e{dimension(uint64_t(nexperts) * uint64_t(nrows)), weight.shape(-1), 0};
    if (e.ncols > R4_COLS_MOST)
        throw Error(BINADE_E_USAGE, "a weight has too many columns for a GPU");
    auto counts = on_cuda ? cuda_count_exponents(bf16, e, s) : count_exponents(bf16);
    std::array<uint8_t, 256> table; // by rank, the most frequent first
    std::iota(table.begin(), table.end(), 0);
    std::stable_sort(table.begin(), table.end(),
                     [&counts](uint8_t a, uint8_t b) { return counts[a] > counts[b]; });
    e.base = static_cast<int>(r4_choose_base(table.data()));
    auto arrays = on_cuda ? cuda_from_bf16(bf16, e, s) : metal_from_bf16(bf16, e, s);
    return view_of(std::make_shared<const Arrays>(std::move(arrays)), layout, e, nexperts, stacked,
                   0, nrows);
}

} // namespace binade
