/* test_r4_grid.c - how the kernels of R4 on a GPU are launched: every row has a warp, shared memory
 * holds what a block stages, and what cannot be launched is refused. Also the plain C definition of
 * a gather, and columns and positions, which are inverse. */
#include "check.h"
#include "cuda/r4_gpu_layout.h"
#include "cuda/r4_gpu_plain.h"
#include "cuda/r4_grid.h"

#include <limits.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const struct r4_device devices[] = {
    {108, 166912}, /* A100 */
    {132, 232448}, /* H200 */
    {170, 101376}, /* RTX 5090 */
    {1, 49152},
};

static const unsigned cols[] = {1,    4,     128,   704,   2112,  2816,  4096,
                                8192, 14336, 28672, 40000, 50000, 60000, 1 << 24};

static size_t staged_nbytes(unsigned ncols) {
    return (size_t)((ncols + 511) / 512) * 2048;
}

enum { MATVEC_NSTAGES = 3, GATHER_NSTAGES = 2 }; /* spans of a warp's ring */

static size_t rings_nbytes(unsigned nthreads, unsigned nstages) {
    return nthreads / 32 * (size_t)nstages * R4_SPAN_NBYTES;
}

static bool is_block(unsigned nthreads) {
    return nthreads >= 128 && nthreads <= 1024 && (nthreads & (nthreads - 1)) == 0;
}

static void test_matvec(void) {
    for (size_t d = 0; d < COUNT_OF(devices); d++)
        for (size_t c = 0; c < COUNT_OF(cols); c++) {
            const struct r4_device *device = &devices[d];
            struct r4_grid grid = {7, 7, 7};
            bool fits =
                staged_nbytes(cols[c]) + rings_nbytes(128, MATVEC_NSTAGES) <= device->shared_most;
            bool found = r4_matvec_grid(device, cols[c], 100, &grid);
            CHECK(found == fits, "device %zu, %u columns: %d", d, cols[c], found);
            if (!found) {
                CHECK(grid.nblocks == 7, "a grid that is none was written");
                continue;
            }
            size_t nbytes = staged_nbytes(cols[c]) + rings_nbytes(grid.nthreads, MATVEC_NSTAGES);
            CHECK(is_block(grid.nthreads) && nbytes <= device->shared_most,
                  "device %zu, %u columns: %u threads", d, cols[c], grid.nthreads);
            CHECK(grid.nthreads == 1024 ||
                      nbytes + rings_nbytes(grid.nthreads, MATVEC_NSTAGES) > device->shared_most,
                  "device %zu, %u columns: more threads have room", d, cols[c]);
            CHECK(grid.shared_nbytes == device->shared_most, "shared memory differs by launch");
            CHECK(grid.nblocks == (device->nprocessors < 100 ? device->nprocessors : 100),
                  "%u blocks for 100 rows", grid.nblocks);
        }
    struct r4_grid grid;
    CHECK(!r4_matvec_grid(&devices[1], 128, 0, &grid), "no rows");
    CHECK(!r4_matvec_grid(&devices[1], 128, (size_t)INT_MAX + 1, &grid), "2^31 rows");
}

/* Walks the runs of a grid as r4_gather.cuh does. */
static void check_gather(const struct r4_device *device, unsigned ncols, size_t n, size_t taken) {
    struct r4_grid grid;
    if (!r4_gather_grid(device, ncols, n, taken, &grid)) {
        CHECK(n > 1 || staged_nbytes(ncols) + 8 + rings_nbytes(128, GATHER_NSTAGES) >
                           device->shared_most,
              "%u columns, %zu x %zu refused", ncols, n, taken);
        CHECK(2 * (staged_nbytes(ncols) + 8) + rings_nbytes(128, GATHER_NSTAGES) >
                  device->shared_most,
              "%u columns, %zu x %zu refused", ncols, n, taken);
        return;
    }
    size_t nrows = n * taken, at = 0, most = 0;
    for (size_t b = 0; b < grid.nblocks; b++) {
        size_t run = nrows / grid.nblocks + (b < nrows % grid.nblocks);
        size_t nitems = (at % taken + run + taken - 1) / taken;
        CHECK(run > 0, "a block without rows");
        if (nitems > most) most = nitems;
        at += run;
    }
    CHECK(at == nrows, "%zu of %zu rows", at, nrows);
    CHECK(is_block(grid.nthreads) && grid.shared_nbytes == device->shared_most, "%u threads",
          grid.nthreads);
    CHECK(most * (staged_nbytes(ncols) + 8) + rings_nbytes(grid.nthreads, GATHER_NSTAGES) <=
              device->shared_most,
          "%u columns, %zu x %zu: %zu items in a run", ncols, n, taken, most);
    CHECK(grid.nblocks >= (nrows < device->nprocessors ? nrows : device->nprocessors),
          "%u blocks leave multiprocessors idle", grid.nblocks);
}

