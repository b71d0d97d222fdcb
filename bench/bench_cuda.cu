/* bench_cuda.cu - times R4 on a GPU beside BF16 in the same order; prints JSON.
 *
 *   bench_cuda [ROWS COLS | together]
 *
 * Times are microseconds for one product, from graphs that go through weights of more than 600 MB
 * in all, so that no cache holds them: median, least and most of 15 replays.
 */
#include <cmath>
#include <cstring>

#include "coded_streams.h"
#include "cuda/r4_gpu_plain.h"
#include "gemv_bf16.cuh"
#include "launch_timing.cuh"

static double log_ratios; /* of all matvecs */

static void bench_shape(const char *model, unsigned nrows, unsigned ncols, bool last) {
    size_t n = (size_t)nrows * ncols;
    unsigned nweights = (unsigned)std::max(2.0, rotate_nbytes / (1.5 * (double)n) + 1);
    unsigned nlaunches = std::max(nweights, 24u), nescapes = 0;
    uint16_t *x = new_model(ncols, 99), *y = new_device<uint16_t>(nrows),
             *out = new_device<uint16_t>(n);
    std::vector<uint16_t *> bf16;
    std::vector<r4_gpu> r4;

    for (unsigned i = 0; i < nweights; i++) {
        bf16.push_back(new_model(n, i));
        r4.push_back(weight_from_bf16(bf16[i], nrows, ncols, 109, &nescapes));
    }
    printf("    {\"model\": \"%s\", \"rows\": %u, \"cols\": %u, \"escapes_in_128\": %.4f,\n     ",
           model, nrows, ncols, 128.0 * nescapes / (double)n);
    timing reference = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        run_gemv_bf16(bf16[i % nweights], x, y, nrows, ncols, r4_per_lane(ncols), s);
    });
    print_timing("bf16", reference);
    timing product = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        r4_view view = view_all(r4[i % nweights], y);
        must(r4_gpu_matvec(&view, 1, x, s), "matvec");
    });
    printf(",\n     ");
    print_timing("r4", product);
    log_ratios += log(reference.median / product.median);
    timing copy = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        cudaMemcpyAsync(out, bf16[i % nweights], 2 * n, cudaMemcpyDeviceToDevice, s);
    });
    timing rebuild = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        must(r4_gpu_rebuild(view_all(r4[i % nweights]), out, s), "rebuild");
    });
    printf(",\n     ");
    print_timing("copy", copy);
    printf(",\n     ");
    print_timing("rebuild", rebuild);
    printf(",\n     \"ratio\": %.3f, \"r4_gb_per_s\": %.0f, \"bf16_gb_per_s\": %.0f,"
           " \"copy_gb_per_s\": %.0f, \"rebuild_gb_per_s\": %.0f}%s\n",
           reference.median / product.median, 1.5e-3 * n / product.median,
           2e-3 * n / reference.median, 4e-3 * n / copy.median, 3.5e-3 * n / rebuild.median,
           last ? "" : ",");
    fflush(stdout);
    for (unsigned i = 0; i < nweights; i++) {
        cudaFree(bf16[i]);
        free_weight(r4[i]);
    }
    cudaFree(x), cudaFree(y), cudaFree(out);
}

/* Codes of 512 rows, many times over. */
static coded_stream repeat_stream(const coded_stream &s, unsigned ncopies) {
    coded_stream all = s;
    for (unsigned c = 1; c < ncopies; c++) {
        for (uint32_t start : s.row_starts)
            all.row_starts.push_back((uint32_t)(start + c * (s.bits.size() / 4)));
        all.raw.insert(all.raw.end(), s.raw.begin(), s.raw.end());
        all.meta.insert(all.meta.end(), s.meta.begin(), s.meta.end());
        all.bits.insert(all.bits.end(), s.bits.begin(), s.bits.end());
        all.escapes.insert(all.escapes.end(), s.escapes.begin(), s.escapes.end());
    }
    return all;
}

