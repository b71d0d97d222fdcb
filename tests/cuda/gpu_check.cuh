/* gpu_check.cuh - counted checks, and weights that make mistakes show, for the tests on a GPU. */
#ifndef BINADE_GPU_CHECK_CUH
#define BINADE_GPU_CHECK_CUH

#include <cstring>
#include <string>

#include "cuda/r4_gpu_plain.h"
#include "device_weight.cuh"

static unsigned nchecks, nfailures;

template <class T>
static bool same(const std::vector<T> &found, const std::vector<T> &expected, const char *what,
                 const std::string &name) {
    nchecks++;
    size_t ndiffer = found.size() != expected.size(), first = 0;
    for (size_t i = 0; i < expected.size() && i < found.size(); i++)
        if (memcmp(&found[i], &expected[i], sizeof(T)) && ndiffer++ == 0) first = i;
    if (ndiffer == 0) return true;
    nfailures++;
    printf("FAILED %s, %s: %zu of %zu differ, the first at %zu\n", name.c_str(), what, ndiffer,
           expected.size(), first);
    return false;
}

static inline void expect(bool holds, const char *what, const std::string &name) {
    nchecks++;
    if (holds) return;
    nfailures++;
    printf("FAILED %s: %s\n", name.c_str(), what);
}

/* The last line of main. A test that checked nothing has failed. */
static inline int end_checks() {
    printf("%u checks, %u failed\n", nchecks, nfailures);
    return nfailures > 0 || nchecks == 0;
}

/* ---- Data --------------------------------------------------------------------------------- */

static uint64_t draw_state = 1;

static inline uint32_t draw() {
    draw_state = draw_state * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(draw_state >> 32);
}

enum kind { MODEL, CANCELLING, PATTERNS, FINITE, TINY, FEW_ESCAPES, ALL_ESCAPES, NKINDS };
static const char *const kind_names[] = {"model", "cancelling",  "all patterns", "finite",
                                         "tiny",  "few escapes", "all escapes"};

__host__ __device__ static inline uint64_t mix(uint64_t s) {
    s = (s ^ s >> 30) * 0xbf58476d1ce4e5b9ull;
    s = (s ^ s >> 27) * 0x94d049bb133111ebull;
    return s ^ s >> 31;
}

/* Every other weight is large and its mirror image in the row is its negative: what is left of
 * the small ones depends on when in the sum the large ones come and go. */
__host__ __device__ static inline uint16_t cancel(uint64_t row, uint64_t column, uint64_t ncols) {
    uint64_t mate = ncols - 1 - column, pair = column < mate ? column : mate;
    uint64_t random = mix((row << 24) + pair + 1);
    unsigned size = pair % 2 ? 143 + (random >> 8) % 6 : 126 + (random >> 8) % 2;
    unsigned sign = (random ^ (pair % 2 && column > mate)) & 1;
    return (uint16_t)(sign << 15 | size << 7 | (random >> 16 & 127));
}

