/* test_cuda_gemm_lt.cu - several rows of x times R4 on Hopper: the same bits as cublasLt's own
 * products with the plan that MLX would take. On other GPUs there is nothing to test.
 *
 *   test_cuda_gemm_lt [few|large]
 */
#include "cublaslt_product.cuh"
#include "cuda/gemm_plan.h"
#include "gemm_check.cuh"

static run_length length;

static std::vector<uint16_t> multiply_lt(const sample &s, const uint16_t *x, unsigned nx) {
    return take_products((size_t)nx * s.r4.nrows, "cublasLt", [&](uint16_t *y) {
        lt_product(nx, s.r4.nrows, s.r4.ncols).run(s.bf16, x, y, 0);
    });
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
        same(multiply_r4(view_all(s.r4), x, nx, nsplits, split_ncols), multiply_lt(s, x, nx),
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
    length = read_length(argc, argv);
    if (!has_gemm()) return 0;
    check_all_lt();
    return end_checks();
}
