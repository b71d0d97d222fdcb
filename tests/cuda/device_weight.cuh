/* device_weight.cuh - device arrays and R4 weights that a test or benchmark owns. Stops the program
 * when CUDA fails. Device arrays are exactly as large as asked for and begin as 0xa5 bytes, so that
 * what a kernel leaves out, or writes besides, shows.
 */
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
    must(cudaMemset(at, 0xa5, n * sizeof(T)), "memset");
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

/* Slices and rows of a weight. */
static inline r4_gpu new_weight(unsigned nrows, unsigned ncols, unsigned base) {
    r4_gpu w = {nrows, ncols, r4_per_lane(ncols), base, nullptr, nullptr, nullptr};
    w.slices = new_device<unsigned char>(r4_gpu_slices_nbytes(w));
    w.rows = new_device<r4_row>((size_t)nrows + 1);
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

/* All rows of a weight, as one block. */
static inline r4_view view_all(const r4_gpu &w, uint16_t *y = nullptr) {
    return {w, 0, w.nrows, w.nrows, y};
}

static inline r4_scratch new_scratch(unsigned nrows) {
    return {new_device<unsigned>(2 * (size_t)nrows),
            new_device<unsigned>((size_t)nrows * R4_KEPT),
            new_device<unsigned>(nrows),
            new_device<unsigned>(nrows),
            new_device<unsigned>((size_t)nrows + 1),
            new_device<unsigned>((size_t)nrows + 1)};
}

static inline void free_scratch(const r4_scratch &s) {
    cudaFree(s.counts), cudaFree(s.kept), cudaFree(s.faults);
    cudaFree(s.found), cudaFree(s.code_starts), cudaFree(s.escape_starts);
}

/* Whether any row is damaged; stops the program if a row says neither. */
static inline bool any_fault(const r4_scratch &s, unsigned nrows) {
    bool any = false;
    for (unsigned fault : to_host(s.faults, nrows)) {
        if (fault > 1) must(cudaErrorUnknown, "faults are not all written");
        any |= fault == 1;
    }
    return any;
}

/* Makes R4 of BF16 in device memory. per_lane 0: that of MLX. */
static inline r4_gpu weight_from_bf16(const uint16_t *bf16, unsigned nrows, unsigned ncols,
                                      unsigned base, unsigned *nescapes = nullptr,
                                      unsigned per_lane = 0) {
    r4_gpu w = new_weight(nrows, ncols, base);
    if (per_lane) w.per_lane = per_lane;
    r4_scratch s = new_scratch(nrows);
    must(r4_gpu_from_bf16(w, bf16, s, 1, 0), "from_bf16 1");
    unsigned n = make_escapes(w);
    must(r4_gpu_from_bf16(w, bf16, s, 2, 0), "from_bf16 2");
    must(cudaDeviceSynchronize(), "from_bf16");
    if (nescapes) *nescapes = n;
    free_scratch(s);
    return w;
}

/* Makes R4 with load(weight, scratch, step); tells whether a fault was found. */
template <class Load>
static inline r4_gpu weight_from(unsigned nrows, unsigned ncols, unsigned base, unsigned *nescapes,
                                 bool *fault, Load load) {
    r4_gpu w = new_weight(nrows, ncols, base);
    r4_scratch s = new_scratch(nrows);
    must(load(w, s, 1), "load 1");
    *nescapes = make_escapes(w);
    must(load(w, s, 2), "load 2");
    must(cudaDeviceSynchronize(), "load");
    *fault = any_fault(s, nrows);
    free_scratch(s);
    return w;
}

static inline r4_gpu weight_from_rice(const r4_rice_arrays &source, unsigned nrows, unsigned ncols,
                                      unsigned base, unsigned *nescapes, bool *fault) {
    return weight_from(nrows, ncols, base, nescapes, fault,
                       [&](const r4_gpu &w, const r4_scratch &s, int step) {
                           return r4_gpu_from_rice(w, source, s, step, 0);
                       });
}

static inline r4_gpu weight_from_fixed(const r4_fixed_arrays &source, unsigned nrows,
                                       unsigned ncols, unsigned base, unsigned *nescapes,
                                       bool *fault) {
    return weight_from(nrows, ncols, base, nescapes, fault,
                       [&](const r4_gpu &w, const r4_scratch &s, int step) {
                           return r4_gpu_from_fixed(w, source, s, step, 0);
                       });
}

#endif
