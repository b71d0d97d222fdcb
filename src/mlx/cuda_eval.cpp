// cuda_eval.cpp - the nodes of cuda_nodes.h on NVIDIA GPUs: which kernel of src/cuda runs, with
// what.
#include "cuda/r4_gpu_layout.h"
#include "mlx/allocator.h"
#include "mlx/cuda_launch.h"
#include "mlx/cuda_nodes.h"
#include "mlx/r4_path.h"

namespace binade {

namespace {

// The elements that a lane of MLX's gemv takes at once: by K, and by where x begins, as MLX copies
// an x that is not packed to a place of its own.
int mlx_per_lane(const mx::array &x, int cols) {
    bool is_copied = !x.flags().row_contiguous || (x.ndim() == 2 && x.strides(0) != cols);
    int64_t offset = is_copied ? 0 : x.offset();
    if (cols % 128 == 0 && offset % 8 == 0) return 4;
    if (cols % 64 == 0 && offset % 4 == 0) return 2;
    return 1;
}

int layout_per_lane(const CudaPart &p) {
    return static_cast<int>(r4_per_lane(static_cast<unsigned>(p.cols)));
}

// The arrays of all parts, in front of the other inputs.
Arrays arrays_first(const Arrays &inputs, size_t nothers) {
    Arrays arranged(inputs.begin() + static_cast<std::ptrdiff_t>(nothers), inputs.end());
    arranged.insert(arranged.end(), inputs.begin(),
                    inputs.begin() + static_cast<std::ptrdiff_t>(nothers));
    return arranged;
}

void allocate_empty(Arrays &outputs) {
    for (auto &out : outputs)
        out.set_data(mx::allocator::malloc(0));
}

void must_fit(int fits) {
    if (!fits) throw std::runtime_error("[r4] So many rows do not fit a launch.");
}

void count(const char *operation, const char *kernel, int nrows,
           const std::vector<CudaPart> &parts) {
    for (const auto &p : parts)
        r4_count(operation, kernel, nrows, p.rows, p.cols);
}

} // namespace

void CudaMatvec::eval_gpu(const Arrays &inputs, Arrays &outputs) {
    static const char *const kernels[] = {"binade_r4_matvec_1", "binade_r4_matvec_2",
                                          "binade_r4_matvec_3"};
    static const char *const names[] = {"matvec_1", "matvec_2", "matvec_3"};
    const auto &x = inputs[0];
    int cols = parts_[0].cols, n = mlx_per_lane(x, cols), per_lane = layout_per_lane(parts_[0]);
    size_t nrows = 0, nparts = parts_.size();
    Scalars scalars{cols, per_lane};
    r4_grid grid;

    if (x.size() != static_cast<size_t>(cols))
        throw std::runtime_error(
            "[r4_matmul] A function that was compiled for one row of x cannot take several.");
    for (const auto &p : parts_) {
        nrows += static_cast<size_t>(p.rows);
        scalars.insert(scalars.end(), {p.row0, p.rows, p.base});
    }
    if (n == per_lane && (x.offset() % 8 == 0 || !x.flags().row_contiguous) &&
        r4_matvec_grid(&cuda_device(stream()), static_cast<unsigned>(cols), nrows, &grid)) {
        cuda_run({kernels[nparts - 1], scalars, grid}, stream(), arrays_first(inputs, 1), outputs);
        count("matmul", names[nparts - 1], 1, parts_);
        return;
    }
    for (size_t i = 0; i < nparts; i++) {
        const auto &p = parts_[i];
        auto arrays = inputs.begin() + 1 + static_cast<std::ptrdiff_t>(3 * i);
        must_fit(r4_matvec_any_grid(static_cast<size_t>(p.rows), &grid));
        cuda_run({"binade_r4_matvec_any", {cols, per_lane, p.row0, p.rows, p.base, n}, grid},
                 stream(), {arrays[0], arrays[1], arrays[2], x}, {outputs[i]});
    }
    count("matmul", "matvec_any", 1, parts_);
}

void CudaGather::eval_gpu(const Arrays &inputs, Arrays &outputs) {
    static const char *const kernels[] = {"binade_r4_gather_1", "binade_r4_gather_2"};
    static const char *const names[] = {"gather_1", "gather_2"};
    const auto &x = inputs[0];
    int cols = parts_[0].cols, nitems = static_cast<int>(inputs[2].size());
    int nx = static_cast<int>(x.size() / static_cast<size_t>(cols));
    size_t taken = 0, nparts = parts_.size();
    Scalars scalars{nitems, nx, items_per_x_, parts_[0].experts, cols, layout_per_lane(parts_[0])};
    r4_grid grid;

    if (nitems == 0) return allocate_empty(outputs);
    for (const auto &p : parts_) {
        taken += static_cast<size_t>(p.rows);
        scalars.insert(scalars.end(), {p.row0, p.rows, p.block_rows, p.base});
    }
    if (mlx_per_lane(x, cols) != layout_per_lane(parts_[0]) ||
        (x.flags().row_contiguous && x.offset() % 8 != 0) ||
        !r4_gather_grid(&cuda_device(stream()), static_cast<unsigned>(cols),
                        static_cast<size_t>(nitems), taken, &grid))
        throw std::runtime_error("[r4_gather_mm] x begins at an odd place, or has too many columns "
                                 "for this GPU: no kernel serves that.");
    cuda_run({kernels[nparts - 1], scalars, grid}, stream(), arrays_first(inputs, 3), outputs);
    count("gather_mm", names[nparts - 1], nitems, parts_);
}

void CudaRows::eval_gpu(const Arrays &inputs, Arrays &outputs) {
    const auto &p = parts_[0];
    const auto &ids = inputs[0];
    int nids = static_cast<int>(ids.size()), per_lane = layout_per_lane(p);
    int id_nbytes = static_cast<int>(ids.itemsize());
    r4_grid grid;

    if (nids == 0) return allocate_empty(outputs);
    must_fit(r4_rows_grid(static_cast<unsigned>(p.cols), static_cast<size_t>(nids), &grid));
    cuda_run(
        {"binade_r4_rows",
         {nids, p.row0, p.rows, p.cols, per_lane, p.base, id_nbytes, ids.dtype() != mx::uint32},
         grid},
        stream(), arrays_first(inputs, 1), outputs);
    count("rows", "rows", nids, parts_);
}

void CudaRebuild::eval_gpu(const Arrays &inputs, Arrays &outputs) {
    const auto &p = parts_[0];
    int nout = p.experts * p.rows;
    r4_grid grid;

    must_fit(r4_rebuild_grid(static_cast<unsigned>(p.cols), static_cast<size_t>(nout), &grid));
    cuda_run({"binade_r4_rebuild",
              {nout, p.cols, layout_per_lane(p), p.base, p.row0, p.rows, p.block_rows},
              grid},
             stream(), inputs, outputs);
    count("rebuild", "rebuild", 0, parts_);
}

} // namespace binade
