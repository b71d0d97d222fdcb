// cuda_load.cpp - packed weights for NVIDIA GPUs, by kernels of src/cuda; see gpu_load.h.
#include <algorithm>

#include "binade_r4.h"
#include "mlx/cuda_launch.h"
#include "mlx/gpu_load.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace binade {

namespace {

Scalars scalars_of(const GpuExtent &e) {
    return {e.nrows, e.ncols, static_cast<int>(r4_per_lane(e.cols())), e.base};
}

void must_fit(int fits) {
    if (!fits) throw Error(BINADE_E_USAGE, "a weight has too many rows for a GPU");
}

// Two passes over one kind of source.
struct Source {
    const char *pass1, *pass2;
    Arrays raw;     // what pass 1 reads only
    Arrays streams; // what both read
    Scalars scalars;
};

mx::array scan(const mx::array &counts, int n, int width, mx::Stream s) {
    r4_grid grid;
    must_fit(r4_scan_grid(static_cast<size_t>(n), &grid));
    auto shape = width == 1 ? mx::Shape{n + 1} : mx::Shape{n + 1, width};
    return cuda_node({"binade_r4_scan", {n, width}, grid}, s, {counts}, {shape}, {mx::uint32})[0];
}

Arrays transcode(const Source &source, const GpuExtent &e, const std::string &name, mx::Stream s) {
    auto scalars = scalars_of(e);
    scalars.insert(scalars.end(), source.scalars.begin(), source.scalars.end());
    auto inputs = source.raw;
    inputs.insert(inputs.end(), source.streams.begin(), source.streams.end());
    std::vector<mx::Shape> shapes{{e.nrows, e.row_nwords()}, {e.nrows, 2}, {e.nrows, R4_KEPT}};
    bool can_be_damaged = !source.raw.empty();
    if (can_be_damaged) shapes.push_back({e.nrows});
    r4_grid grid;
    must_fit(r4_load_grid(static_cast<size_t>(e.nrows), &grid));

    auto made = cuda_node({source.pass1, scalars, grid}, s, inputs, shapes,
                          std::vector<mx::Dtype>(shapes.size(), mx::uint32));
    auto rows = scan(made[1], e.nrows, 2, s);
    mx::eval(made[0], made[2], rows);
    if (can_be_damaged && mx::max(made[3], s).item<uint32_t>() != 0) refuse_codes(name);
    int nescapes = dimension(total_of(rows, s)); // which stays at 2^32 - 1 where there are more
    auto escapes = mx::zeros({0}, mx::uint32, s);
    if (nescapes > 0) {
        inputs = source.streams;
        inputs.insert(inputs.end(), {rows, made[2]});
        escapes =
            cuda_node({source.pass2, scalars, grid}, s, inputs, {{nescapes}}, {mx::uint32})[0];
    }
    mx::eval(escapes);
    mx::synchronize(s);
    return {made[0], rows, escapes};
}

// ---- Formats -----------------------------------------------------------------------------------

Source rice_source(const Arrays &parts) {
    return {"binade_r4_from_rice_1",
            "binade_r4_from_rice_2",
            {parts[BINADE_PART_RAW]},
            {parts[BINADE_PART_TABLE], parts[BINADE_PART_META], parts[BINADE_PART_CODES],
             parts[BINADE_PART_TAIL]},
            {dimension(parts[BINADE_PART_CODES].size())}};
}

// Where each row's codes and escapes begin is not stored.
Source fixed_source(const Arrays &parts, const GpuExtent &e, const std::string &name,
                    mx::Stream s) {
    const auto &meta = parts[BINADE_PART_META], &codes = parts[BINADE_PART_CODES];
    int nwords = dimension(codes.size()), nescapes = dimension(parts[BINADE_PART_TAIL].size());
    r4_grid grid;
    must_fit(r4_load_grid(static_cast<size_t>(e.nrows), &grid));

    auto widths = cuda_node({"binade_r4_measure_fixed", {e.nrows, e.ncols}, grid}, s, {meta},
                            {{e.nrows}}, {mx::uint32})[0];
    auto code_starts = scan(widths, e.nrows, 1, s);
    auto counts = cuda_node({"binade_r4_count_fixed", {e.nrows, e.ncols, nwords}, grid}, s,
                            {meta, codes, code_starts}, {{e.nrows}}, {mx::uint32})[0];
    auto escape_starts = scan(counts, e.nrows, 1, s);
    mx::eval(code_starts, escape_starts);
    if (4 * uint64_t{total_of(code_starts, s)} != codes.size() ||
        total_of(escape_starts, s) != parts[BINADE_PART_TAIL].size())
        refuse_codes(name);
    return {"binade_r4_from_fixed_1",
            "binade_r4_from_fixed_2",
            {parts[BINADE_PART_RAW]},
            {parts[BINADE_PART_TABLE], meta, codes, parts[BINADE_PART_TAIL], code_starts,
             escape_starts},
            {nwords, nescapes}};
}

} // namespace

Arrays cuda_from_stored(const GpuStored &stored, const GpuExtent &e, mx::Stream s) {
    const auto &parts = stored.parts;
    return transcode(stored.format == 2 ? rice_source(parts)
                                        : fixed_source(parts, e, stored.name, s),
                     e, stored.name, s);
}

Arrays cuda_from_bf16(const mx::array &bf16, const GpuExtent &e, mx::Stream s) {
    return transcode({"binade_r4_from_bf16_1", "binade_r4_from_bf16_2", {}, {bf16}, {}}, e, "", s);
}

std::array<uint64_t, 256> cuda_count_exponents(const mx::array &bf16, const GpuExtent &e,
                                               mx::Stream s) {
    r4_grid grid;
    must_fit(r4_count_grid(&cuda_device(s), static_cast<size_t>(e.nrows), e.cols(), &grid));
    auto counts = cuda_node({"binade_r4_count", {e.nrows, e.ncols}, grid}, s, {bf16},
                            {{static_cast<int>(grid.nblocks), 256}}, {mx::uint32})[0];
    auto sums = mx::sum(mx::astype(counts, mx::uint64, s), 0, false, s);
    sums.eval();
    std::array<uint64_t, 256> total;
    std::copy_n(sums.data<uint64_t>(), 256, total.begin());
    return total;
}

} // namespace binade
