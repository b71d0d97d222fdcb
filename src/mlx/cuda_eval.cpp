// cuda_eval.cpp - the nodes of cuda_nodes.h on NVIDIA GPUs: which kernel of src/cuda runs, with
// what.
#include "cuda/r4_gpu_layout.h"
#include "mlx/allocator.h"
#include "mlx/cuda_launch.h"
#include "mlx/cuda_nodes.h"
#include "mlx/r4_path.h"

namespace binade {

namespace {

// Whether MLX copies x, of one row or of items of one row, before it multiplies: then x begins at a
// place of its own.
bool mlx_copies_row(const mx::array &x) {
    if (!x.flags().row_contiguous) return true;
    return x.ndim() == 2 && x.strides(0) != x.shape(1) && x.strides(0) != 1;
}

bool mlx_copies_items(const mx::array &x) {
    if (x.flags().row_contiguous) return false;
    for (int d = 0; d + 3 < static_cast<int>(x.ndim()); d++)
        if (x.strides(d + 1) * x.shape(d) != x.strides(d)) return true;
    return x.strides(-1) != 1 || (x.strides(-2) != x.shape(-1) && x.strides(-2) != 1);
}

// The elements that a lane of MLX's gemv takes at once: by K, and by where x begins.
int mlx_per_lane(const mx::array &x, bool is_copied) {
    int cols = x.shape(-1);
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

// A kernel's name in machine code, and in counts.
struct Kernel {
    const char *entry, *name;
};

const Kernel &matvec_kernel(CudaEpilogue epilogue, size_t nparts, bool is_normed) {
    static const Kernel plain[] = {{"binade_r4_matvec_1", "matvec_1"},
                                   {"binade_r4_matvec_2", "matvec_2"},
                                   {"binade_r4_matvec_3", "matvec_3"}};
    static const Kernel normed[] = {{"binade_r4_matvec_normed_1", "matvec_normed_1"},
                                    {"binade_r4_matvec_normed_2", "matvec_normed_2"},
                                    {"binade_r4_matvec_normed_3", "matvec_normed_3"}};
    static const Kernel added{"binade_r4_matvec_added", "matvec_added"};
    static const Kernel gated[] = {{"binade_r4_matvec_gated", "matvec_gated"},
                                   {"binade_r4_matvec_gated_normed", "matvec_gated_normed"}};
    if (epilogue == CudaEpilogue::added) return added;
    if (epilogue == CudaEpilogue::gated) return gated[is_normed];
    return is_normed ? normed[nparts - 1] : plain[nparts - 1];
}

const Kernel &gather_kernel(CudaEpilogue epilogue, size_t nparts) {
    static const Kernel plain[] = {{"binade_r4_gather_1", "gather_1"},
                                   {"binade_r4_gather_2", "gather_2"}};
    static const Kernel gated{"binade_r4_gather_gated", "gather_gated"};
    return epilogue == CudaEpilogue::gated ? gated : plain[nparts - 1];
}

// Four BF16 at once can be read from where x begins, or from its copy.
bool is_aligned(const mx::array &x) {
    return x.offset() % 8 == 0 || !x.flags().row_contiguous;
}

[[noreturn]] void refuse_place(const char *operation) {
    throw std::runtime_error(std::string("[") + operation +
                             "] x begins at an odd place, or has too many columns for this GPU: "
                             "no kernel serves that.");
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
    const auto &x = inputs[0];
    int cols = parts_[0].cols, n = mlx_per_lane(x, mlx_copies_row(x));
    int per_lane = layout_per_lane(parts_[0]);
    size_t nrows = 0, nparts = parts_.size();
    size_t nothers = 1 + (epilogue_ != CudaEpilogue::none) + eps_.has_value();
    Scalars scalars{cols, per_lane};
    r4_grid grid;

    if (x.size() != static_cast<size_t>(cols))
        throw std::runtime_error(
            "[r4_matmul] A function that was compiled for one row of x cannot take several.");
    for (const auto &p : parts_) {
        nrows += static_cast<size_t>(p.rows);
        scalars.insert(scalars.end(), {p.row0, p.rows, p.base});
    }
    if (eps_) scalars.push_back(*eps_);
    if (n == per_lane && is_aligned(x) &&
        r4_matvec_grid(&cuda_device(stream()), static_cast<unsigned>(cols), nrows, &grid)) {
        const auto &kernel = matvec_kernel(epilogue_, nparts, eps_.has_value());
        cuda_run({kernel.entry, scalars, grid}, stream(), arrays_first(inputs, nothers), outputs);
        count("matmul", kernel.name, 1, parts_);
        return;
    }
    if (nothers > 1) refuse_place("r4_matmul");
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
    const auto &x = inputs[0];
    int cols = parts_[0].cols, nitems = static_cast<int>(inputs[2].size());
    int nx = static_cast<int>(x.size() / static_cast<size_t>(cols));
    int per_lane = layout_per_lane(parts_[0]);
    size_t taken = 0;
    bool is_gated = epilogue_ == CudaEpilogue::gated;
    Scalars scalars{nitems, nx, items_per_x_, parts_[0].experts, cols, per_lane};
    r4_grid grid;

    if (nitems == 0) return allocate_empty(outputs);
    for (const auto &p : parts_) {
        taken += static_cast<size_t>(p.rows);
        scalars.insert(scalars.end(), {p.row0, p.rows, p.block_rows, p.base});
    }
    if (is_gated) taken /= 2; // a gate and an up go together
    int n = mlx_per_lane(x, mlx_copies_items(x));
    if (n == per_lane && is_aligned(x) &&
        r4_gather_grid(&cuda_device(stream()), static_cast<unsigned>(cols),
                       static_cast<size_t>(nitems), taken, &grid)) {
        const auto &kernel = gather_kernel(epilogue_, parts_.size());
        cuda_run({kernel.entry, scalars, grid}, stream(), arrays_first(inputs, is_gated ? 4 : 3),
                 outputs);
        count("gather_mm", kernel.name, nitems, parts_);
        return;
    }
    if (is_gated) refuse_place("r4_gather_mm");
    for (size_t i = 0; i < parts_.size(); i++) {
        const auto &p = parts_[i];
        auto arrays = inputs.begin() + 3 + static_cast<std::ptrdiff_t>(3 * i);
        must_fit(
            r4_matvec_any_grid(static_cast<size_t>(nitems) * static_cast<size_t>(p.rows), &grid));
        cuda_run({"binade_r4_gather_any",
                  {nitems, nx, items_per_x_, p.experts, cols, per_lane, p.row0, p.rows,
                   p.block_rows, p.base, n},
                  grid},
                 stream(), {arrays[0], arrays[1], arrays[2], x, inputs[1], inputs[2]},
                 {outputs[i]});
    }
    count("gather_mm", "gather_any", nitems, parts_);
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
