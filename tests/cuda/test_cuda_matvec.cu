/* test_cuda_matvec.cu - products with one row of x give the bits of the plain C definition.
 *
 * Whole weights and rows of them, one to three in a launch, in blocks of every size; any alignment
 * of x and any n, whatever the layout has. Large shapes are compared with a BF16 matvec on the GPU,
 * which small shapes and some rows of each large one compare with plain C. Orders that are not the
 * right one must differ.
 *
 *   test_cuda_matvec [least|few|large]
 */
#include "gemv_bf16.cuh"
#include "gpu_check.cuh"

/* ---- Small shapes ---------------------------------------------------------------------------- */

/* Rows of a sample; products: what plain C gives for all of them. */
struct part {
    const sample *of;
    const std::vector<uint16_t> *products;
    unsigned row0, nrows;
};

static unsigned grid_nthreads(unsigned ncols) {
    r4_grid grid;
    return r4_matvec_grid(&r4_gpu_device(), ncols, 1, &grid) ? grid.nthreads : 0;
}

/* Parts in one launch. */
static void check_parts(const std::vector<part> &parts, const uint16_t *dx, unsigned nthreads) {
    std::vector<r4_view> views;
    for (const part &p : parts)
        views.push_back({p.of->r4, p.row0, p.nrows, 0, new_device<uint16_t>(p.nrows)});
    must(r4_gpu_matvec(views.data(), (unsigned)views.size(), dx, 0, nthreads), "matvec");
    for (size_t i = 0; i < parts.size(); i++) {
        const part &p = parts[i];
        auto first = p.products->begin() + p.row0;
        same(to_host(views[i].y, p.nrows), std::vector<uint16_t>(first, first + p.nrows),
             (std::to_string(i) + " of " + std::to_string(parts.size()) + ", " +
              std::to_string(nthreads) + " threads")
                 .c_str(),
             p.of->name);
        cudaFree(views[i].y);
    }
}

/* A weight alone, some of its rows, and beside others. */
static void check_matvec(const sample &s, const std::vector<uint16_t> &products,
                         const sample &small, const uint16_t *dx, const uint16_t *x) {
    auto others = multiply_plain(small, 0, small.r4.nrows, x, small.r4.per_lane);
    unsigned nrows = s.r4.nrows, row0 = nrows / 3, taken = nrows - row0 - (nrows > 8);
    for (unsigned nthreads = grid_nthreads(s.r4.ncols); nthreads >= 128; nthreads /= 2) {
        part all = {&s, &products, 0, nrows}, some = {&s, &products, row0, taken};
        check_parts({all}, dx, nthreads);
        check_parts({some, {&small, &others, 0, small.r4.nrows}}, dx, nthreads);
        check_parts({{&small, &others, 1, 3}, all, some}, dx, nthreads);
    }
}

/* Each n that K allows against each layout that it allows, x at each place in 8 bytes. */
static void check_any(unsigned nrows, unsigned ncols, kind of) {
    std::vector<uint16_t> x = draw_x(1, ncols, of);
    for (unsigned per_lane = r4_per_lane(ncols); per_lane > 0; per_lane /= 2) {
        sample s = new_sample(nrows, ncols, of, per_lane);
        for (unsigned n = r4_per_lane(ncols); n > 0; n /= 2)
            for (unsigned at = 0; at < 4; at++) {
                std::vector<uint16_t> moved(at);
                moved.insert(moved.end(), x.begin(), x.end());
                uint16_t *dx = to_device(moved), *y = new_device<uint16_t>(nrows - 1);
                must(r4_gpu_matvec_any({s.r4, 1, nrows - 1, 0, y}, dx + at, n, 0), "any");
                same(to_host(y, nrows - 1), multiply_plain(s, 1, nrows - 1, x.data(), n),
                     ("any, n " + std::to_string(n) + ", layout " + std::to_string(per_lane))
                         .c_str(),
                     s.name);
                cudaFree(dx), cudaFree(y);
            }
        free_sample(s);
    }
}

static std::vector<uint16_t> run_bf16(const uint16_t *w, const uint16_t *x, unsigned nrows,
                                      unsigned ncols) {
    uint16_t *dy = new_device<uint16_t>(nrows);
    run_gemv_bf16(w, x, dy, nrows, ncols, r4_per_lane(ncols), 0);
    auto y = to_host(dy, nrows);
    cudaFree(dy);
    return y;
}

/* The kernel, given a layout for another order, must give what plain C gives in that order, and
 * not what it gives in the right one. */
static void check_other_order(const sample &s, const uint16_t *dx, const uint16_t *x) {
    unsigned nrows = s.r4.nrows, right = s.r4.per_lane, other = right == 1 ? 2 : right / 2;
    uint16_t *dy = new_device<uint16_t>(nrows);
    auto wrong = multiply_plain(s, 0, nrows, x, other);
    expect(wrong != multiply_plain(s, 0, nrows, x, right), "another order gives the same", s.name);
    r4_gpu w = weight_from_bf16(s.bf16, nrows, s.r4.ncols, s.r4.base, nullptr, other);
    r4_view view = view_all(w, dy);
    must(r4_gpu_matvec(&view, 1, dx, 0), "matvec");
    same(to_host(dy, nrows), wrong, "another order", s.name);
    cudaFree(dy);
    free_weight(w);
}

