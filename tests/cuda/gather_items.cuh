/* gather_items.cuh - items for products with experts: indices of every pattern, with rows of x. */
#ifndef BINADE_GATHER_ITEMS_CUH
#define BINADE_GATHER_ITEMS_CUH

#include "gpu_check.cuh"

/* IN_TURN: without lhs, the items of a row of x follow each other. */
enum pattern {
    ONE_TOKEN,
    SORTED,
    SAME_EXPERT,
    BACKWARDS,
    RANDOM,
    OUT_OF_RANGE,
    IN_TURN,
    NPATTERNS
};
static const char *const pattern_names[] = {"one token", "sorted",       "same expert", "backwards",
                                            "random",    "out of range", "in turn"};

static unsigned count_items_per_x(unsigned n, unsigned nx) {
    return (n + nx - 1) / nx;
}

struct indices {
    std::vector<uint32_t> lhs, rhs;
};

static indices draw_indices(pattern of, unsigned n, unsigned nx, unsigned nexperts) {
    indices all;
    for (unsigned i = 0; i < n; i++) {
        uint32_t lhs = of == ONE_TOKEN ? 0
                       : of == RANDOM  ? draw() % nx
                       : of == IN_TURN ? i / count_items_per_x(n, nx)
                                       : i * nx / n;
        uint32_t rhs = of == SORTED        ? i * nexperts / n
                       : of == SAME_EXPERT ? nexperts - 1
                       : of == BACKWARDS   ? (n - i) % nexperts
                                           : draw() % nexperts;
        if (of == OUT_OF_RANGE && i % 3 == 1) lhs = i % 2 ? nx : ~0u;
        if (of == OUT_OF_RANGE && i % 4 == 2) rhs = i % 8 == 2 ? nexperts : 0x80000000u;
        all.lhs.push_back(lhs);
        all.rhs.push_back(rhs);
    }
    return all;
}

/* Views of each expert's rows of samples. */
struct part {
    const sample *of;
    unsigned block_nrows, row0, taken;
};

struct operands {
    unsigned n, nx, nexperts;
    std::vector<uint16_t> x;
    indices at;
    r4_items device;
};

static operands new_operands(unsigned n, unsigned nx, unsigned nexperts, unsigned ncols, kind of,
                             pattern pattern) {
    operands o = {n, nx, nexperts, draw_x(nx, ncols, of), draw_indices(pattern, n, nx, nexperts),
                  {}};
    o.device = {to_device(o.x), to_device(o.at.lhs), to_device(o.at.rhs), n, nx, nexperts, 0};
    if (pattern == IN_TURN) {
        cudaFree((void *)o.device.lhs);
        o.device.lhs = nullptr;
        o.device.items_per_x = count_items_per_x(n, nx);
    }
    return o;
}

static void free_operands(operands &o) {
    cudaFree((void *)o.device.x), cudaFree((void *)o.device.lhs), cudaFree((void *)o.device.rhs);
}

static std::vector<uint16_t> gather_plain(const part &p, const operands &o, unsigned per_lane) {
    std::vector<uint16_t> y((size_t)o.n * p.taken);
    r4_experts experts = {o.nexperts, p.block_nrows, p.row0, p.taken};
    r4_pairs pairs = {o.x.data(), o.nx, o.n, o.at.lhs.data(), o.at.rhs.data()};
    r4_gather_plain(p.of->w.data(), p.of->r4.ncols, &experts, &pairs, per_lane, y.data());
    return y;
}

#endif