static void bench_load(unsigned ncols, unsigned ncopies, bool is_rice) {
    const unsigned nrows = 512;
    uint16_t *w = new_model((size_t)nrows * ncols, 5);
    auto bf16 = to_host(w, (size_t)nrows * ncols);
    coded_stream s = repeat_stream(is_rice ? make_rice_stream(bf16.data(), nrows, ncols)
                                           : make_fixed_stream(bf16.data(), nrows, ncols),
                                   ncopies);
    unsigned base = r4_choose_base(s.table), nescapes, nall = nrows * ncopies;
    unsigned nwords = (unsigned)(s.bits.size() / 4);
    bool fault;
    uint8_t *raw = to_device(s.raw), *meta = to_device(s.meta), *bits = to_device(s.bits);
    uint8_t *table = to_device(std::vector<uint8_t>(s.table, s.table + 256));
    uint8_t *esc = to_device(s.escapes);
    uint32_t *starts = to_device(s.row_starts);
    r4_rice_arrays rice = {raw, table, meta, (const unsigned *)bits, starts, nwords};
    r4_fixed_arrays fixed = {
        raw, table, meta, (const unsigned *)bits, esc, nwords, (unsigned)s.escapes.size()};
    r4_gpu r4 = is_rice ? weight_from_rice(rice, nall, ncols, base, &nescapes, &fault)
                        : weight_from_fixed(fixed, nall, ncols, base, &nescapes, &fault);
    r4_scratch scratch = new_scratch(nall);
    timing t = time_launches(8, [&](unsigned, cudaStream_t stream) {
        for (int step = 1; step <= 2; step++)
            must(is_rice ? r4_gpu_from_rice(r4, rice, scratch, step, stream)
                         : r4_gpu_from_fixed(r4, fixed, scratch, step, stream),
                 "load");
    });
    double nweights = (double)nall * ncols;
    printf("    {\"format\": \"%s\", \"rows\": %u, \"cols\": %u, \"fault\": %u, "
           "\"code_bits\": %.3f, ",
           is_rice ? "rice" : "fixed", nall, ncols, fault, 8.0 * (double)s.bits.size() / nweights);
    print_timing("load", t);
    printf(", \"bf16_gb_per_s\": %.0f}", 2e-3 * nweights / t.median);
    cudaFree(w), cudaFree(raw), cudaFree(meta), cudaFree(bits), cudaFree(table), cudaFree(esc);
    cudaFree(starts), free_scratch(scratch), free_weight(r4);
}

/* ---- Several products in one launch ---------------------------------------------------------- */

/* Weights that share x: each alone, and all in one launch. */
static void bench_parts(const char *name, const std::vector<unsigned> &nrows, unsigned ncols,
                        bool last) {
    size_t n = 0;
    for (unsigned rows : nrows)
        n += (size_t)rows * ncols;
    unsigned ncopies = (unsigned)std::max(2.0, rotate_nbytes / (1.5 * (double)n) + 1);
    unsigned nlaunches = std::max(ncopies, 24u), nparts = (unsigned)nrows.size();
    uint16_t *x = new_model(ncols, 99);
    std::vector<uint16_t *> bf16;
    std::vector<r4_view> views;

    for (unsigned i = 0; i < ncopies * nparts; i++) {
        unsigned rows = nrows[i % nparts];
        bf16.push_back(new_model((size_t)rows * ncols, i));
        views.push_back(
            view_all(weight_from_bf16(bf16[i], rows, ncols, 109), new_device<uint16_t>(rows)));
    }
    timing reference = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        for (unsigned p = i % ncopies * nparts, end = p + nparts; p < end; p++)
            run_gemv_bf16(bf16[p], x, views[p].y, views[p].taken, ncols, r4_per_lane(ncols), s);
    });
    timing apart = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        for (unsigned p = i % ncopies * nparts, end = p + nparts; p < end; p++)
            must(r4_gpu_matvec(&views[p], 1, x, s), "matvec");
    });
    timing together = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        must(r4_gpu_matvec(&views[i % ncopies * nparts], nparts, x, s), "matvec");
    });
    printf("    {\"parts\": \"%s\", \"cols\": %u, ", name, ncols);
    print_timing("bf16", reference);
    printf(",\n     ");
    print_timing("r4_apart", apart);
    printf(",\n     ");
    print_timing("r4_together", together);
    printf(", \"ratio\": %.3f}%s\n", reference.median / together.median, last ? "" : ",");
    for (unsigned i = 0; i < views.size(); i++)
        cudaFree(bf16[i]), cudaFree(views[i].y), free_weight(views[i].w);
    cudaFree(x);
}

/* Products of `ntokens` tokens with `top` of 128 experts each; nparts weights of nrows x ncols an
 * expert. BF16 is launched once for each, as MLX does. */
