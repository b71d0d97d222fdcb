/* test_cuda_gemm_mma.cu - several rows of x times R4 by mma.sync: in every order that is known of
 * cublasLt's plans the same bits as plain steps of the same GPU, and on Hopper as the plain C.
 *
 *   test_cuda_gemm_mma [few|large]
 */
#include "cuda/r4_mma_plain.h"
#include "gemm_check.cuh"
#include "gemm_steps.cuh"

struct order {
    const char *name;
    unsigned nsplits, reduction;
    bool has_two_slices;
};

static const order orders[] = {
    {"in order", 1, GEMM_REDUCTION_NONE, false},
    {"two slices", 1, GEMM_REDUCTION_NONE, true},
    {"2 splits", 2, GEMM_REDUCTION_FP32, false},
    {"3 splits, BF16", 3, GEMM_REDUCTION_BF16, false},
    {"4 splits, in place", 4, GEMM_REDUCTION_IN_PLACE, false},
    {"18 splits", 18, GEMM_REDUCTION_FP32, false},
};

static std::vector<uint16_t> multiply_steps(const sample &s, const uint16_t *x, unsigned nx,
                                            const order &how) {
    const unsigned ncols = s.r4.ncols;
    return take_products((size_t)nx * s.r4.nrows, "gemm_steps", [&](uint16_t *y) {
        run_gemm_steps(s.bf16, x, nullptr, y, s.r4.nrows, nx, ncols,
                       (unsigned)gemm_split_ncols((int)ncols, (int)how.nsplits), how.reduction,
                       how.has_two_slices);
    });
}

static std::vector<uint16_t> multiply(const r4_view &view, const uint16_t *x, unsigned nx,
                                      const order &how, unsigned height) {
    const int split_ncols = gemm_split_ncols((int)view.w.ncols, (int)how.nsplits);
    return take_products((size_t)nx * view.taken, "gemm_mma", [&](uint16_t *y) {
        r4_view v = view;
        v.y = y;
        must(r4_gpu_gemm_mma(v, x, nx, how.nsplits, (unsigned)split_ncols, how.reduction,
                             how.has_two_slices, 0, height),
             "gemm_mma");
    });
}

static std::vector<uint16_t> multiply_in_c(const sample &s, const std::vector<uint16_t> &x,
                                           unsigned nx, const order &how) {
    const r4_splits splits = {(int)how.nsplits, (gemm_reduction)how.reduction,
                              how.has_two_slices ? GEMM_TWO_SLICES : GEMM_IN_ORDER};
    std::vector<uint16_t> products((size_t)nx * s.r4.nrows);
    r4_mma_gemm_plain(s.w.data(), x.data(), s.r4.nrows, nx, (int)s.r4.ncols, &splits,
                      products.data());
    return products;
}

static void check_weight(unsigned nrows, unsigned ncols, kind of, unsigned nx, bool is_hopper) {
    sample s = new_sample(nrows, ncols, of);
    auto x = draw_x(nx, ncols, of);
    uint16_t *on_device = to_device(x);
    std::vector<std::vector<uint16_t>> all;
    for (const order &how : orders) {
        all.push_back(multiply_steps(s, on_device, nx, how));
        const std::string what = text("M ", nx, ", ") + how.name;
        if (is_hopper && (size_t)nrows * nx <= 1200)
            same(all.back(), multiply_in_c(s, x, nx, how), (what + ", steps").c_str(), s.name);
        for (unsigned height : {16u, 48u, 64u, 112u})
            if (height <= nrows && (height <= 64 || &how == orders))
                same(multiply(view_all(s.r4), on_device, nx, how, height), all.back(),
                     (what + text(", height ", height)).c_str(), s.name);
    }
    if (of == CANCELLING && ncols >= 704)
        for (size_t i = 0; i < all.size(); i++)
            for (size_t j = 0; j < i; j++)
                expect(all[i] != all[j], "orders differ", s.name);
    cudaFree(on_device);
    free_sample(s);
}

/* Sorted experts, one part and two, as gemm_steps has them. */
static void check_experts(unsigned nexperts, unsigned nrows, unsigned ncols, kind of,
                          std::vector<uint32_t> indices) {
    const unsigned nx = (unsigned)indices.size();
    const size_t n = (size_t)nx * nrows;
    sample s = new_sample(nexperts * nrows, ncols, of);
    uint16_t *x = to_device(draw_x(nx, ncols, of));
    std::sort(indices.begin(), indices.end());
    uint32_t *on_device = to_device(indices);
    r4_view views[] = {{s.r4, 0, nrows, nrows, new_device<uint16_t>(n)},
                       {s.r4, 0, nrows, nrows, new_device<uint16_t>(n)}};
    run_gemm_steps(s.bf16, x, on_device, views[0].y, nrows, nx, ncols, ncols);
    must(cudaDeviceSynchronize(), "gemm_steps");
    const auto expected = to_host(views[0].y, n);
    for (unsigned nparts : {1u, 2u}) {
        for (const auto &view : views)
            must(cudaMemset(view.y, 0xa5, n * 2), "memset");
        must(r4_gpu_gemm_experts(views, nparts, x, on_device, nx, nexperts, 0, R4_GEMM_MMA),
             "experts");
        must(cudaDeviceSynchronize(), "experts");
        for (unsigned i = 0; i < nparts; i++)
            same(to_host(views[i].y, n), expected, text("experts, parts ", nparts).c_str(), s.name);
    }
    cudaFree(x), cudaFree(on_device), cudaFree(views[0].y), cudaFree(views[1].y);
    free_sample(s);
}

int main(int argc, char **argv) {
    const run_length length = read_length(argc, argv);
    cudaDeviceProp device;
    must(cudaGetDeviceProperties(&device, 0), "device");
    const bool is_hopper = device.major == 9;
    check_weight(64, 704, CANCELLING, 18, is_hopper);
    check_weight(50, 192, FEW_ESCAPES, 3, is_hopper);
    check_experts(3, 64, 256, FEW_ESCAPES, {0, 0, 2, 2, 2});
    if (length == FEW) return end_checks();
    for (int of = 0; of < NKINDS; of++) {
        check_weight(16, 64, (kind)of, 2, is_hopper);
        check_weight(130, 2112, (kind)of, 65, is_hopper);
        check_weight(300, 1280, (kind)of, 200, is_hopper);
        check_experts(7, 130, 704, (kind)of, std::vector<uint32_t>(150, 3));
    }
    return end_checks();
}