static inline uint16_t draw_model() {
    float a = (float)(int32_t)draw() * 0x1p-31f, b = (float)(draw() >> 8 & 0xffff) * 0x1p-16f;
    float value = a * b * 0x1p-4f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static inline uint16_t draw_weight(kind of) {
    switch (of) {
    case PATTERNS:
        return (uint16_t)draw();
    case FINITE: {
        uint16_t bits = (uint16_t)draw();
        return (bits & 0x7f80) == 0x7f80 ? bits & 0xbfff : bits;
    }
    case TINY:
        return (uint16_t)((draw() & 0x80ff) | (draw() % 8 == 0 ? 0x0300 : 0));
    case FEW_ESCAPES:
        return draw() % 40 ? draw_model() : (uint16_t)draw() & 0xbfff;
    case ALL_ESCAPES:
        return (uint16_t)((draw() & 0x807f) | (draw() % 2 ? 0x4000 : 0x1000));
    default:
        return draw_model();
    }
}

/* All 65,536 patterns once each, in the first rows of a weight that is large enough. */
static inline std::vector<uint16_t> draw_weights(unsigned nrows, unsigned ncols, kind of) {
    std::vector<uint16_t> w((size_t)nrows * ncols);
    for (size_t i = 0; i < w.size(); i++)
        w[i] = of == CANCELLING                 ? cancel(i / ncols, i % ncols, ncols)
               : of == PATTERNS && i < 1u << 16 ? (uint16_t)(i * 40503)
                                                : draw_weight(of);
    return w;
}

/* nx rows; what cancels in a row of the weight does so in the product. */
static inline std::vector<uint16_t> draw_x(unsigned nx, unsigned ncols, kind of) {
    std::vector<uint16_t> x((size_t)nx * ncols);
    for (size_t i = 0; i < x.size(); i++) {
        unsigned k = (unsigned)(i % ncols);
        x[i] = of == PATTERNS ? (uint16_t)draw()
               : of == CANCELLING && k >= ncols / 2
                   ? x[i - k + ncols - 1 - k]
                   : draw_weight(of == TINY && k % 2 ? TINY : MODEL);
        if (of == CANCELLING && ncols % 2 && k == ncols / 2) x[i] = draw_model();
    }
    return x;
}

static inline unsigned choose_base(kind of) {
    return of == ALL_ESCAPES ? 80 : of == CANCELLING ? 126 + draw() % 9 : 106 + draw() % 6;
}

/* A weight on both sides. */
struct sample {
    std::string name;
    std::vector<uint16_t> w;
    uint16_t *bf16;
    r4_gpu r4;
};

static inline sample new_sample(unsigned nrows, unsigned ncols, kind of, unsigned per_lane = 0) {
    sample s;
    s.name = std::to_string(nrows) + " x " + std::to_string(ncols) + " " + kind_names[of];
    s.w = draw_weights(nrows, ncols, of);
    s.bf16 = to_device(s.w);
    s.r4 = weight_from_bf16(s.bf16, nrows, ncols, choose_base(of), nullptr, per_lane);
    return s;
}

static inline void free_sample(sample &s) {
    cudaFree(s.bf16);
    free_weight(s.r4);
}

/* Rows of a sample times a row of x, in plain C. */
static inline std::vector<uint16_t> multiply_plain(const sample &s, unsigned row0, unsigned nrows,
                                                   const uint16_t *x, unsigned n) {
    std::vector<uint16_t> y(nrows);
    r4_gemv_plain(s.w.data() + (size_t)row0 * s.r4.ncols, x, nrows, s.r4.ncols, n, y.data());
    return y;
}

enum run_length { LEAST, FEW, DEFAULT, LARGE };

/* least: emulated; few: under a checker of memory or races; large: models' shapes besides. */
static inline run_length read_length(int argc, char **argv) {
    if (argc < 2) return DEFAULT;
    if (!strcmp(argv[1], "least")) return LEAST;
    if (!strcmp(argv[1], "few")) return FEW;
    if (!strcmp(argv[1], "large")) return LARGE;
    fprintf(stderr, "usage: %s [least|few|large]\n", argv[0]);
    exit(2);
}

static const unsigned check_cols[] = {4,   100,  128,  384,  520,  704,  768,
                                      896, 1152, 2112, 2816, 4096, 17408};

/* Whether a run of this length takes a weight. */
static inline bool is_taken(run_length length, unsigned nrows, unsigned ncols, int of) {
    if (length == LEAST)
        return of == CANCELLING    ? ncols == 520 || ncols == 896
               : of == FEW_ESCAPES ? ncols == 704 || ncols == 1152
               : of == MODEL       ? ncols == 704
                                   : ncols == 100 && of == TINY;
    if (length == FEW) return (ncols == 520 || ncols == 704 || ncols == 4096) && of % 3 == 1;
    return (size_t)nrows * ncols <= 1500000;
}

/* Weights of each kind that a run of this length takes. */
static inline void for_small_weights(run_length length,
                                     void check(unsigned nrows, unsigned ncols, kind of)) {
    for (unsigned ncols : check_cols)
        for (unsigned nrows : {1u, 37u, 300u})
            for (int of = 0; of < NKINDS; of++)
                if (is_taken(length, nrows, ncols, of) && (length > FEW || nrows == 37))
                    check(nrows, ncols, (kind)of);
}

#endif
