/* test_cuda_load.cu - R4 made on the GPU, from codes of either format and from BF16, is that of the
 * plain C definition, byte for byte; damaged streams are told; exponents are counted.
 *
 *   test_cuda_load [least|few|large]
 */
#include "coded_streams.h"
#include "gpu_check.cuh"

/* A weight in BF16 and in codes; damaged copies of the latter are made from this. */
struct coded {
    std::string name;
    unsigned nrows, ncols, base;
    std::vector<uint16_t> w;
};

static void check_layout(const coded &t, const r4_gpu &w, unsigned nescapes, const char *what) {
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

static void check_bf16(const coded &t) {
    uint16_t *bf16 = to_device(t.w);
    unsigned nescapes;
    for (unsigned per_lane = r4_per_lane(t.ncols); per_lane > 0; per_lane /= 2) {
        r4_gpu w = weight_from_bf16(bf16, t.nrows, t.ncols, t.base, &nescapes, per_lane);
        check_layout(t, w, nescapes, ("from BF16 " + std::to_string(per_lane)).c_str());
        free_weight(w);
    }
    cudaFree(bf16);
}

/* Codes of either format on the GPU. */
struct device_stream {
    uint8_t *raw, *table, *meta, *bits, *escapes;
    uint32_t *row_starts;
};

static device_stream copy_stream(const coded_stream &s) {
    return {to_device(s.raw),     to_device(std::vector<uint8_t>(s.table, s.table + 256)),
            to_device(s.meta),    to_device(s.bits),
            to_device(s.escapes), to_device(s.row_starts)};
}

static void free_stream(const device_stream &d) {
    cudaFree(d.raw), cudaFree(d.table), cudaFree(d.meta), cudaFree(d.bits);
    cudaFree(d.escapes), cudaFree(d.row_starts);
}

/* load makes R4 of the codes on the GPU, as weight_from_rice does; damage: what it is to notice. */
template <class Load>
static void check_stream(const coded &t, const coded_stream &s, const char *damage,
                         const std::string &codes, Load load) {
    device_stream d = copy_stream(s);
    unsigned nescapes;
    bool fault;
    r4_gpu w = load(d, &nescapes, &fault);
    if (damage)
        expect(fault, damage, t.name + ", " + codes + ", taken");
    else
        expect(!fault, ("a sound stream of " + codes + " is called damaged").c_str(), t.name);
    if (!damage) check_layout(t, w, nescapes, ("from " + codes).c_str());
    free_weight(w);
    free_stream(d);
}

static void check_rice_stream(const coded &t, const coded_stream &s, const char *damage) {
    auto load = [&](const device_stream &d, unsigned *nescapes, bool *fault) {
        r4_rice_arrays source = {d.raw,        d.table,
                                 d.meta,       (const unsigned *)d.bits,
                                 d.row_starts, (unsigned)(s.bits.size() / 4)};
        return weight_from_rice(source, t.nrows, t.ncols, t.base, nescapes, fault);
    };
    check_stream(t, s, damage, "Rice codes", load);
}

static void check_rice(const coded &t) {
    const coded_stream sound = make_rice_stream(t.w.data(), t.nrows, t.ncols);
    coded_stream s = sound;
    check_rice_stream(t, s, nullptr);
    s.meta[s.meta.size() / 2] = 255; /* a rank of 504 */
    check_rice_stream(t, s, "an impossible meta");
    if (sound.bits.empty()) return;
    s = sound;
    s.bits.resize(s.bits.size() - 4);
    check_rice_stream(t, s, "a stream that is too short");
    s = sound;
    s.bits.resize(s.bits.size() + 4);
    check_rice_stream(t, s, "a stream that is too long");
    s = sound;
    s.row_starts[0] = 1;
    check_rice_stream(t, s, "a first row that begins late");
    for (uint32_t start : {0xffffffffu, 0x80000000u}) {
        s = sound;
        s.row_starts[t.nrows / 2] = start;
        check_rice_stream(t, s, "a row that begins behind the end");
    }
}

static void check_fixed_stream(const coded &t, const coded_stream &s, const char *damage) {
    auto load = [&](const device_stream &d, unsigned *nescapes, bool *fault) {
        r4_fixed_arrays source = {d.raw,
                                  d.table,
                                  d.meta,
                                  (const unsigned *)d.bits,
                                  d.escapes,
                                  (unsigned)(s.bits.size() / 4),
                                  (unsigned)s.escapes.size()};
        return weight_from_fixed(source, t.nrows, t.ncols, t.base, nescapes, fault);
    };
    check_stream(t, s, damage, "fixed-width codes", load);
}

static void check_fixed(const coded &t) {
    const coded_stream sound = make_fixed_stream(t.w.data(), t.nrows, t.ncols);
    coded_stream s = sound;
    check_fixed_stream(t, s, nullptr);
    s.escapes.push_back(0);
    check_fixed_stream(t, s, "escapes that no code asks for");
    s = sound;
    s.bits.resize(s.bits.size() + 4);
    check_fixed_stream(t, s, "words that no tile asks for");
    for (uint8_t meta : {15, 16, 21, 9, 255}) {
        s = sound;
        s.meta[s.meta.size() / 2] = meta;
        check_fixed_stream(t, s, "an impossible meta");
    }
}

static void check_count(const coded &t) {
    uint16_t *bf16 = to_device(t.w);
    std::vector<unsigned> expected(256), found(256);
    r4_grid grid;
    if (!r4_count_grid(&r4_gpu_device(), t.nrows, t.ncols, &grid)) exit(2);
    unsigned *counts = new_device<unsigned>((size_t)grid.nblocks * 256);
    must(r4_gpu_count(bf16, t.nrows, t.ncols, counts, 0), "count");
    auto blocks = to_host(counts, (size_t)grid.nblocks * 256);
    for (size_t i = 0; i < blocks.size(); i++)
        found[i % 256] += blocks[i];
    for (uint16_t weight : t.w)
        expected[weight >> 7 & 255]++;
    same(found, expected, "count", t.name);
    cudaFree(bf16), cudaFree(counts);
}

/* Codes of another base than the best: escapes by the row, more of them than are kept. */
static void check_small(unsigned nrows, unsigned ncols, kind of) {
    coded t = {std::to_string(nrows) + " x " + std::to_string(ncols) + " " + kind_names[of], nrows,
               ncols, choose_base(of), draw_weights(nrows, ncols, of)};
    check_bf16(t);
    check_rice(t);
    check_fixed(t);
    check_count(t);
}

int main(int argc, char **argv) {
    run_length length = read_length(argc, argv);
    for_small_weights(length, check_small);
    if (length == LARGE) check_small(5000, 4096, MODEL);
    return end_checks();
}
