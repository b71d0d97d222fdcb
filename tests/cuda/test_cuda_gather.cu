/* test_cuda_gather.cu - products of items with their experts give the bits of the plain C
 * definition: every pattern of indices, some of the rows of an expert, two weights or two views of
 * one in a launch, indices out of range, grids that split items. A gather in another order must
 * differ.
 *
 *   test_cuda_gather [least|few|large]
 */
#include "gather_items.cuh"

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
static void check_gather(unsigned nexperts, unsigned block_nrows, unsigned ncols, kind of,
                         run_length length) {
    sample s = new_sample(nexperts * block_nrows, ncols, of);
    sample other = new_sample(nexperts * 7, ncols, MODEL);
    unsigned half = (block_nrows + 1) / 2;
    part whole = {&s, block_nrows, 0, block_nrows}, first = {&s, block_nrows, 0, half};
    part second = {&s, block_nrows, block_nrows - half, half}, last = {&other, 7, 6, 1};

    for (int p = 0; p < NPATTERNS; p++)
        for (unsigned n : {1u, 8u, 33u}) {
            if (n == 33 && block_nrows * ncols > 40000) continue;
            if (n == 33 && length == LEAST && (ncols != 704 || p % 3)) continue;
            operands o = new_operands(n, 1 + n / 3, nexperts, ncols, of, (pattern)p);
            check_parts({whole}, o, 0, pattern_names[p]);
            check_parts({first, second}, o, 0, pattern_names[p]);
            check_parts({last, whole}, o, 0, pattern_names[p]);
            check_parts({first, last}, o, n * (half + 1), pattern_names[p]);
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
                    (length > FEW || block_nrows == 5) && (block_nrows < 40 || of < 3))
                    check_gather(5, block_nrows, ncols, (kind)of, length);
    for (unsigned ncols : {520u, 704u, 2816u})
        check_other_order(ncols);
    if (length == LARGE) {
        check_gather(16, 1408, 2816, MODEL, length);
        check_gather(16, 2816, 704, CANCELLING, length);
    }
    return end_checks();
}
