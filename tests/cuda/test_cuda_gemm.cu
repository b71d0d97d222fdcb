/* test_cuda_gemm.cu - several rows of x times R4 on Hopper: the same bits as steps of tensor cores
 * in order, which have those of the plain C, and as cublasLt's own products with the plan that MLX
 * would take. On other GPUs there is nothing to test.
 *
 *   test_cuda_gemm [few|large]
 */
#include <algorithm>

#include "cublaslt_product.cuh"
#include "cuda/gemm_table.h"
#include "cuda/r4_launch_gemm.cuh"
#include "cuda/r4_mma_plain.h"
#include "gemm_steps.cuh"
#include "gpu_check.cuh"

static run_length length;
static const unsigned tiles[] = {16, 64, 128};

static std::string text(const char *what, unsigned a, const char *more = "", unsigned b = 0) {
    return std::string(what) + std::to_string(a) + more + (*more ? std::to_string(b) : "");
}

/* ---- One weight ------------------------------------------------------------------------------ */

static std::vector<uint16_t> multiply_steps(const sample &s, const uint16_t *x, unsigned nx,
                                            unsigned split_ncols) {
    uint16_t *y = new_device<uint16_t>((size_t)nx * s.r4.nrows);
    run_gemm_steps(s.bf16, x, nullptr, y, s.r4.nrows, nx, s.r4.ncols, split_ncols);
    must(cudaDeviceSynchronize(), "gemm_steps");
    auto products = to_host(y, (size_t)nx * s.r4.nrows);
    cudaFree(y);
    return products;
}

static std::vector<uint16_t> multiply_r4(const r4_view &view, const uint16_t *x, unsigned nx,
                                         unsigned nsplits, unsigned split_ncols, unsigned tile) {
    r4_view v = view;
    v.y = new_device<uint16_t>((size_t)nx * v.taken);
    must(r4_gpu_gemm(v, x, nx, nsplits, split_ncols, 0, tile), "gemm");
    must(cudaDeviceSynchronize(), "gemm");
    auto products = to_host(v.y, (size_t)nx * v.taken);
    cudaFree(v.y);
    return products;
}

static void check_plain(unsigned nrows, unsigned ncols, kind of) {
    const unsigned nx = 9;
    sample s = new_sample(nrows, ncols, of);
    auto x = draw_x(nx, ncols, of);
    uint16_t *on_device = to_device(x);
    for (int nsplits = 1; nsplits <= R4_GEMM_NSPLITS_MOST; nsplits++) {
        const r4_splits splits = {nsplits, nsplits > 1 ? GEMM_REDUCTION_FP32 : GEMM_REDUCTION_NONE};
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
            for (unsigned tile : tiles)
                same(multiply_r4(view_all(s.r4), on_device, nx, nsplits, split_ncols, tile),
                     expected,
                     (text("M ", nx, ", splits ", nsplits) + text(", tile ", tile)).c_str(),
                     s.name);
            if (nrows < 100) continue;
            r4_view part = {s.r4, 7, nrows - 20, nrows, nullptr};
            std::vector<uint16_t> some;
            for (unsigned m = 0; m < nx; m++)
                some.insert(some.end(), expected.begin() + (size_t)m * nrows + 7,
                            expected.begin() + (size_t)m * nrows + 7 + part.taken);
            same(multiply_r4(part, on_device, nx, nsplits, split_ncols, 0), some,
                 text("some rows, M ", nx).c_str(), s.name);
        }
    }
    cudaFree(on_device);
    free_sample(s);
}

/* ---- Experts --------------------------------------------------------------------------------- */

