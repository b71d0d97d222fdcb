/* test_cuda_matvec.cu - the kernels of R4 on a GPU give the bits of the plain C definition.
 *
 * Layout, as made from BF16 and from Rice codes; matvec, in blocks of every size; rebuild, whole
 * and by blocks. Large shapes are compared with a BF16 matvec on the GPU, which small shapes and
 * some rows of each large one compare with plain C. Orders that are not the right one must differ.
 *
 *   test_cuda_matvec [few|large]     few: under a checker of memory or races; large: models' shapes
 */
#include <cstring>
#include <string>

#include "coded_streams.h"
#include "cuda/r4_gpu_plain.h"
#include "device_weight.cuh"
#include "gemv_bf16.cuh"

static unsigned nchecks, nfailures;

template <class T>
static bool same(const std::vector<T> &found, const std::vector<T> &expected, const char *what,
                 const std::string &name) {
    nchecks++;
    size_t ndiffer = 0, first = 0;
    if (found.size() != expected.size()) ndiffer = 1;
    for (size_t i = 0; i < expected.size() && i < found.size(); i++)
        if (memcmp(&found[i], &expected[i], sizeof(T)) && ndiffer++ == 0) first = i;
    if (ndiffer == 0) return true;
    nfailures++;
    printf("FAILED %s, %s: %zu of %zu differ, the first at %zu\n", name.c_str(), what, ndiffer,
           expected.size(), first);
    return false;
}

static void expect(bool holds, const char *what, const std::string &name) {
    nchecks++;
    if (holds) return;
    nfailures++;
    printf("FAILED %s: %s\n", name.c_str(), what);
}

/* ---- Data --------------------------------------------------------------------------------- */

static uint64_t state = 1;

static uint32_t draw() {
    state = state * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(state >> 32);
}

static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

enum kind { MODEL, CANCELLING, PATTERNS, FINITE, TINY, FEW_ESCAPES, ALL_ESCAPES, NKINDS };
enum { MIRRORED = -1 }; /* of x, so that what cancels in a row does so in the product */
static const char *const kind_names[] = {"model", "cancelling",  "all patterns", "finite",
                                         "tiny",  "few escapes", "all escapes"};

__host__ __device__ static uint64_t mix(uint64_t s) {
    s = (s ^ s >> 30) * 0xbf58476d1ce4e5b9ull;
    s = (s ^ s >> 27) * 0x94d049bb133111ebull;
    return s ^ s >> 31;
}

/* Every other weight is large and its mirror image in the row is its negative: what is left of
 * the small ones depends on when in the sum the large ones come and go. */
__host__ __device__ static uint16_t cancel(uint64_t row, uint64_t column, uint64_t ncols) {
    uint64_t mate = ncols - 1 - column, pair = column < mate ? column : mate;
    uint64_t random = mix((row << 24) + pair + 1);
    unsigned size = pair % 2 ? 143 + (random >> 8) % 6 : 126 + (random >> 8) % 2;
    unsigned sign = (random ^ (pair % 2 && column > mate)) & 1;
    return (uint16_t)(sign << 15 | size << 7 | (random >> 16 & 127));
}

static uint16_t draw_model() {
    float a = (float)(int32_t)draw() * 0x1p-31f, b = (float)(draw() >> 8 & 0xffff) * 0x1p-16f;
    return to_bf16(a * b * 0x1p-4f);
}