static void check_small(unsigned nrows, unsigned ncols, kind of) {
    sample s = new_sample(nrows, ncols, of), small = new_sample(5, ncols, MODEL);
    std::vector<uint16_t> x = draw_x(1, ncols, of);
    uint16_t *dx = to_device(x);

    auto products = multiply_plain(s, 0, nrows, x.data(), s.r4.per_lane);
    check_matvec(s, products, small, dx, x.data());
    same(run_bf16(s.bf16, dx, nrows, ncols), products, "BF16 on the GPU", s.name);
    if (of == CANCELLING && ncols >= 512 && nrows >= 8) check_other_order(s, dx, x.data());
    free_sample(s), free_sample(small), cudaFree(dx);
}

/* ---- Shapes of models ------------------------------------------------------------------------ */

enum { MIRRORED = -1 }; /* of x, so that what cancels in a row does so in the product */

__global__ void fill(uint16_t *w, size_t n, unsigned ncols, int of, unsigned seed) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    size_t mate = ncols - 1 - i, at = of == MIRRORED && mate < i ? mate : i;
    uint64_t s = mix((at + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)seed << 32);
    unsigned a = (unsigned)s, b = (unsigned)(s >> 32);
    float value = (float)(int)a * 0x1p-31f * (float)(b >> 8 & 0xffff) * 0x1p-20f;
    w[i] = of == CANCELLING ? cancel(i / ncols, i % ncols, ncols)
                            : (uint16_t)(__float_as_uint(value) >> 16);
}

static void check_large(unsigned nrows, unsigned ncols, kind of) {
    size_t n = (size_t)nrows * ncols;
    std::string name = std::to_string(nrows) + " x " + std::to_string(ncols) + " " + kind_names[of];
    uint16_t *w = new_device<uint16_t>(n), *x = new_device<uint16_t>(ncols),
             *y = new_device<uint16_t>(nrows);
    unsigned nescapes;
    std::vector<uint16_t> plain(1);

    launch_kernel<fill>((unsigned)((n + 255) / 256), 256, 0, w, n, ncols, of, nrows);
    launch_kernel<fill>((ncols + 255) / 256, 256, 0, x, ncols, ncols, MIRRORED, 7);
    r4_gpu r4 = weight_from_bf16(w, nrows, ncols, of == CANCELLING ? 126 : 110, &nescapes);
    r4_view view = view_all(r4, y);
    must(r4_gpu_matvec(&view, 1, x, 0), "matvec");
    auto host_x = to_host(x, ncols), found = to_host(y, nrows);
    same(found, run_bf16(w, x, nrows, ncols), "BF16 on the GPU", name);
    for (unsigned i = 0; i < 24; i++) {
        unsigned r = i < 2 ? i * (nrows - 1) : draw() % nrows;
        auto row = to_host(w + (size_t)r * ncols, ncols);
        r4_gemv_plain(row.data(), host_x.data(), 1, ncols, r4.per_lane, plain.data());
        expect(plain[0] == found[r], "a row differs from plain C", name);
    }
    printf("%-28s %.5f escapes in 128 weights\n", name.c_str(), 128.0 * nescapes / (double)n);
    free_weight(r4);
    cudaFree(w), cudaFree(x), cudaFree(y);
}

static const unsigned large_shapes[][2] = {
    /* Llama 3.1 8B */ {4096, 4096},
    {1024, 4096},
    {14336, 4096},
    {4096, 14336},
    {128256, 4096},
    /* Llama 3.2 3B */ {3072, 3072},
    {1024, 3072},
    {8192, 3072},
    {3072, 8192},
    /* Gemma 4 12B */ {15360, 3840},
    {3840, 15360},
    {4096, 3840},
    {3840, 4096},
    {2048, 3840},
    /* 26B-A4B */ {2816, 2112},
    {2112, 2816},
    {4096, 2816},
    {2816, 4096},
    {90112, 2816},
    {90112, 704},
    /* more than 2^31 weights */ {262144, 8704},
};

int main(int argc, char **argv) {
    run_length length = read_length(argc, argv);
    for (unsigned ncols : check_cols)
        for (unsigned nrows : {1u, 37u, 300u})
            for (int of = 0; of < NKINDS; of++) {
                if (!is_taken(length, nrows, ncols, of) || (length <= FEW && nrows != 37)) continue;
                check_small(nrows, ncols, (kind)of);
                if (nrows == 37 && (of == CANCELLING || of == FEW_ESCAPES || of == ALL_ESCAPES))
                    check_any(nrows, ncols, (kind)of);
            }
    expect(grid_nthreads(120000) == 0, "K of 120,000 is staged", "grid");
    check_any(3, 60000, FEW_ESCAPES);
    if (length == LARGE)
        for (auto &shape : large_shapes)
            for (kind of : {MODEL, CANCELLING})
                check_large(shape[0], shape[1], of);
    return end_checks();
}
