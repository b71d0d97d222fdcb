/* launch_timing.cuh - times launches from graphs that go through weights of more than 600 MB in
 * all, so that no cache holds them; and weights as models have them. */
#ifndef BINADE_LAUNCH_TIMING_CUH
#define BINADE_LAUNCH_TIMING_CUH

#include <algorithm>
#include <functional>

#include "device_weight.cuh"

enum { NREPLAYS = 15 };
static const double rotate_nbytes = 640e6;

struct timing {
    double median, least, most; /* microseconds for a launch */
};

/* launch(i, stream) for i < nlaunches, in a graph. */
static inline timing time_launches(unsigned nlaunches,
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

static inline void print_timing(const char *name, const timing &t) {
    printf("\"%s\": {\"us\": %.2f, \"least\": %.2f, \"most\": %.2f}", name, t.median, t.least,
           t.most);
}

static __global__ void fill_model(uint16_t *w, size_t n, unsigned seed) {
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

static inline uint16_t *new_model(size_t n, unsigned seed) {
    uint16_t *w = new_device<uint16_t>(n);
    fill_model<<<(unsigned)((n + 255) / 256), 256>>>(w, n, seed);
    must(cudaDeviceSynchronize(), "fill");
    return w;
}

#endif