static void check_experts(unsigned nexperts, unsigned nrows, unsigned ncols, kind of,
                          std::vector<uint32_t> indices) {
    const unsigned nx = (unsigned)indices.size(), row0 = 64, block_nrows = nrows + row0;
    sample s = new_sample(nexperts * block_nrows, ncols, of);
    uint16_t *x = to_device(draw_x(nx, ncols, of));
    std::vector<uint16_t> rows;
    for (unsigned e = 0; e < nexperts; e++)
        rows.insert(rows.end(), s.w.begin() + ((size_t)e * block_nrows + row0) * ncols,
                    s.w.begin() + (size_t)(e + 1) * block_nrows * ncols);
    std::sort(indices.begin(), indices.end());
    uint32_t *on_device = to_device(indices);
    uint16_t *w = to_device(rows), *y = new_device<uint16_t>((size_t)nx * nrows);
    run_gemm_steps(w, x, on_device, y, nrows, nx, ncols, ncols);
    must(cudaDeviceSynchronize(), "gemm_steps");
    auto expected = to_host(y, (size_t)nx * nrows);
    for (unsigned tile : tiles) {
        must(cudaMemset(y, 0xa5, (size_t)nx * nrows * 2), "memset");
        r4_view view = {s.r4, row0, nrows, block_nrows, y};
        must(r4_gpu_gemm_experts(view, x, on_device, nx, nexperts, 0, tile), "experts");
        must(cudaDeviceSynchronize(), "experts");
        same(to_host(y, (size_t)nx * nrows), expected,
             (text("experts ", nexperts, ", rows of x ", nx) + text(", tile ", tile)).c_str(),
             s.name);
    }
    cudaFree(x), cudaFree(w), cudaFree(y), cudaFree(on_device);
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
        multiply_r4(view_all(s.r4), on_device, nx, 2, (unsigned)gemm_split_ncols((int)ncols, 2), 0);
    expect(split != expected, "splits are noticed", name);
    for (unsigned row = 0; row < nrows; row++)
        std::reverse(w.begin() + (size_t)row * ncols, w.begin() + (size_t)(row + 1) * ncols);
    for (unsigned row = 0; row < nx; row++)
        std::reverse(x.begin() + (size_t)row * ncols, x.begin() + (size_t)(row + 1) * ncols);
    uint16_t *bf16 = to_device(w), *reversed_x = to_device(x);
    r4_gpu reversed = weight_from_bf16(bf16, nrows, ncols, choose_base(CANCELLING));
    auto other = multiply_r4(view_all(reversed), reversed_x, nx, 1, ncols, 0);
    expect(other != expected, "descending steps are noticed", name);
    cudaFree(on_device), cudaFree(bf16), cudaFree(reversed_x);
    free_weight(reversed);
    free_sample(s);
}

/* ---- cublasLt -------------------------------------------------------------------------------- */

static std::vector<uint16_t> multiply_lt(const sample &s, const uint16_t *x, unsigned nx) {
    uint16_t *y = new_device<uint16_t>((size_t)nx * s.r4.nrows);
    lt_product(nx, s.r4.nrows, s.r4.ncols).run(s.bf16, x, y, 0);
    must(cudaDeviceSynchronize(), "cublasLt");
    auto products = to_host(y, (size_t)nx * s.r4.nrows);
    cudaFree(y);
    return products;
}

/* Products whose plan is in the table; the others are counted. */
static unsigned nplanned, nleft;

static void check_lt(gemm_planner *planner, unsigned nrows, unsigned ncols, kind of,
                     const std::vector<unsigned> &nxs) {
    char message[GPU_MESSAGE_NBYTES];
    sample s = new_sample(nrows, ncols, of);
    uint16_t *x = to_device(draw_x(*std::max_element(nxs.begin(), nxs.end()), ncols, of));
    for (unsigned nx : nxs) {
        gemm_plan plan;
        if (gemm_planner_ask(planner, (int)nx, (int)nrows, (int)ncols, &plan, message)) {
            fprintf(stderr, "%s\n", message);
            exit(2);
        }
        unsigned nsplits = (unsigned)std::max(plan.nsplits, 1);
        if (!gemm_find_row(9, 0, &plan, (int)ncols, message) || nsplits > R4_GEMM_NSPLITS_MOST ||
            nx > R4_GEMM_NX_MOST) {
            nleft++;
            continue;
        }
        nplanned++;
        unsigned split_ncols = (unsigned)gemm_split_ncols((int)ncols, (int)nsplits);
        same(multiply_r4(view_all(s.r4), x, nx, nsplits, split_ncols, 0), multiply_lt(s, x, nx),
             text("cublasLt, M ", nx, ", splits ", nsplits).c_str(), s.name);
    }
    cudaFree(x);
    free_sample(s);
}

