/* test_cuda_gemm.cu - several rows of x times R4 on Hopper: the same bits as steps of tensor cores
 * in order, which have those of the plain C. On other GPUs there is nothing to test.
 *
 *   test_cuda_gemm [few|large]
 */
#include "cuda/r4_mma_plain.h"
#include "gemm_check.cuh"
#include "gemm_steps.cuh"

static const r4_gemm_tile tiles[] = {
    {64, 16}, {64, 48}, {64, 64}, {64, 112}, {64, 144}, {128, 16}, {128, 32}, {128, 80}, {128, 96},
};
/* With four warps taking turns at a tile, two, or one. */
static const r4_gemm_tile skinny_tiles[] = {
    {8, 16, R4_GEMM_SKINNY},   {8, 48, R4_GEMM_SKINNY},  {8, 96, R4_GEMM_SKINNY},
    {8, 128, R4_GEMM_SKINNY},  {8, 144, R4_GEMM_SKINNY}, {16, 64, R4_GEMM_SKINNY},
    {16, 128, R4_GEMM_SKINNY}, {32, 16, R4_GEMM_SKINNY}, {32, 112, R4_GEMM_SKINNY},
    {32, 144, R4_GEMM_SKINNY},
};

/* ---- One weight ------------------------------------------------------------------------------ */

static std::vector<uint16_t> multiply_steps(const sample &s, const uint16_t *x, unsigned nx,
                                            unsigned split_ncols) {
    return take_products((size_t)nx * s.r4.nrows, "gemm_steps", [&](uint16_t *y) {
        run_gemm_steps(s.bf16, x, nullptr, y, s.r4.nrows, nx, s.r4.ncols, split_ncols);
    });
}

static void check_plain(unsigned nrows, unsigned ncols, kind of) {
    const unsigned nx = 9;
    sample s = new_sample(nrows, ncols, of);
    auto x = draw_x(nx, ncols, of);
    uint16_t *on_device = to_device(x);
    for (int nsplits = 1; nsplits <= R4_GEMM_NSPLITS_MOST; nsplits++) {
        const r4_splits splits = {nsplits, nsplits > 1 ? GEMM_REDUCTION_FP32 : GEMM_REDUCTION_NONE,
                                  GEMM_IN_ORDER};
        std::vector<uint16_t> expected((size_t)nx * nrows);
        r4_mma_gemm_plain(s.w.data(), x.data(), nrows, nx, (int)ncols, &splits, expected.data());
        same(multiply_steps(s, on_device, nx, (unsigned)gemm_split_ncols((int)ncols, nsplits)),
             expected, text("steps, splits ", (unsigned)nsplits).c_str(), s.name);
    }
    cudaFree(on_device);
    free_sample(s);
}

/* All rows, and some in the middle of a block. */
static void check_weight(unsigned nrows, unsigned ncols, kind of,
                         const std::vector<unsigned> &nxs) {
    sample s = new_sample(nrows, ncols, of);
    auto x = draw_x(*std::max_element(nxs.begin(), nxs.end()), ncols, of);
    uint16_t *on_device = to_device(x);
    for (unsigned nx : nxs) {
        for (unsigned nsplits = 1; nsplits <= R4_GEMM_NSPLITS_MOST; nsplits++) {
            unsigned split_ncols = (unsigned)gemm_split_ncols((int)ncols, (int)nsplits);
            if (nsplits > 1 && (nsplits - 1) * split_ncols >= ncols) continue; /* an empty one */
            auto expected = multiply_steps(s, on_device, nx, split_ncols);
            auto check_tile = [&](const r4_gemm_tile &tile) {
                if (tile.height > nrows) return;
                same(multiply_r4(view_all(s.r4), on_device, nx, nsplits, split_ncols, tile),
                     expected,
                     (text("M ", nx, ", splits ", nsplits) +
                      text(tile.way == R4_GEMM_SKINNY ? ", skinny tile " : ", tile ", tile.nx,
                           " x ", tile.height))
                         .c_str(),
                     s.name);
            };
            for (const auto &tile : tiles)
                check_tile(tile);
            for (const auto &tile : skinny_tiles)
                if (nx <= tile.nx) check_tile(tile);
            if (nrows < 100) continue;
            r4_view part = {s.r4, 7, nrows - 20, nrows, nullptr};
            std::vector<uint16_t> some;
            for (unsigned m = 0; m < nx; m++)
                some.insert(some.end(), expected.begin() + (size_t)m * nrows + 7,
                            expected.begin() + (size_t)m * nrows + 7 + part.taken);
            same(multiply_r4(part, on_device, nx, nsplits, split_ncols), some,
                 text("some rows, M ", nx).c_str(), s.name);
        }
    }
    cudaFree(on_device);
    free_sample(s);
}