static void test_gather(void) {
    static const size_t items[] = {1, 2, 8, 32, 63, 1000}, taken[] = {1, 2, 5, 704, 1408, 2816};
    for (size_t d = 0; d < COUNT_OF(devices); d++)
        for (size_t c = 0; c < COUNT_OF(cols); c++)
            for (size_t i = 0; i < COUNT_OF(items); i++)
                for (size_t t = 0; t < COUNT_OF(taken); t++)
                    check_gather(&devices[d], cols[c], items[i], taken[t]);
    struct r4_grid grid;
    CHECK(!r4_gather_grid(&devices[1], 128, 0, 5, &grid), "no items");
    CHECK(!r4_gather_grid(&devices[1], 128, 5, 0, &grid), "no rows");
    CHECK(!r4_gather_grid(&devices[1], 128, 1 << 20, 1 << 12, &grid), "2^32 rows");
}

static void test_warps(void) {
    struct r4_grid grid;
    CHECK(r4_matvec_any_grid(17, &grid) && grid.nblocks == 3 && grid.nthreads == 256, "any");
    CHECK(r4_load_grid(16, &grid) && grid.nblocks == 2 && grid.nthreads == 256, "load");
    CHECK(r4_scan_grid(16, &grid) && grid.nblocks == 1 && grid.nthreads == 1024, "scan");
    CHECK(r4_rebuild_grid(4096, 3, &grid) && grid.nblocks == 1, "8 groups a row are 2 warps");
    CHECK(r4_rebuild_grid(4097, 3, &grid) && grid.nblocks == 2, "9 groups a row are 3 warps");
    CHECK(r4_rows_grid(4097, 3, &grid) && grid.nblocks == 4, "9 groups a row are 9 warps");
    CHECK(r4_count_grid(&devices[1], 1, 1, &grid) && grid.nblocks == 1, "one weight");
    CHECK(r4_count_grid(&devices[1], 1 << 20, 4096, &grid) && grid.nblocks == 528, "2^32 weights");
    CHECK(grid.shared_nbytes == 0, "static shared memory alone");
    CHECK(!r4_load_grid(0, &grid) && !r4_scan_grid(0, &grid) && !r4_rows_grid(8, 0, &grid) &&
              !r4_rebuild_grid(8, 0, &grid) && !r4_count_grid(&devices[1], 0, 8, &grid),
          "nothing to do");
    CHECK(!r4_load_grid((size_t)INT_MAX, &grid), "more threads than an int counts");
    CHECK(!r4_rebuild_grid(1 << 24, INT_MAX, &grid), "more threads than an int counts");
}

static void test_positions(void) {
    for (unsigned per_lane = 1; per_lane <= 4; per_lane *= 2)
        for (unsigned p = 0; p < 4096; p++)
            CHECK(r4_position(r4_column(p, per_lane), per_lane) == p &&
                      r4_column(p, per_lane) / 128 == p / 128,
                  "position %u, %u a lane", p, per_lane);
}

/* Items are the rows of single products. */
static void test_gather_plain(void) {
    enum { K = 100, BLOCK = 5, NEXPERTS = 3, NX = 2, N = 6 };
    static const uint32_t lhs[N] = {0, 1, 1, 2, 0, 1}, rhs[N] = {2, 0, 1, 0, 3, ~0u};
    uint16_t w[NEXPERTS * BLOCK * K], x[NX * K], y[N * 3], one[3];
    struct r4_experts experts = {NEXPERTS, BLOCK, 1, 3};
    struct r4_pairs pairs = {x, NX, N, lhs, rhs};

    for (unsigned i = 0; i < COUNT_OF(w); i++)
        w[i] = (uint16_t)(0x3c00 + i * 37 % 1024);
    for (unsigned i = 0; i < COUNT_OF(x); i++)
        x[i] = (uint16_t)(0xbc00 + i * 91 % 1024);
    r4_gather_plain(w, K, &experts, &pairs, 1, y);
    for (unsigned i = 0; i < N; i++) {
        for (unsigned r = 0; r < 3; r++)
            one[r] = 0x7fff;
        if (i < 3) r4_gemv_plain(w + (rhs[i] * BLOCK + 1) * K, x + lhs[i] * K, 3, K, 1, one);
        CHECK(!memcmp(y + 3 * i, one, sizeof one), "item %u", i);
    }
}

int main(void) {
    test_matvec();
    test_gather();
    test_warps();
    test_positions();
    test_gather_plain();
    return check_end();
}
