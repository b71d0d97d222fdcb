/* bench_cuda_gemm.cu - times several rows of x times R4 on a Hopper GPU beside cublasLt's BF16, as
 * MLX has it computed, and beside rebuilding the weight first; prints a page. Or times every tile
 * of one product of M rows of x, to correct the estimate in r4_gemm_grid.c by.
 *
 *   bench_cuda_gemm [ROWS COLS]
 *   bench_cuda_gemm tiles ROWS COLS M
 */
#include <array>
#include <climits>
#include <cstring>

#include "cublaslt_product.cuh"
#include "cuda/gemm_table.h"
#include "cuda/r4_launch_gemm.cuh"
#include "launch_timing.cuh"

static const unsigned all_nx[] = {2, 4, 8, 16, 32, 64, 128, 256, 512};

/* What this program cannot do: a sentence. */
static void stop(const char *message) {
    fprintf(stderr, "%s\n", message);
    exit(2);
}

/* Of a model, in both forms, so many that no cache holds them. */
struct weights {
    unsigned nrows, ncols;
    std::vector<uint16_t *> bf16;
    std::vector<r4_gpu> r4;

    weights(unsigned nrows, unsigned ncols) : nrows(nrows), ncols(ncols) {
        unsigned n = (unsigned)std::max(2.0, rotate_nbytes / (1.5 * nrows * ncols) + 1);
        for (unsigned i = 0; i < n; i++) {
            bf16.push_back(new_model((size_t)nrows * ncols, i));
            r4.push_back(weight_from_bf16(bf16[i], nrows, ncols, 109));
        }
    }
    ~weights() {
        for (size_t i = 0; i < r4.size(); i++) {
            cudaFree(bf16[i]);
            free_weight(r4[i]);
        }
    }
};

/* nx rows of x times a weight, each launch another one; K in splits as cublasLt plans. */
class product {
  public:
    const weights &w;
    const unsigned nx;
    unsigned nsplits;

    product(const weights &w, gemm_planner *planner, unsigned nx)
        : w(w), nx(nx), bf16_(nx, w.nrows, w.ncols), x_(new_model((size_t)nx * w.ncols, 99)),
          y_(new_device<uint16_t>((size_t)nx * w.nrows)) {
        char message[GPU_MESSAGE_NBYTES];
        gemm_plan plan;
        if (gemm_planner_ask(planner, (int)nx, (int)w.nrows, (int)w.ncols, &plan, message))
            stop(message);
        nsplits = (unsigned)std::max(plan.nsplits, 1);
        split_ncols_ = (unsigned)gemm_split_ncols((int)w.ncols, (int)nsplits);
        is_known_ = gemm_find_row(9, 0, &plan, (int)w.ncols, message) &&
                    (nsplits == 1 || plan.reduction == GEMM_REDUCTION_FP32);
    }
    product(const product &) = delete;
    ~product() {
        cudaFree(x_);
        cudaFree(y_);
    }

    /* Whether a kernel multiplies so, and with which shape; tile: as r4_gpu_gemm takes it. */
    bool find(const r4_gemm_tile &tile, r4_gemm_kernel *kernel, r4_grid *grid) const {
        const r4_gemm_product asked = {
            nx, w.ncols, w.nrows, 1, nsplits, 0, tile.nx, tile.height, r4_gemm_way_of(tile, nx)};
        return is_known_ && r4_gemm_grid(&r4_gpu_device(), &asked, kernel, grid);
    }

    timing time_bf16() const {
        return time_each(
            [&](unsigned i, cudaStream_t stream) { bf16_.run(w.bf16[i], x_, y_, stream); });
    }
    timing time_packed(const r4_gemm_tile &tile) const {
        return time_each([&](unsigned i, cudaStream_t stream) {
            must(r4_gpu_gemm(view_all(w.r4[i], y_), x_, nx, nsplits, split_ncols_, stream, tile),
                 "gemm");
        });
    }
    /* The weight rebuilt, then cublasLt's product. */
    timing time_rebuilt() const {
        uint16_t *whole = new_device<uint16_t>((size_t)w.nrows * w.ncols);
        timing time = time_each([&](unsigned i, cudaStream_t stream) {
            must(r4_gpu_rebuild(view_all(w.r4[i]), whole, stream), "rebuild");
            bf16_.run(whole, x_, y_, stream);
        });
        cudaFree(whole);
        return time;
    }

  private:
    lt_product bf16_;
    uint16_t *x_, *y_;
    unsigned split_ncols_;
    bool is_known_; /* the order in which the plan adds */

    /* launch(i, stream), i < w.r4.size(). */
    timing time_each(const std::function<void(unsigned, cudaStream_t)> &launch) const {
        const unsigned n = (unsigned)w.r4.size();
        return time_launches(std::max(n, 24u),
                             [&](unsigned i, cudaStream_t stream) { launch(i % n, stream); });
    }
};

/* ---- The page -------------------------------------------------------------------------------- */