static uint16_t draw_weight(kind of) {
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

/* ---- One weight ------------------------------------------------------------------------------ */

struct weights {
    std::string name;
    unsigned nrows, ncols;
    std::vector<uint16_t> w, x;
    uint16_t *dw, *dx;
};

static void check_layout(const weights &t, const r4_gpu &w, unsigned nescapes, const char *what) {
    std::vector<uint8_t> slices(r4_gpu_slices_nbytes(w));
    std::vector<r4_row> rows(t.nrows + 1);
    std::vector<uint32_t> escapes(t.w.size());
    size_t n = r4_gpu_make_plain(t.w.data(), t.nrows, t.ncols, w.per_lane, w.base, slices.data(),
                                 rows.data(), escapes.data());
    escapes.resize(n);
    expect(n == nescapes, "number of escapes", t.name + ", " + what);
    same(to_host(w.slices, slices.size()), slices, what, t.name + ", slices");
    same(to_host(w.rows, rows.size()), rows, what, t.name + ", rows");
    same(to_host(w.escapes, n), escapes, what, t.name + ", escapes");
}

static void check_matvec(const weights &t, const r4_gpu &w, const std::vector<uint16_t> &expected) {
    uint16_t *dy = new_device<uint16_t>(t.nrows);
    for (unsigned nthreads = r4_matvec_nthreads(t.ncols); nthreads >= 128; nthreads /= 2) {
        must(cudaMemset(dy, 0xa5, 2 * (size_t)t.nrows), "memset");
        must(r4_gpu_matvec(w, t.dx, dy, 0, nthreads), "matvec");
        same(to_host(dy, t.nrows), expected, std::to_string(nthreads).c_str(), t.name + ", matvec");
    }
    cudaFree(dy);
}

static void check_rebuild(const weights &t, const r4_gpu &w) {
    uint16_t *out = new_device<uint16_t>(t.w.size());
    must(cudaMemset(out, 0xa5, 2 * t.w.size()), "memset");
    must(r4_gpu_rebuild(w, 0, t.nrows, t.nrows, out, 0), "rebuild");
    same(to_host(out, t.w.size()), t.w, "all rows", t.name + ", rebuild");

    unsigned block = t.nrows / 2, row0 = block / 3, taken = block - row0;
    if (block > 0) {
        std::vector<uint16_t> expected;
        for (unsigned b = 0; b < 2; b++) {
            auto first = t.w.begin() + (size_t)(b * block + row0) * t.ncols;
            expected.insert(expected.end(), first, first + (size_t)taken * t.ncols);
        }
        r4_gpu even = w;
        even.nrows = 2 * block;
        must(r4_gpu_rebuild(even, row0, taken, block, out, 0), "rebuild of blocks");
        same(to_host(out, expected.size()), expected, "blocks", t.name + ", rebuild");
    }
    cudaFree(out);
}

static std::vector<uint16_t> run_bf16(const weights &t, unsigned per_lane) {
    uint16_t *dy = new_device<uint16_t>(t.nrows);
    run_gemv_bf16(t.dw, t.dx, dy, t.nrows, t.ncols, per_lane, 0);
    auto y = to_host(dy, t.nrows);
    cudaFree(dy);
    return y;
}

static void check_rice(const weights &t, const coded_stream &s, unsigned base) {
    uint8_t *raw = to_device(s.raw), *meta = to_device(s.meta), *bits = to_device(s.bits);
    uint8_t *table = to_device(std::vector<uint8_t>(s.table, s.table + 256));
    uint32_t *starts = to_device(s.row_starts);
    r4_rice_source source = {raw, table, meta, (const unsigned *)bits, starts, s.bits.size() / 4};
    unsigned nescapes, fault;
    r4_gpu w = weight_from_rice(source, t.nrows, t.ncols, base, &nescapes, &fault);
    expect(!fault, "a sound Rice stream is called damaged", t.name);
    check_layout(t, w, nescapes, "from Rice");
    free_weight(w);

    if (source.nwords > 0) { /* the last row is short of a word */
        source.nwords--;
        r4_gpu damaged = weight_from_rice(source, t.nrows, t.ncols, base, &nescapes, &fault);
        expect(fault, "a Rice stream that is too short is taken", t.name);
        free_weight(damaged);
        source.nwords++;
    }
    must(cudaMemset(meta + s.meta.size() / 2, 255, 1), "memset"); /* a rank of 504 */
    r4_gpu damaged = weight_from_rice(source, t.nrows, t.ncols, base, &nescapes, &fault);
    expect(fault, "a tile with an impossible meta is taken", t.name);
    free_weight(damaged);
    cudaFree(raw), cudaFree(meta), cudaFree(bits), cudaFree(table), cudaFree(starts);
}

static void check_fixed(const weights &t, unsigned base) {
    coded_stream s = make_fixed_stream(t.w.data(), t.nrows, t.ncols);
    uint8_t *raw = to_device(s.raw), *meta = to_device(s.meta), *idx = to_device(s.bits);
    uint8_t *table = to_device(std::vector<uint8_t>(s.table, s.table + 256));
    uint8_t *esc = to_device(s.escapes);
    r4_fixed_source source = {
        raw,     table,  meta, (const unsigned *)idx, esc, s.bits.size() / 4, s.escapes.size(),
        nullptr, nullptr};
    unsigned nescapes, fault;
    r4_gpu w = weight_from_fixed(source, t.nrows, t.ncols, base, &nescapes, &fault);
    expect(!fault, "a sound fixed-width stream is called damaged", t.name);
    check_layout(t, w, nescapes, "from fixed-width codes");
    free_weight(w);

    source.nescapes++;
    w = weight_from_fixed(source, t.nrows, t.ncols, base, &nescapes, &fault);
    expect(fault, "escapes that no code asks for are taken", t.name);
    free_weight(w);
    source.nescapes--;
    source.nwords++;
    w = weight_from_fixed(source, t.nrows, t.ncols, base, &nescapes, &fault);
    expect(fault, "words that no tile asks for are taken", t.name);
    free_weight(w);
    source.nwords--;
    must(cudaMemset(meta + s.meta.size() / 2, 15, 1), "memset");
    w = weight_from_fixed(source, t.nrows, t.ncols, base, &nescapes, &fault);
    expect(fault, "a width of 15 is taken", t.name);
    free_weight(w);
    cudaFree(raw), cudaFree(meta), cudaFree(idx), cudaFree(table), cudaFree(esc);
}

static weights draw_weights(unsigned nrows, unsigned ncols, kind of) {
    weights t = {std::to_string(nrows) + " x " + std::to_string(ncols) + " " + kind_names[of],
                 nrows,
                 ncols,
                 {},
                 {},
                 nullptr,
                 nullptr};
    for (size_t i = 0; i < (size_t)nrows * ncols; i++)
        t.w.push_back(of == CANCELLING ? cancel(i / ncols, i % ncols, ncols) : draw_weight(of));
    for (unsigned k = 0; k < ncols; k++)
        t.x.push_back(of == PATTERNS ? (uint16_t)draw()
                                     : draw_weight(of == TINY && k % 2 ? TINY : MODEL));
    for (unsigned k = 0; k < ncols / 2 && of == CANCELLING; k++)
        t.x[ncols - 1 - k] = t.x[k];
    t.dw = to_device(t.w);
    t.dx = to_device(t.x);
    return t;
}

static void check_small(unsigned nrows, unsigned ncols, kind of) {
    weights t = draw_weights(nrows, ncols, of);
    coded_stream s = make_rice_stream(t.w.data(), nrows, ncols);
    unsigned base = of == ALL_ESCAPES ? 80 : r4_choose_base(s.table), nescapes;
    unsigned per_lane = r4_per_lane(ncols);
    std::vector<uint16_t> expected(nrows), wrong(nrows);

    r4_gemv_plain(t.w.data(), t.x.data(), nrows, ncols, per_lane, expected.data());
    r4_gpu w = weight_from_bf16(t.dw, nrows, ncols, base, &nescapes);
    if (of == ALL_ESCAPES) expect(nescapes == t.w.size(), "every weight is an escape", t.name);
    check_layout(t, w, nescapes, "from BF16");
    check_rice(t, s, base);
    check_fixed(t, base);
    check_matvec(t, w, expected);
    check_rebuild(t, w);
    same(run_bf16(t, per_lane), expected, "BF16 on the GPU", t.name);
    if (of == CANCELLING && ncols >= 512 && nrows >= 8) { /* another order, from plain C and R4 */
        unsigned other = per_lane == 1 ? 2 : per_lane / 2;
        r4_gemv_plain(t.w.data(), t.x.data(), nrows, ncols, other, wrong.data());
        expect(wrong != expected, "another order gives the same", t.name);
        uint16_t *dy = new_device<uint16_t>(nrows);
        r4_gpu reordered = weight_from_bf16(t.dw, nrows, ncols, base, &nescapes, other);
        must(r4_gpu_matvec(reordered, t.dx, dy, 0, 0), "matvec");
        same(to_host(dy, nrows), wrong, "another order", t.name);
        cudaFree(dy);
        free_weight(reordered);
    }
    free_weight(w);
    cudaFree(t.dw), cudaFree(t.dx);
}

/* ---- Shapes of models ------------------------------------------------------------------------ */

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
    weights t = {std::to_string(nrows) + " x " + std::to_string(ncols) + " " + kind_names[of],
                 nrows,
                 ncols,
                 {},
                 {},
                 new_device<uint16_t>(n),
                 new_device<uint16_t>(ncols)};
    unsigned base = of == CANCELLING ? 126 : 110, nescapes, per_lane = r4_per_lane(ncols);

    fill<<<(unsigned)((n + 255) / 256), 256>>>(t.dw, n, ncols, of, nrows);
    fill<<<(ncols + 255) / 256, 256>>>(t.dx, ncols, ncols, MIRRORED, 7);
    t.x = to_host(t.dx, ncols);
    r4_gpu w = weight_from_bf16(t.dw, nrows, ncols, base, &nescapes);
    auto expected = run_bf16(t, per_lane);
    check_matvec(t, w, expected);

    uint16_t *out = new_device<uint16_t>(n);
    must(r4_gpu_rebuild(w, 0, nrows, nrows, out, 0), "rebuild");
    std::vector<uint16_t> some, plain(1);
    for (unsigned i = 0; i < 24; i++) {
        unsigned r = i < 2 ? i * (nrows - 1) : draw() % nrows;
        auto row = to_host(t.dw + (size_t)r * ncols, ncols);
        r4_gemv_plain(row.data(), t.x.data(), 1, ncols, per_lane, plain.data());
        expect(plain[0] == expected[r], "a row differs from plain C", t.name);
        same(to_host(out + (size_t)r * ncols, ncols), row, "a row", t.name + ", rebuild");
    }
    same(to_host(out, n), to_host(t.dw, n), "all", t.name + ", rebuild");
    printf("%-28s %.5f escapes in 128 weights\n", t.name.c_str(), 128.0 * nescapes / (double)n);
    free_weight(w);
    cudaFree(t.dw), cudaFree(t.dx), cudaFree(out);
}

int main(int argc, char **argv) {
    static const unsigned cols[] = {4, 100, 128, 520, 704, 768, 1152, 2112, 4096, 17408};
    static const unsigned rows[] = {1, 37, 300};
    static const unsigned large[][2] = {
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
    };

    bool few = argc > 1 && !strcmp(argv[1], "few");

    for (unsigned c : cols)
        for (unsigned r : rows)
            for (int of = 0; of < NKINDS; of++) {
                bool taken = few ? r == 37 && (c == 520 || c == 704 || c == 4096) && of % 3 == 1
                                 : r * c <= 1500000;
                if (taken) check_small(r, c, (kind)of);
            }
    printf("small shapes: %u checks, %u failed\n", nchecks, nfailures);
    if (argc > 1 && !few)
        for (auto &shape : large)
            for (kind of : {MODEL, CANCELLING})
                check_large(shape[0], shape[1], of);
    if (argc > 1 && !few) check_large(262144, 8704, MODEL); /* more than 2^31 weights */
    printf("%u checks, %u failed\n", nchecks, nfailures);
    return nfailures > 0;
}
