// cuda_load.cpp - see cuda_load.h.
//
// A tensor's parts are read into memory that the GPU sees, two passes of kernels make R4 of them,
// and they are let go: more than one tensor's parts are never in memory. Between the passes the
// host learns how many escapes there are.
#include "mlx/cuda_load.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "binade_r4.h"
#include "cuda/r4_gpu_layout.h"
#include "cuda/r4_gpu_plain.h"
#include "mlx/cuda_launch.h"
#include "mlx/memory.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace binade {

namespace {

// Rows of all experts.
struct Extent {
    int nrows, ncols, base;

    unsigned cols() const { return static_cast<unsigned>(ncols); }
    Scalars scalars() const { return {nrows, ncols, static_cast<int>(r4_per_lane(cols())), base}; }
    int row_nwords() const { return static_cast<int>(r4_nslices(cols())) * R4_SLICE_NBYTES / 4; }
};

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

// The sum of all, at the end of what scan gives. It is copied: what the host reads moves to its
// memory, and the rest of the array is to stay.
uint32_t total_of(const mx::array &sums, mx::Stream s) {
    int width = sums.ndim() == 2 ? sums.shape(1) : 1;
    auto last = mx::array(static_cast<int>(sums.size()) - width);
    return mx::take(mx::flatten(sums, s), last, s).item<uint32_t>();
}

R4Weight transcode(const Source &source, const Extent &e, const std::string &name, mx::Stream s) {
    auto scalars = e.scalars();
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
    if (can_be_damaged && mx::max(made[3], s).item<uint32_t>() != 0)
        throw Error(BINADE_E_DATA, name + ": the codes are damaged: a row's do not end where the "
                                          "next row's begin");
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
    return {.arrays = std::make_shared<const Arrays>(Arrays{made[0], rows, escapes}),
            .layout = R4Layout::cuda,
            .experts = 1,
            .rows = e.nrows,
            .cols = e.ncols,
            .stacked = false,
            .row0 = 0,
            .block_rows = e.nrows,
            .base = e.base};
}

// Rows [row0, row1) of every block_rows.
R4Weight view_of(R4Weight whole, int nexperts, bool stacked, int row0, int row1) {
    whole.block_rows /= nexperts;
    whole.experts = nexperts;
    whole.stacked = stacked;
    whole.row0 = row0;
    whole.rows = row1 - row0;
    return whole;
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
Source fixed_source(const Arrays &parts, const Extent &e, const std::string &name, mx::Stream s) {
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
        throw Error(BINADE_E_DATA,
                    name + ": the codes are damaged: meta asks for another number of them");
    return {"binade_r4_from_fixed_1",
            "binade_r4_from_fixed_2",
            {parts[BINADE_PART_RAW]},
            {parts[BINADE_PART_TABLE], meta, codes, parts[BINADE_PART_TAIL], code_starts,
             escape_starts},
            {nwords, nescapes}};
}

R4Weight load_whole(const binade_checkpoint *c, size_t i, const std::string &name, mx::Stream s) {
    binade_stored stored;
    binade_error error{};
    check(binade_describe_stored(c, i, &stored, &error), error);
    Arrays parts;
    for (unsigned p = 0; p < BINADE_NPARTS; p++) {
        bool are_words = p == BINADE_PART_CODES || (p == BINADE_PART_TAIL && stored.format == 2);
        auto dtype = are_words ? mx::uint32 : mx::uint8;
        auto part = new_array({dimension(stored.part_nbytes[p] / mx::size_of(dtype))}, dtype);
        check(binade_read_stored(c, i, p, part.data<char>(), part.nbytes(), &error), error);
        parts.push_back(part);
    }
    uint8_t table[256];
    std::copy_n(parts[BINADE_PART_TABLE].data<uint8_t>(), 256, table);
    Extent e{dimension(stored.rows), dimension(stored.cols),
             static_cast<int>(r4_choose_base(table))};
    return transcode(stored.format == 2 ? rice_source(parts) : fixed_source(parts, e, name, s), e,
                     name, s);
}

// ---- BF16 --------------------------------------------------------------------------------------

// Exponents by rank, the most frequent first.
std::array<uint8_t, 256> rank_exponents(const mx::array &bf16, const Extent &e, mx::Stream s) {
    r4_grid grid;
    must_fit(r4_count_grid(&cuda_device(s), static_cast<size_t>(e.nrows), e.cols(), &grid));
    auto counts = cuda_node({"binade_r4_count", {e.nrows, e.ncols}, grid}, s, {bf16},
                            {{static_cast<int>(grid.nblocks), 256}}, {mx::uint32})[0];
    auto sums = mx::sum(mx::astype(counts, mx::uint64, s), 0, false, s);
    sums.eval();
    const auto *total = sums.data<uint64_t>();
    std::array<uint8_t, 256> table;
    std::iota(table.begin(), table.end(), 0);
    std::stable_sort(table.begin(), table.end(),
                     [total](uint8_t a, uint8_t b) { return total[a] > total[b]; });
    return table;
}

} // namespace

R4Weight CudaViews::load(const binade_checkpoint *c, size_t i, int row0, int row1) {
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

    std::lock_guard guard(lock_);
    auto &known = loaded_[i];
    if (auto arrays = known.arrays.lock()) {
        R4Weight whole{
            arrays, R4Layout::cuda,   1,         nexperts * nrows, dimension(t.cols), false,
            0,      nexperts * nrows, known.base};
        return view_of(whole, nexperts, t.ndim == 3, row0, row1);
    }
    auto whole = load_whole(c, i, name, mx::default_stream(mx::default_device()));
    // What held the parts would otherwise be given to later arrays, in memory that CPU and GPU
    // share.
    mx::clear_cache();
    known = {whole.arrays, whole.base};
    return view_of(whole, nexperts, t.ndim == 3, row0, row1);
}

R4Weight cuda_make_r4(const mx::array &weight) {
    auto s = mx::default_stream(mx::default_device());
    bool stacked = weight.ndim() == 3;
    int nexperts = stacked ? weight.shape(0) : 1, nrows = weight.shape(-2);
    if (weight.size() == 0) {
        auto none = mx::zeros({0}, mx::uint32, s);
        mx::eval(none);
        return {std::make_shared<const Arrays>(Arrays{none, none, none}),
                R4Layout::cuda,
                nexperts,
                nrows,
                weight.shape(-1),
                stacked,
                0,
                nrows,
                0};
    }
    auto bf16 = mx::contiguous(weight, false, s);
    Extent e{dimension(uint64_t(nexperts) * uint64_t(nrows)), weight.shape(-1), 0};
    e.base = static_cast<int>(r4_choose_base(rank_exponents(bf16, e, s).data()));
    Source source{"binade_r4_from_bf16_1", "binade_r4_from_bf16_2", {}, {bf16}, {}};
    return view_of(transcode(source, e, "", s), nexperts, stacked, 0, nrows);
}

} // namespace binade