static void bench_gather(const char *name, unsigned nparts, unsigned nrows, unsigned ncols,
                         unsigned ntokens, bool last) {
    const unsigned nexperts = 128, top = 8, n = top * ntokens;
    const unsigned nlaunches = 48, nsets = 12; /* of experts, so that no cache holds them */
    uint16_t *x = new_model((size_t)ntokens * ncols, 99);
    std::vector<uint16_t *> bf16;
    std::vector<r4_view> views;
    std::vector<uint32_t> lhs, rhs;

    for (unsigned p = 0; p < nparts; p++) {
        bf16.push_back(new_model((size_t)nexperts * nrows * ncols, p));
        r4_gpu w = weight_from_bf16(bf16[p], nexperts * nrows, ncols, 109);
        views.push_back({w, 0, nrows, nrows, new_device<uint16_t>((size_t)n * nrows)});
    }
    for (unsigned i = 0; i < nsets * n; i++) {
        lhs.push_back(i % n / top);
        rhs.push_back((i * 41 + i / n) % nexperts);
    }
    uint32_t *dlhs = to_device(lhs), *drhs = to_device(rhs);
    timing reference = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        for (unsigned p = 0; p < nparts; p++)
            run_gather_bf16(bf16[p], x, dlhs + i % nsets * n, drhs + i % nsets * n, n, views[p].y,
                            nrows, ncols, s);
    });
    timing product = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        r4_items items = {x, dlhs + i % nsets * n, drhs + i % nsets * n, n, ntokens, nexperts, 0};
        must(r4_gpu_gather(views.data(), nparts, items, s), "gather");
    });
    printf("    {\"experts\": \"%s\", \"rows\": %u, \"cols\": %u, \"tokens\": %u, ", name, nrows,
           ncols, ntokens);
    print_timing("bf16", reference);
    printf(",\n     ");
    print_timing("r4", product);
    printf(", \"ratio\": %.3f, \"r4_gb_per_s\": %.0f}%s\n", reference.median / product.median,
           1.5e-3 * n * nparts * nrows * ncols / product.median, last ? "" : ",");
    for (unsigned p = 0; p < nparts; p++)
        cudaFree(bf16[p]), cudaFree(views[p].y), free_weight(views[p].w);
    cudaFree(x), cudaFree(dlhs), cudaFree(drhs);
}

static void bench_together() {
    printf("  \"parts\": [\n");
    bench_parts("q, k, v of Llama 3.1 8B", {4096, 1024, 1024}, 4096, false);
    bench_parts("gate, up of Llama 3.1 8B", {14336, 14336}, 4096, false);
    bench_parts("q, k, v of Gemma 4 12B", {4096, 2048, 2048}, 3840, false);
    bench_parts("gate, up of Gemma 4 12B", {15360, 15360}, 3840, false);
    bench_parts("gate, up of Gemma 4 26B-A4B", {2112, 2112}, 2816, true);
    printf("  ],\n  \"gather\": [\n");
    for (unsigned ntokens : {1u, 4u}) {
        bench_gather("gate, up of Gemma 4 26B-A4B", 2, 704, 2816, ntokens, false);
        bench_gather("down of Gemma 4 26B-A4B", 1, 2816, 704, ntokens, ntokens == 4);
    }
    printf("  ]");
}

int main(int argc, char **argv) {
    static const struct {
        const char *model;
        unsigned rows, cols;
    } shapes[] = {
        {"Llama 3.1 8B", 4096, 4096},    {"Llama 3.1 8B", 1024, 4096},
        {"Llama 3.1 8B", 6144, 4096},    {"Llama 3.1 8B", 14336, 4096},
        {"Llama 3.1 8B", 4096, 14336},   {"Llama 3.1 8B", 128256, 4096},
        {"Llama 3.2 3B", 3072, 3072},    {"Llama 3.2 3B", 8192, 3072},
        {"Llama 3.2 3B", 3072, 8192},    {"Gemma 4 12B", 15360, 3840},
        {"Gemma 4 12B", 3840, 15360},    {"Gemma 4 12B", 4096, 3840},
        {"Gemma 4 26B-A4B", 4096, 2816}, {"Gemma 4 26B-A4B", 2112, 2816},
        {"Gemma 4 26B-A4B", 2816, 2112}, {"Gemma 4 26B-A4B", 262144, 2816},
        {"Gemma 4 E4B", 10240, 2560},    {"Gemma 4 E4B", 2560, 10240},
        {"Gemma 4 E4B", 2048, 2560},     {"Qwen3.5 9B", 12288, 4096},
        {"Qwen3.5 9B", 4096, 12288},     {"Qwen3.5 9B", 8192, 4096},
        {"Qwen3.5 9B", 248320, 4096},
    };
    cudaDeviceProp properties;
    if (argc == 2 && !strcmp(argv[1], "together")) {
        printf("{\n");
        bench_together();
        printf("\n}\n");
        return 0;
    }
    if (argc == 3) {
        bench_shape("one", (unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]), true);
        return 0;
    }
    unsigned nshapes = sizeof shapes / sizeof *shapes;

    must(cudaGetDeviceProperties(&properties, 0), "device");
    printf("{\n  \"device\": \"%s\",\n  \"load\": [\n", properties.name);
    for (bool is_rice : {true, false}) {
        bench_load(4096, 28, is_rice);
        printf(",\n");
        bench_load(14336, 8, is_rice);
        printf(is_rice ? ",\n" : "\n");
    }
    printf("  ],\n  \"matvec\": [\n");
    for (unsigned i = 0; i < nshapes; i++)
        bench_shape(shapes[i].model, shapes[i].rows, shapes[i].cols, i + 1 == nshapes);
    printf("  ],\n");
    bench_together();
    printf(",\n  \"geometric_mean\": %.3f\n}\n", exp(log_ratios / nshapes));
    return 0;
}