static void print_row(const product &p) {
    const timing bf16 = p.time_bf16(), rebuilt = p.time_rebuilt();
    r4_gemm_kernel kernel;
    r4_grid grid;
    printf("| %u x %u | %u | %u | ", p.w.nrows, p.w.ncols, p.nx, p.nsplits);
    if (p.find({}, &kernel, &grid)) {
        const timing packed = p.time_packed({});
        printf("%u x %d | %.1f | %.1f (%.1f to %.1f) | %.2fx", kernel.nx, kernel.shape.height,
               bf16.median, packed.median, packed.least, packed.most, bf16.median / packed.median);
    } else {
        printf("- | %.1f | - | -", bf16.median);
    }
    printf(" | %.1f | %.2fx |\n", rebuilt.median, bf16.median / rebuilt.median);
    fflush(stdout);
}

static void print_page(const char *device, gemm_planner *planner,
                       const std::vector<std::array<unsigned, 2>> &shapes) {
    printf("# Several rows of x on %s\n\nCommand: `bench_cuda_gemm`. Microseconds, medians of %d "
           "replays of a graph. A tile is rows of x and of W at a time.\n\n| weight | rows of x | "
           "splits of K | tile | BF16 | packed | ratio | rebuilt first | ratio |\n"
           "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
           device, NREPLAYS);
    for (const auto &shape : shapes) {
        weights w(shape[0], shape[1]);
        for (unsigned nx : all_nx)
            print_row(product(w, planner, nx));
    }
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* All tiles that have kernels; not those of which half of x would be empty. */
static void print_tiles(const char *device, gemm_planner *planner, const weights &w, unsigned nx) {
    const product p(w, planner, nx);
    r4_gemm_kernel chosen, kernel;
    r4_grid grid;
    if (!p.find({}, &chosen, &grid))
        stop("no kernel multiplies so many rows of x with this weight");
    const timing bf16 = p.time_bf16();
    printf("%u x %u, %u rows of x, splits of K: %u; %s\nBF16 by cublasLt: %.1f us (%.1f to %.1f). "
           "Packed; * is r4_gemm_grid's choice:\n\n"
           "         nx height blocks      us   least    most  ratio\n",
           w.nrows, w.ncols, nx, p.nsplits, device, bf16.median, bf16.least, bf16.most);
    for (r4_gemm_way way : {R4_GEMM_SKINNY, R4_GEMM_WGMMA})
        for (unsigned tile_nx = 8; tile_nx <= 128; tile_nx *= 2)
            for (unsigned height = R4_HEIGHT_STEP; height <= 16 * R4_HEIGHT_STEP;
                 height += R4_HEIGHT_STEP) {
                const r4_gemm_tile tile = {tile_nx, height, way};
                const unsigned least = way == R4_GEMM_SKINNY ? 8 : R4_X_NROWS;
                if ((tile_nx > least && tile_nx >= 2 * nx) || !p.find(tile, &kernel, &grid))
                    continue;
                const timing packed = p.time_packed(tile);
                bool is_chosen = way == chosen.way && tile_nx == chosen.nx &&
                                 kernel.shape.height == chosen.shape.height;
                printf("%s %s %3u %6d %6u %7.1f %7.1f %7.1f %5.2fx\n", is_chosen ? "*" : " ",
                       way == R4_GEMM_SKINNY ? "skinny" : " wgmma", tile_nx, kernel.shape.height,
                       grid.nblocks, packed.median, packed.least, packed.most,
                       bf16.median / packed.median);
                fflush(stdout);
            }
}

/* ---- The program ----------------------------------------------------------------------------- */

static unsigned read_number(const char *text) {
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || number == 0 || number > INT_MAX)
        stop("expected a whole number from 1 to 2147483647");
    return (unsigned)number;
}

int main(int argc, char **argv) {
    std::vector<std::array<unsigned, 2>> shapes = {
        {14336, 4096}, {4096, 14336}, {4096, 4096},  {1024, 4096},  {8192, 3072}, {3072, 8192},
        {3072, 3072},  {15360, 3840}, {10240, 2560}, {2560, 10240}, {2560, 2048}, {2816, 2112}};
    const bool is_tiles = argc == 5 && strcmp(argv[1], "tiles") == 0;
    char message[GPU_MESSAGE_NBYTES];
    cudaDeviceProp device;
    gemm_planner *planner = nullptr;

    if (argc != 1 && argc != 3 && !is_tiles)
        stop("usage: bench_cuda_gemm [ROWS COLS] | tiles ROWS COLS M");
    if (argc > 1)
        shapes = {{read_number(argv[argc == 3 ? 1 : 2]), read_number(argv[argc == 3 ? 2 : 3])}};
    must(cudaGetDeviceProperties(&device, 0), "device");
    if (device.major != 9) stop("these kernels are for GPUs of compute capability 9.0");
    if (gemm_planner_open(nullptr, device.major, &planner, message)) stop(message);
    if (is_tiles)
        print_tiles(device.name, planner, weights(shapes[0][0], shapes[0][1]),
                    read_number(argv[4]));
    else
        print_page(device.name, planner, shapes);
    gemm_planner_close(planner);
    return 0;
}
