/* test_cuda_rows.cu - BF16 comes back bit for bit: whole weights, some rows of every block, and
 * rows by their numbers, of each kind that an array of indices may have.
 *
 *   test_cuda_rows [least|few|large]
 */
#include <limits>

#include "gpu_check.cuh"

static std::vector<uint16_t> take_rows(const sample &s, const std::vector<size_t> &rows) {
    std::vector<uint16_t> taken;
    for (size_t r : rows)
        taken.insert(taken.end(), s.w.begin() + r * s.r4.ncols, s.w.begin() + (r + 1) * s.r4.ncols);
    return taken;
}

static void check_rebuild(const sample &s) {
    uint16_t *out = new_device<uint16_t>(s.w.size());
    must(r4_gpu_rebuild(view_all(s.r4), out, 0), "rebuild");
    same(to_host(out, s.w.size()), s.w, "all rows", s.name + ", rebuild");
    cudaFree(out);

    unsigned block = s.r4.nrows / 2, row0 = block / 3, taken = block - row0;
    if (block == 0) return;
    std::vector<size_t> rows;
    for (unsigned b = 0; b < s.r4.nrows / block; b++)
        for (unsigned i = 0; i < taken; i++)
            rows.push_back(b * block + row0 + i);
    out = new_device<uint16_t>(rows.size() * s.r4.ncols);
    must(r4_gpu_rebuild({s.r4, row0, taken, block, nullptr}, out, 0), "rebuild of blocks");
    same(to_host(out, rows.size() * s.r4.ncols), take_rows(s, rows), "blocks",
         s.name + ", rebuild");
    cudaFree(out);
}

/* Ids of type Id, of rows row0 .. row0 + nrows. */
template <class Id>
static void check_ids(const sample &s, unsigned row0, unsigned nrows, const char *what) {
    const long long most = (long long)std::numeric_limits<Id>::max();
    const long long least = (long long)std::numeric_limits<Id>::min();
    std::vector<Id> ids;
    std::vector<uint16_t> expected;

    for (long long id : {0ll, (long long)nrows - 1, (long long)nrows, -1ll, -(long long)nrows,
                         -(long long)nrows - 1, 1ll << 32, -(1ll << 40), most, least, 0ll})
        ids.push_back((Id)id);
    for (unsigned i = 0; i < 20; i++)
        ids.push_back((Id)(draw() % nrows));
    for (Id id : ids) {
        bool is_back = std::numeric_limits<Id>::is_signed && (long long)id < 0;
        bool is_there =
            is_back ? (long long)id >= -(long long)nrows : (unsigned long long)id < nrows;
        size_t row = is_back ? (size_t)((long long)id + nrows) : (size_t)id;
        for (unsigned c = 0; c < s.r4.ncols; c++)
            expected.push_back(is_there ? s.w[(row0 + row) * s.r4.ncols + c] : 0x7fff);
    }
    Id *dids = to_device(ids);
    uint16_t *out = new_device<uint16_t>(expected.size());
    must(r4_gpu_rows({s.r4, row0, nrows, 0, nullptr}, dids, (unsigned)ids.size(), sizeof(Id),
                     std::numeric_limits<Id>::is_signed, out, 0),
         "rows");
    same(to_host(out, expected.size()), expected, what, s.name + ", rows");
    cudaFree(dids), cudaFree(out);
}

static void check_small(unsigned nrows, unsigned ncols, kind of) {
    sample s = new_sample(nrows, ncols, of);
    unsigned row0 = nrows / 4, taken = nrows - row0 - (nrows > 4);
    check_rebuild(s);
    check_ids<int32_t>(s, row0, taken, "int32");
    check_ids<uint32_t>(s, row0, taken, "uint32");
    check_ids<int64_t>(s, 0, nrows, "int64");
    check_ids<uint64_t>(s, row0, taken, "uint64");
    free_sample(s);
}

int main(int argc, char **argv) {
    run_length length = read_length(argc, argv);
    for_small_weights(length, check_small);
    if (length == LARGE) check_small(20000, 4096, MODEL);
    return end_checks();
}