/* ---- Experts --------------------------------------------------------------------------------- */

/* Rows row0 .. row0 + nrows of every block, in memory of their own. */
static uint16_t *cut_out(const sample &s, unsigned row0, unsigned nrows, unsigned block_nrows) {
    const size_t ncols = s.r4.ncols;
    std::vector<uint16_t> rows;
    for (unsigned row = 0; row < s.r4.nrows; row += block_nrows)
        rows.insert(rows.end(), s.w.begin() + (row + row0) * ncols,
                    s.w.begin() + (row + row0 + nrows) * ncols);
    return to_device(rows);
}

/* One part, the last nrows of each block, and two, the first as well. Rows of x whose index is out
 * of range have no product. */
static void check_experts(unsigned nexperts, unsigned nrows, unsigned ncols, kind of,
                          std::vector<uint32_t> indices) {
    const unsigned nx = (unsigned)indices.size(), row0 = 64, block_nrows = nrows + row0;
    const std::vector<uint32_t> beyond = {nexperts, nexperts, ~0u};
    const size_t n = (size_t)nx * nrows, nbeyond = beyond.size() * nrows;
    sample s = new_sample(nexperts * block_nrows, ncols, of);
    uint16_t *x = to_device(draw_x(nx + (unsigned)beyond.size(), ncols, of));
    std::sort(indices.begin(), indices.end());
    indices.insert(indices.end(), beyond.begin(), beyond.end());
    uint32_t *on_device = to_device(indices);
    std::vector<uint16_t> expected[2];
    r4_view views[2];
    for (unsigned i = 0; i < 2; i++) {
        views[i] = {s.r4, i == 0 ? row0 : 0, nrows, block_nrows, new_device<uint16_t>(n + nbeyond)};
        uint16_t *w = cut_out(s, views[i].row0, nrows, block_nrows);
        run_gemm_steps(w, x, on_device, views[i].y, nrows, nx, ncols, ncols);
        must(cudaDeviceSynchronize(), "gemm_steps");
        expected[i] = to_host(views[i].y, n);
        cudaFree(w);
    }
    for (const auto &tile : tiles)
        for (unsigned nparts = 1; nparts <= 2 && tile.height <= nrows; nparts++) {
            for (const auto &view : views)
                must(cudaMemset(view.y, 0xa5, n * 2), "memset");
            must(r4_gpu_gemm_experts(views, nparts, x, on_device, nx, nexperts, 0, R4_GEMM_WGMMA,
                                     tile),
                 "experts");
            must(cudaDeviceSynchronize(), "experts");
            for (unsigned i = 0; i < nparts; i++)
                same(to_host(views[i].y, n), expected[i],
                     (text("experts ", nexperts, ", rows of x ", nx) +
                      text(", parts ", nparts, ", tile ", tile.nx) + text(" x ", tile.height))
                         .c_str(),
                     s.name);
        }
    must(cudaMemset(views[0].y, 0xa5, (n + nbeyond) * 2), "memset");
    must(r4_gpu_gemm_experts(views, 1, x, on_device, nx + (unsigned)beyond.size(), nexperts, 0,
                             R4_GEMM_WGMMA),
         "experts");
    must(cudaDeviceSynchronize(), "experts");
    expected[0].insert(expected[0].end(), nbeyond, 0xa5a5);
    same(to_host(views[0].y, n + nbeyond), expected[0], "indices out of range", s.name);
    cudaFree(x), cudaFree(on_device), cudaFree(views[0].y), cudaFree(views[1].y);
    free_sample(s);
}