/* Linear shapes of Llama 3.1 8B and 3.2 3B, Gemma 4 12B, E4B and 26B-A4B, Qwen3.5 9B. */
static const unsigned shapes[][2] = {
    {14336, 4096}, {4096, 14336}, {4096, 4096},  {1024, 4096},  {8192, 3072}, {3072, 8192},
    {3072, 3072},  {1024, 3072},  {3840, 8192},  {512, 3840},   {8192, 3840}, {3840, 4096},
    {2048, 3840},  {4096, 3840},  {10240, 2560}, {2560, 10240}, {2560, 4096}, {4096, 2560},
    {2560, 2048},  {2048, 2560},  {1024, 2560},  {512, 2560},   {2112, 2816}, {2816, 2112},
    {2816, 8192},  {1024, 2816},  {2816, 4096},  {2048, 2816},  {4096, 2816}, {12288, 4096},
    {3840, 15360}, {15360, 3840}, {704, 2816},   {2816, 704},   {576, 576},   {192, 8192}};

static void check_all_lt() {
    char message[GPU_MESSAGE_NBYTES];
    gemm_planner *planner = nullptr;
    std::vector<unsigned> all, sampled = {2, 3, 16, 17, 64, 65, 128, 129, 256};
    for (unsigned nx = 2; nx <= 130; nx++)
        all.push_back(nx);
    all.insert(all.end(), {255, 256, 257, 512});
    if (gemm_planner_open(nullptr, 9, &planner, message)) {
        fprintf(stderr, "%s\n", message);
        exit(2);
    }
    for (const auto &shape : shapes) {
        bool has_all = length == LARGE && (shape[0] == 1024 || shape[0] == 2112);
        if (length != LARGE && (size_t)shape[0] * shape[1] > 4000000) continue;
        for (kind of : {MODEL, CANCELLING})
            check_lt(planner, shape[0], shape[1], of, has_all ? all : sampled);
    }
    expect(nplanned > 100, "most plans are known", "cublasLt");
    printf("%u products as cublasLt plans them, %u whose plan is not known\n", nplanned, nleft);
    gemm_planner_close(planner);
}

int main(int argc, char **argv) {
    cudaDeviceProp device;
    length = read_length(argc, argv);
    must(cudaGetDeviceProperties(&device, 0), "device");
    if (device.major != 9) {
        printf("0 checks, 0 failed: these kernels are for GPUs of compute capability 9.0\n");
        return 0;
    }
    if (length == FEW) {
        check_weight(100, 704, FEW_ESCAPES, {3, 17});
        check_weight(64, 1152, CANCELLING, {65});
        check_experts(3, 64, 256, FEW_ESCAPES, {0, 0, 2, 2, 2});
        return end_checks();
    }
    for (int of = 0; of < NKINDS; of++) {
        check_plain(37, 192, (kind)of);
        check_plain(20, 2112, (kind)of);
        check_weight(64, 64, (kind)of, {2, 20});
        check_weight(70, 128, (kind)of, {1, 7, 8});
        check_weight(300, 704, (kind)of, {2, 9, 16, 17, 33, 64, 65, 130});
        check_weight(129, 2112, (kind)of, {5, 63, 127});
        check_weight(128, 4096, (kind)of, {2, 31, 129, 256});
        check_weight(8500, 512, (kind)of, {3, 100});
    }
    check_wrong_orders(512);
    check_wrong_orders(2112);
    check_all_experts();
    check_all_lt();
    return end_checks();
}
