/* test_cuda_gather.cu - products of items with their experts give the bits of the plain C
 * definition: every pattern of indices, some of the rows of an expert, two weights or two views of
 * one in a launch, indices out of range, grids that split items. A gather in another order must
 * differ.
 *
 *   test_cuda_gather [few|large]
 */
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

static void check_parts(const std::vector<part> &parts, const operands &o, unsigned nblocks,
                        const char *what) {
    std::vector<r4_view> views;
    for (const part &p : parts)
        views.push_back({p.of->r4, p.row0, p.taken, p.block_nrows,
                         new_device<uint16_t>((size_t)o.n * p.taken)});
    must(r4_gpu_gather(views.data(), (unsigned)views.size(), o.device, 0, nblocks), "gather");
    for (size_t i = 0; i < parts.size(); i++) {
        same(to_host(views[i].y, (size_t)o.n * parts[i].taken),
             gather_plain(parts[i], o, parts[i].of->r4.per_lane),
             (std::string(what) + ", part " + std::to_string(i) + ", " + std::to_string(o.n) +
              " items")
                 .c_str(),
             parts[i].of->name);
        cudaFree(views[i].y);
    }
}

/* Experts of block_nrows rows; another weight of 7. */
static void check_gather(unsigned nexperts, unsigned block_nrows, unsigned ncols, kind of) {
    static const char *const names[] = {"one token", "sorted",       "same expert", "backwards",
                                        "random",    "out of range", "in turn"};
    sample s = new_sample(nexperts * block_nrows, ncols, of);
    sample other = new_sample(nexperts * 7, ncols, MODEL);
    unsigned half = (block_nrows + 1) / 2;
    part whole = {&s, block_nrows, 0, block_nrows}, first = {&s, block_nrows, 0, half};
    part second = {&s, block_nrows, block_nrows - half, half}, last = {&other, 7, 6, 1};

    for (int p = 0; p < NPATTERNS; p++)
        for (unsigned n : {1u, 8u, 33u}) {
            if (n == 33 && block_nrows * ncols > 40000) continue;
            operands o = new_operands(n, 1 + n / 3, nexperts, ncols, of, (pattern)p);
            check_parts({whole}, o, 0, names[p]);
            check_parts({first, second}, o, 0, names[p]);
            check_parts({last, whole}, o, 0, names[p]);
            check_parts({first, last}, o, n * (half + 1), names[p]);
            free_operands(o);
        }
    free_sample(s), free_sample(other);
}

/* The layout of another order gives what plain C gives in it, not what is right. */
static void check_other_order(unsigned ncols) {
    unsigned right = r4_per_lane(ncols), wrong = right == 1 ? 2 : right / 2;
    sample s = new_sample(4 * 16, ncols, CANCELLING, wrong);
    operands o = new_operands(6, 2, 4, ncols, CANCELLING, RANDOM);
    part whole = {&s, 16, 0, 16};
    check_parts({whole}, o, 0, "another order");
    expect(gather_plain(whole, o, wrong) != gather_plain(whole, o, right),
           "another order gives the same", s.name);
    free_sample(s), free_operands(o);
}

int main(int argc, char **argv) {
    run_length length = read_length(argc, argv);
    for (unsigned ncols : check_cols)
        for (unsigned block_nrows : {1u, 5u, 40u})
            for (int of = 0; of < NKINDS; of++)
                if (ncols <= 4096 && is_taken(length, 5 * block_nrows, ncols, of) &&
                    (length != FEW || block_nrows == 5) && (block_nrows < 40 || of < 3))
                    check_gather(5, block_nrows, ncols, (kind)of);
    for (unsigned ncols : {520u, 704u, 2816u})
        check_other_order(ncols);
    if (length == LARGE) {
        check_gather(16, 1408, 2816, MODEL);
        check_gather(16, 2816, 704, CANCELLING);
    }
    return end_checks();
}
