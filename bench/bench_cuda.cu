/* bench_cuda.cu - times R4 on a GPU beside BF16 in the same order; prints JSON.
 *
 *   bench_cuda [ROWS COLS]
 *
 * Times are microseconds for one product, from graphs that go through weights of more than 600 MB
 * in all, so that no cache holds them: median, least and most of 15 replays.
 */
#include <algorithm>
#include <cmath>
#include <functional>

#include "coded_streams.h"
#include "cuda/r4_gpu_plain.h"
#include "device_weight.cuh"
#include "gemv_bf16.cuh"

enum { NREPLAYS = 15 };
static const double rotate_nbytes = 640e6;

struct timing {
    double median, least, most; /* microseconds for a launch */
};

/* launch(i, stream) for i < nlaunches, in a graph. */
static timing time_launches(unsigned nlaunches,
                            const std::function<void(unsigned, cudaStream_t)> &launch) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, stop;
    std::vector<double> times;

    must(cudaStreamCreate(&stream), "stream");
    must(cudaEventCreate(&start), "event");
    must(cudaEventCreate(&stop), "event");
    launch(0, stream); /* modules load outside of the capture */
    must(cudaStreamSynchronize(stream), "launch");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    for (unsigned i = 0; i < nlaunches; i++)
        launch(i, stream);
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    for (int r = -2; r < NREPLAYS; r++) {
        float ms;
        cudaEventRecord(start, stream);
        must(cudaGraphLaunch(exec, stream), "replay");
        cudaEventRecord(stop, stream);
        must(cudaEventSynchronize(stop), "replay");
        cudaEventElapsedTime(&ms, start, stop);
        if (r >= 0) times.push_back(1e3 * ms / nlaunches);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    std::sort(times.begin(), times.end());
    return {times[NREPLAYS / 2], times.front(), times.back()};
}

static void print_timing(const char *name, const timing &t) {
    printf("\"%s\": {\"us\": %.2f, \"least\": %.2f, \"most\": %.2f}", name, t.median, t.least,
           t.most);
}

__global__ void fill_model(uint16_t *w, size_t n, unsigned seed) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint64_t s = (i + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)seed << 32;
    float sum = 0;
    for (int k = 0; k < 4; k++) { /* near enough a normal distribution */
        s = (s ^ s >> 30) * 0xbf58476d1ce4e5b9ull;
        s = (s ^ s >> 27) * 0x94d049bb133111ebull;
        sum += (float)(int)(s >> 32) * 0x1p-31f;
    }
    w[i] = (uint16_t)(__float_as_uint(sum * 0.02f) >> 16);
}

static uint16_t *new_model(size_t n, unsigned seed) {
    uint16_t *w = new_device<uint16_t>(n);
    fill_model<<<(unsigned)((n + 255) / 256), 256>>>(w, n, seed);
    must(cudaDeviceSynchronize(), "fill");
    return w;
}

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
        must(r4_gpu_matvec(r4[i % nweights], x, y, s), "matvec");
    });
    printf(",\n     ");
    print_timing("r4", product);
    log_ratios += log(reference.median / product.median);
    timing copy = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        cudaMemcpyAsync(out, bf16[i % nweights], 2 * n, cudaMemcpyDeviceToDevice, s);
    });
    timing rebuild = time_launches(nlaunches, [&](unsigned i, cudaStream_t s) {
        must(r4_gpu_rebuild(r4[i % nweights], 0, nrows, nrows, out, s), "rebuild");
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
    unsigned base = r4_choose_base(s.table), nescapes, fault, nall = nrows * ncopies;
    uint8_t *raw = to_device(s.raw), *meta = to_device(s.meta), *bits = to_device(s.bits);
    uint8_t *table = to_device(std::vector<uint8_t>(s.table, s.table + 256));
    uint8_t *esc = to_device(s.escapes);
    uint32_t *starts = to_device(s.row_starts);
    unsigned *kept = new_device<unsigned>((size_t)nall * R4_KEPT),
             *faults = new_device<unsigned>(1);
    r4_rice_source rice = {raw, table, meta, (const unsigned *)bits, starts, s.bits.size() / 4};
    r4_fixed_source fixed = {raw,
                             table,
                             meta,
                             (const unsigned *)bits,
                             esc,
                             s.bits.size() / 4,
                             s.escapes.size(),
                             new_device<unsigned>(nall + 1),
                             new_device<unsigned>(nall + 1)};
    r4_gpu r4 = is_rice ? weight_from_rice(rice, nall, ncols, base, &nescapes, &fault)
                        : weight_from_fixed(fixed, nall, ncols, base, &nescapes, &fault);
    timing t = time_launches(8, [&](unsigned, cudaStream_t stream) {
        for (int step = 1; step <= 2; step++)
            must(is_rice ? r4_gpu_from_rice(r4, rice, kept, faults, step, stream)
                         : r4_gpu_from_fixed(r4, fixed, kept, faults, step, stream),
                 "load");
    });
    double nweights = (double)nall * ncols;
    printf("    {\"format\": \"%s\", \"rows\": %u, \"cols\": %u, \"fault\": %u, "
           "\"code_bits\": %.3f, ",
           is_rice ? "rice" : "fixed", nall, ncols, fault, 8.0 * (double)s.bits.size() / nweights);
    print_timing("load", t);
    printf(", \"bf16_gb_per_s\": %.0f}", 2e-3 * nweights / t.median);
    cudaFree(w), cudaFree(raw), cudaFree(meta), cudaFree(bits), cudaFree(table), cudaFree(esc);
    cudaFree(starts), cudaFree(kept), cudaFree(faults), free_weight(r4);
    cudaFree(fixed.code_starts), cudaFree(fixed.escape_starts);
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
    printf("  ],\n  \"geometric_mean\": %.3f\n}\n", exp(log_ratios / nshapes));
    return 0;
}
