// r4_gather_back.cpp - the gradient of a gathered product, on the CPU.
//
// Experts are rebuilt one at a time, so that training takes the memory of one. Each output has the
// order of MLX's matmul(dy, W): one float32 sum, rows of W ascending, fused on AArch64. The inner
// loop runs over outputs, so that vectors change no sum.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "mlx/backend/cpu/encoder.h"
#include "mlx/r4_eval.h"
#include "mlx/r4_path.h"

namespace binade {

static float step(float sum, float a, float b) {
#ifdef __aarch64__
    return std::fma(a, b, sum);
#else
    return sum + a * b;
#endif
}

// dx [K] = dy [R] W [R, K]
static void multiply_row(const mx::bfloat16_t *dy, const mx::bfloat16_t *w, mx::bfloat16_t *dx,
                         std::vector<float> &sums, size_t nrows) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (size_t r = 0; r < nrows; r++) {
        auto factor = static_cast<float>(dy[r]);
        for (size_t k = 0; k < sums.size(); k++)
            sums[k] = step(sums[k], factor, static_cast<float>(w[r * sums.size() + k]));
    }
    for (size_t k = 0; k < sums.size(); k++)
        dx[k] = static_cast<mx::bfloat16_t>(sums[k]);
}

void R4GatherBack::eval_cpu(const Arrays &inputs, mx::array &out) {
    allocate(out);
    mx::cpu::get_command_encoder(stream()).dispatch([w = WeightArrays(inputs, dims_),
                                                     dy = weak(inputs[0]), rhs = weak(inputs[1]),
                                                     out = weak(out)]() mutable {
        if (out.size() == 0) return;
        auto view = w.view();
        const auto *ids = rhs.data<uint32_t>();
        size_t m = dy.shape(-2);
        check_below(rhs, view.nexperts, "r4_gather_mm");
        r4_count("rebuild", "cpu", 0, w.dims.rows, w.dims.cols);

        std::vector<size_t> order(rhs.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [ids](size_t a, size_t b) { return ids[a] < ids[b]; });
        std::vector<mx::bfloat16_t> expert(view.rows * view.cols);
        std::vector<float> sums(view.cols);
        for (size_t i = 0; i < order.size(); i++) {
            uint32_t id = ids[order[i]];
            if (i == 0 || id != ids[order[i - 1]])
                binade_r4_rebuild(&view, id, 0, view.rows,
                                  reinterpret_cast<uint16_t *>(expert.data()));
            for (size_t row = order[i] * m; row < (order[i] + 1) * m; row++)
                multiply_row(dy.data<mx::bfloat16_t>() + row * view.rows, expert.data(),
                             out.data<mx::bfloat16_t>() + row * view.cols, sums, view.rows);
        }
    });
}

} // namespace binade
