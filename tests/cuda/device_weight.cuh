/* device_weight.cuh - device arrays and R4 weights that a test or benchmark owns. Stops the program
 * when CUDA fails. */
#ifndef BINADE_DEVICE_WEIGHT_CUH
#define BINADE_DEVICE_WEIGHT_CUH

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda/r4_launch.cuh"

static inline void must(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    exit(2);
}

template <class T> static T *new_device(size_t n) {
    void *at = nullptr;
    must(cudaMalloc(&at, n > 0 ? n * sizeof(T) : 16), "cudaMalloc");
    return (T *)at;
}

template <class T> static T *to_device(const std::vector<T> &host) {
    T *at = new_device<T>(host.size());
    must(cudaMemcpy(at, host.data(), host.size() * sizeof(T), cudaMemcpyDefault), "copy");
    return at;
}

template <class T> static std::vector<T> to_host(const T *at, size_t n) {
    std::vector<T> host(n);
    must(cudaMemcpy(host.data(), at, n * sizeof(T), cudaMemcpyDefault), "copy");
    return host;
}

/* Slices and rows of a weight; bytes that a kernel does not write are 0xa5. */
static inline r4_gpu new_weight(unsigned nrows, unsigned ncols, unsigned base) {
    r4_gpu w = {nrows, ncols, r4_per_lane(ncols), base, nullptr, nullptr, nullptr};
    w.slices = new_device<unsigned char>(r4_gpu_slices_nbytes(w));
    w.rows = new_device<r4_row>((size_t)nrows + 1);
    must(cudaMemset(w.slices, 0xa5, r4_gpu_slices_nbytes(w)), "memset");
    return w;
}

static inline void free_weight(r4_gpu &w) {
    cudaFree(w.slices);
    cudaFree(w.rows);
    cudaFree(w.escapes);
}

static inline unsigned make_escapes(r4_gpu &w) {
    r4_row last;
    must(cudaMemcpy(&last, w.rows + w.nrows, sizeof last, cudaMemcpyDefault), "copy");
    w.escapes = new_device<unsigned>(last.escape_start);
    return last.escape_start;
}

/* Makes R4 of BF16 in device memory. per_lane 0: that of MLX. */
static inline r4_gpu weight_from_bf16(const uint16_t *bf16, unsigned nrows, unsigned ncols,
                                      unsigned base, unsigned *nescapes = nullptr,
                                      unsigned per_lane = 0) {
    r4_gpu w = new_weight(nrows, ncols, base);
    if (per_lane) w.per_lane = per_lane;
    unsigned *kept = new_device<unsigned>((size_t)nrows * R4_KEPT);
    must(r4_gpu_from_bf16(w, bf16, kept, 1, 0), "from_bf16 1");
    unsigned n = make_escapes(w);
    must(r4_gpu_from_bf16(w, bf16, kept, 2, 0), "from_bf16 2");
    must(cudaDeviceSynchronize(), "from_bf16");
    if (nescapes) *nescapes = n;
    cudaFree(kept);
    return w;
}

/* A Rice stream in device memory. */
static inline r4_gpu weight_from_rice(const r4_rice_source &source, unsigned nrows, unsigned ncols,
                                      unsigned base, unsigned *nescapes, unsigned *fault) {
    r4_gpu w = new_weight(nrows, ncols, base);
    unsigned *kept = new_device<unsigned>((size_t)nrows * R4_KEPT),
             *faults = new_device<unsigned>(1);
    must(cudaMemset(faults, 0, 4), "memset");
    must(r4_gpu_from_rice(w, source, kept, faults, 1, 0), "from_rice 1");
    *nescapes = make_escapes(w);
    must(r4_gpu_from_rice(w, source, kept, faults, 2, 0), "from_rice 2");
    must(cudaDeviceSynchronize(), "from_rice");
    *fault = to_host(faults, 1)[0];
    cudaFree(kept);
    cudaFree(faults);
    return w;
}

static inline r4_gpu weight_from_fixed(r4_fixed_source source, unsigned nrows, unsigned ncols,
                                       unsigned base, unsigned *nescapes, unsigned *fault) {
    r4_gpu w = new_weight(nrows, ncols, base);
    unsigned *kept = new_device<unsigned>((size_t)nrows * R4_KEPT),
             *faults = new_device<unsigned>(1);
    source.code_starts = new_device<unsigned>((size_t)nrows + 1);
    source.escape_starts = new_device<unsigned>((size_t)nrows + 1);
    must(cudaMemset(faults, 0, 4), "memset");
    must(r4_gpu_from_fixed(w, source, kept, faults, 1, 0), "from_fixed 1");
    *nescapes = make_escapes(w);
    must(r4_gpu_from_fixed(w, source, kept, faults, 2, 0), "from_fixed 2");
    must(cudaDeviceSynchronize(), "from_fixed");
    *fault = to_host(faults, 1)[0];
    cudaFree(kept), cudaFree(faults), cudaFree(source.code_starts), cudaFree(source.escape_starts);
    return w;
}

#endif
