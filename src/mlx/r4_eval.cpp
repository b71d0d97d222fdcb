// r4_eval.cpp - the nodes of r4_primitives.h on the CPU; see r4_eval.h.
#include "mlx/r4_eval.h"

#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/r4_path.h"

namespace binade {

void allocate(mx::array &out) {
    auto buffer = mx::allocator::malloc(out.nbytes());
    if (!buffer.ptr())
        throw std::runtime_error("[malloc] Unable to allocate " + std::to_string(out.nbytes()) +
                                 " bytes.");
    out.set_data(buffer);
}

const uint16_t *bits(const mx::array &a) {
    return reinterpret_cast<const uint16_t *>(a.data<mx::bfloat16_t>());
}

uint16_t *bits(mx::array &a) {
    return reinterpret_cast<uint16_t *>(a.data<mx::bfloat16_t>());
}

binade_r4 WeightArrays::view() const {
    return {
        .nexperts = static_cast<uint64_t>(dims.experts),
        .rows = static_cast<uint64_t>(dims.rows),
        .cols = static_cast<uint64_t>(dims.cols),
        .groups = groups.data<uint8_t>(),
        .escapes = escapes.data<uint8_t>(),
        .escape_starts = escape_starts.data<uint32_t>(),
        .exponents = exponents.data<uint8_t>(),
    };
}

[[noreturn]] static void refuse_index(const char *operation, int64_t index, size_t limit) {
    std::ostringstream text;
    text << "[" << operation << "] Index " << index << " is out of range for " << limit << ".";
    throw std::out_of_range(text.str());
}

void check_below(const mx::array &ids, size_t limit, const char *operation) {
    for (size_t i = 0; i < ids.size(); i++) {
        uint32_t id = ids.data<uint32_t>()[i];
        if (id >= limit) refuse_index(operation, static_cast<int32_t>(id), limit);
    }
}

static void count(const char *operation, size_t nrows, const R4Dims &dims) {
    r4_count(operation, "cpu", static_cast<int>(nrows), dims.rows, dims.cols);
}

void R4Matmul::eval_cpu(const Arrays &inputs, mx::array &out) {
    allocate(out);
    std::optional<mx::array> bias;
    if (has_bias_) bias = weak(inputs[1]);
    mx::cpu::get_command_encoder(stream()).dispatch(
        [w = WeightArrays(inputs, dims_), x = weak(inputs[0]), bias, out = weak(out)]() mutable {
            if (out.size() == 0) return;
            auto view = w.view();
            size_t nrows = out.size() / view.rows;
            count("matmul", nrows, w.dims);
            binade_r4_matmul(&view, 0, bits(x), nrows, view.cols,
                             bias ? bits(std::as_const(*bias)) : nullptr, bits(out), view.rows);
        });
}

void R4GatherMM::eval_cpu(const Arrays &inputs, mx::array &out) {
    allocate(out);
    mx::cpu::get_command_encoder(stream()).dispatch(
        [w = WeightArrays(inputs, dims_), x = weak(inputs[0]), lhs = weak(inputs[1]),
         rhs = weak(inputs[2]), out = weak(out)]() mutable {
            if (out.size() == 0) return;
            auto view = w.view();
            size_t m = x.shape(-2), nbatches = 1;
            for (size_t d = 0; d + 2 < x.ndim(); d++)
                nbatches *= x.shape(static_cast<int>(d));
            check_below(rhs, view.nexperts, "r4_gather_mm");
            check_below(lhs, nbatches, "r4_gather_mm");
            // One product for each row of x that an index names.
            std::vector<uint32_t> x_rows, experts;
            x_rows.reserve(rhs.size() * m);
            experts.reserve(rhs.size() * m);
            for (size_t i = 0; i < rhs.size(); i++) {
                for (size_t row = 0; row < m; row++) {
                    x_rows.push_back(static_cast<uint32_t>(lhs.data<uint32_t>()[i] * m + row));
                    experts.push_back(rhs.data<uint32_t>()[i]);
                }
            }
            count("gather_mm", x_rows.size(), w.dims);
            binade_r4_gather(&view, bits(x), view.cols, x_rows.data(), experts.data(),
                             x_rows.size(), bits(out), view.rows);
        });
}

void R4Rows::eval_cpu(const Arrays &inputs, mx::array &out) {
    allocate(out);
    mx::cpu::get_command_encoder(stream()).dispatch(
        [w = WeightArrays(inputs, dims_), ids = weak(inputs[0]), out = weak(out)]() mutable {
            if (out.size() == 0) return;
            auto view = w.view();
            auto nrows = static_cast<int64_t>(view.rows);
            std::vector<uint32_t> rows;
            rows.reserve(ids.size());
            for (size_t i = 0; i < ids.size(); i++) {
                int64_t id = ids.data<int64_t>()[i];
                if (id < -nrows || id >= nrows) refuse_index("r4_rows", id, view.rows);
                rows.push_back(static_cast<uint32_t>(id < 0 ? id + nrows : id));
            }
            count("rows", rows.size(), w.dims);
            binade_r4_rows(&view, rows.data(), rows.size(), bits(out));
        });
}

void R4Rebuild::eval_cpu(const Arrays &inputs, mx::array &out) {
    allocate(out);
    mx::cpu::get_command_encoder(stream()).dispatch(
        [w = WeightArrays(inputs, dims_), out = weak(out)]() mutable {
            if (out.size() == 0) return;
            auto view = w.view();
            count("rebuild", 0, w.dims);
            for (uint64_t e = 0; e < view.nexperts; e++)
                binade_r4_rebuild(&view, e, 0, view.rows, bits(out) + e * view.rows * view.cols);
        });
}

} // namespace binade