static void check_all_experts() {
    for (kind of : {CANCELLING, FEW_ESCAPES, PATTERNS}) {
        std::vector<uint32_t> some, skewed(150, 3), one = {4};
        for (unsigned i = 0; i < 90; i++)
            some.push_back(draw() % 7);
        for (unsigned i = 0; i < 140; i++)
            skewed.push_back(draw() % 2 * 6);
        check_experts(7, 704, 256, of, some);
        check_experts(7, 100, 704, of, skewed);
        check_experts(7, 64, 2816, of, one);
    }
}

/* ---- Other orders ---------------------------------------------------------------------------- */

/* Columns in reverse, and K split where it is not: neither may give the same. */
static void check_wrong_orders(unsigned ncols) {
    const unsigned nrows = 192, nx = 33;
    auto w = draw_weights(nrows, ncols, CANCELLING), x = draw_x(nx, ncols, CANCELLING);
    sample s = new_sample(nrows, ncols, CANCELLING);
    uint16_t *on_device = to_device(x);
    auto expected = multiply_steps(s, on_device, nx, ncols);
    std::string name = s.name;

    auto split =
        multiply_r4(view_all(s.r4), on_device, nx, 2, (unsigned)gemm_split_ncols((int)ncols, 2));
    expect(split != expected, "splits are noticed", name);
    for (unsigned row = 0; row < nrows; row++)
        std::reverse(w.begin() + (size_t)row * ncols, w.begin() + (size_t)(row + 1) * ncols);
    for (unsigned row = 0; row < nx; row++)
        std::reverse(x.begin() + (size_t)row * ncols, x.begin() + (size_t)(row + 1) * ncols);
    uint16_t *bf16 = to_device(w), *reversed_x = to_device(x);
    r4_gpu reversed = weight_from_bf16(bf16, nrows, ncols, choose_base(CANCELLING));
    auto other = multiply_r4(view_all(reversed), reversed_x, nx, 1, ncols);
    expect(other != expected, "descending steps are noticed", name);
    cudaFree(on_device), cudaFree(bf16), cudaFree(reversed_x);
    free_weight(reversed);
    free_sample(s);
}

int main(int argc, char **argv) {
    const run_length length = read_length(argc, argv);
    if (!has_gemm()) return 0;
    if (length == FEW) {
        check_plain(20, 192, CANCELLING);
        check_weight(100, 704, FEW_ESCAPES, {3, 17});
        check_weight(150, 256, PATTERNS, {3});
        check_weight(64, 1152, CANCELLING, {65});
        check_weight(32, 2560, CANCELLING, {5}); /* stages come round */
        check_experts(3, 64, 256, FEW_ESCAPES, {0, 0, 2, 2, 2});
        return end_checks();
    }
    for (int of = 0; of < NKINDS; of++) {
        check_plain(37, 192, (kind)of);
        check_plain(20, 2112, (kind)of);
        check_weight(16, 64, (kind)of, {2, 20});
        check_weight(70, 128, (kind)of, {1, 7, 8});
        check_weight(300, 704, (kind)of, {2, 9, 16, 17, 33, 64, 65, 130});
        check_weight(130, 2112, (kind)of, {5, 63, 127});
        check_weight(128, 4096, (kind)of, {2, 31, 129, 256});
        check_weight(8500, 512, (kind)of, {3, 100});
    }
    check_wrong_orders(512);
    check_wrong_orders(2112);
    check_all_experts();
    return end_checks();
}
