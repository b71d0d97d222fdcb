/* test_r4_gemm_grid.c - which kernel of r4_gemm.cu multiplies several rows of x, with what grid,
 * and what is refused. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/r4_gemm_grid.h"

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const struct r4_device h200 = {132, 232448};

/* Of a kernel, as in r4_gemm_slots.cuh: a warp each that multiplies or copies, 4 of both, and 16 or
 * 8 that decode; slots of units of 64 columns, two bytes each, of 64 rows of W and NX of x. */
struct size {
    unsigned nx, nthreads, slots_nbytes;
};
static const struct size sizes[] = {
    {16, 32 * (4 + 16 + 4), 5 * 4 * (64 + 16) * 128},
    {64, 32 * (4 + 16 + 4), 3 * 4 * (64 + 64) * 128},
    {128, 32 * (4 + 8 + 4), 4 * 2 * (64 + 128) * 128},
};

enum {
    BARRIERS_NBYTES = 1024,
    STARTS_NBYTES = 5 * 1024, /* of 1,024 experts, and where the last one ends */
};
_Static_assert(STARTS_NBYTES % 1024 == 0 && STARTS_NBYTES >= 4 * (R4_GEMM_EXPERTS_MOST + 1),
               "slots stay aligned behind the starts");

static int find(const struct r4_device *device, const struct r4_gemm_product *p,
                struct r4_gemm_kernel *kernel, struct r4_grid *grid) {
    *kernel = (struct r4_gemm_kernel){7, 7, 7};
    *grid = (struct r4_grid){7, 7, 7};
    return r4_gemm_grid(device, p, kernel, grid);
}

/* The kernel `size`, and that many blocks. */
static void take(const struct r4_device *device, struct r4_gemm_product p, const struct size *size,
                 unsigned nblocks) {
    unsigned shared = BARRIERS_NBYTES + (p.nexperts ? STARTS_NBYTES : 0) + size->slots_nbytes;
    struct r4_gemm_kernel kernel;
    struct r4_grid grid;

    if (!find(device, &p, &kernel, &grid) || kernel.nx != size->nx ||
        kernel.per_lane != (p.ncols % 128 ? 2 : 4) ||
        kernel.nsplits != (p.nexperts ? 0 : p.nsplits) || grid.nblocks != nblocks ||
        grid.nthreads != size->nthreads || grid.shared_nbytes != shared)
        fail_msg(
            "x [%u, %u], %u rows, %u splits, %u experts, tile %u: kernel %u %u %u, grid %u %u %u; "
            "expected NX %u, %u blocks",
            p.nx, p.ncols, p.taken, p.nsplits, p.nexperts, p.tile, kernel.nx, kernel.per_lane,
            kernel.nsplits, grid.nblocks, grid.nthreads, grid.shared_nbytes, size->nx, nblocks);
}

static void refuse(const struct r4_device *device, struct r4_gemm_product p) {
    struct r4_gemm_kernel k;
    struct r4_grid g;

    if (find(device, &p, &k, &g) != 0)
        fail_msg("x [%u, %u], %u rows, %u splits, %u experts is taken", p.nx, p.ncols, p.taken,
                 p.nsplits, p.nexperts);
    if (k.nx != 7 || k.per_lane != 7 || k.nsplits != 7 || g.nblocks != 7 || g.nthreads != 7 ||
        g.shared_nbytes != 7)
        fail_msg("x [%u, %u], %u rows: refused, and something is written", p.nx, p.ncols, p.taken);
}

/* ---- What is chosen -------------------------------------------------------------------------- */

/* Rows of a part, and the tiles of 64 that they make. */
static const struct {
    unsigned taken, ntiles;
} parts[] = {{64, 1},     {65, 2},     {127, 2},   {128, 2},   {129, 3},      {4096, 64},
             {8448, 132}, {8449, 133}, {4224, 66}, {4225, 67}, {151936, 2374}};

static const unsigned all_ncols[] = {64, 128, 192, 2048, 2880, 4096, 14336, (1u << 24) - 256};

/* The least that takes nx rows at once, or the largest. */
static const struct size *size_for(unsigned nx) {
    return &sizes[nx <= 16 ? 0 : nx <= 64 ? 1 : 2];
}

static unsigned divide_up(unsigned n, unsigned by) {
    return (n + by - 1) / by;
}

/* Whether the last of the splits, each of as many whole units, has columns. */
static bool has_columns(unsigned ncols, unsigned nsplits) {
    return (nsplits - 1) * (divide_up(divide_up(ncols, nsplits), 64) * 64) < ncols;
}

/* Every number of rows of x. More than 64 are multiplied 64 at a time if all blocks of that run at
 * once. A split without columns is refused. */
static void test_rows_of_x(void **state) {
    (void)state;
    for (unsigned nx = 1; nx <= 256; nx++)
        for (size_t i = 0; i < COUNT_OF(parts); i++)
            for (size_t c = 0; c < COUNT_OF(all_ncols); c++)
                for (unsigned nsplits = 1; nsplits <= 5; nsplits++) {
                    bool few = parts[i].ntiles * divide_up(nx, 64) * nsplits <= 132;
                    const struct size *size = size_for(few && nx > 64 ? 64 : nx);
                    unsigned nitems = parts[i].ntiles * divide_up(nx, size->nx);
                    unsigned most = nitems < 132 ? nitems : 132;
                    struct r4_gemm_product p = {nx, all_ncols[c], parts[i].taken, nsplits, 0, 0};
                    if (has_columns(p.ncols, nsplits))
                        take(&h200, p, size, nsplits == 1 ? most : nitems * nsplits);
                    else
                        refuse(&h200, p);
                }
}

/* Where 64 rows at a time become 128. */
static void test_small_products(void **state) {
    static const struct {
        unsigned nx, taken, nsplits, kernel_nx, nblocks;
    } cases[] = {
        {64, 8448, 1, 64, 132},  {65, 4224, 1, 64, 132},   {65, 4225, 1, 128, 67},
        {128, 4224, 1, 64, 132}, {129, 4224, 1, 128, 132}, {129, 2816, 1, 64, 132},
        {256, 2112, 1, 64, 132}, {256, 2113, 1, 128, 68},  {128, 2112, 2, 64, 132},
        {128, 2113, 2, 128, 68}, {65, 1408, 3, 64, 132},   {65, 1409, 3, 128, 69},
        {256, 384, 5, 64, 120},  {256, 385, 5, 128, 70},   {64, 65536, 5, 64, 5120},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        take(&h200,
             (struct r4_gemm_product){cases[i].nx, 4096, cases[i].taken, cases[i].nsplits, 0, 0},
             size_for(cases[i].kernel_nx), cases[i].nblocks);
}

/* Whatever is fastest, the kernel that was asked for. */
static void test_tiles(void **state) {
    (void)state;
    for (unsigned nx = 1; nx <= 256; nx++)
        for (size_t i = 0; i < COUNT_OF(parts); i++)
            for (size_t s = 0; s < COUNT_OF(sizes); s++) {
                unsigned nitems = parts[i].ntiles * divide_up(nx, sizes[s].nx);
                struct r4_gemm_product p = {nx, 4096, parts[i].taken, 1, 0, sizes[s].nx};
                take(&h200, p, &sizes[s], nitems < 132 ? nitems : 132);
                p.nsplits = 3;
                take(&h200, p, &sizes[s], 3 * nitems);
                p.nexperts = 8;
                take(&h200, p, &sizes[s], 132);
            }
}

/* Without splits no multiprocessor has two blocks, and none is idle that could have one; with
 * splits all blocks of a cluster are there, however few multiprocessors. */
static void test_multiprocessors(void **state) {
    static const unsigned nprocessors[] = {1, 2, 63, 64, 65, 132, 1000};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(nprocessors); i++) {
        const struct r4_device device = {nprocessors[i], 232448};
        unsigned least = nprocessors[i] < 64 ? nprocessors[i] : 64;
        take(&device, (struct r4_gemm_product){8, 4096, 4096, 1, 0, 0}, &sizes[0], least);
        take(&device, (struct r4_gemm_product){8, 4096, 4096, 2, 0, 0}, &sizes[0], 128);
        take(&device, (struct r4_gemm_product){8, 4096, 4096, 3, 0, 0}, &sizes[0], 192);
        take(&device, (struct r4_gemm_product){200, 4096, 4096, 5, 0, 0}, &sizes[2], 640);
        take(&device, (struct r4_gemm_product){8, 4096, 4096, 1, 32, 0}, &sizes[0], nprocessors[i]);
    }
}

/* As if every expert had its share of the rows of x, rounded up; how many have rows is not known,
 * so every multiprocessor has a block. */
static void test_experts(void **state) {
    static const unsigned all_nexperts[] = {1, 2, 3, 8, 128, 1023, 1024};
    static const unsigned shares[] = {1, 16, 17, 64, 65, 128, 129, 1000};
    (void)state;
    for (size_t e = 0; e < COUNT_OF(all_nexperts); e++)
        for (size_t i = 0; i < COUNT_OF(parts); i++)
            for (size_t c = 0; c < COUNT_OF(all_ncols); c++)
                for (size_t s = 0; s < COUNT_OF(shares); s++) {
                    unsigned nexperts = all_nexperts[e], most = shares[s] * nexperts;
                    const struct size *size = size_for(shares[s]);
                    struct r4_gemm_product p = {most, all_ncols[c], parts[i].taken, 0, nexperts, 0};
                    take(&h200, p, size, 132);
                    p.nsplits = R4_GEMM_NSPLITS_MOST + 1; /* of which experts know nothing */
                    take(&h200, p, size, 132);
                    p.nx = most - nexperts + 1;
                    take(&h200, p, size, 132);
                }
    take(&h200, (struct r4_gemm_product){UINT_MAX, 64, 64, 0, 1, 0}, &sizes[2], 132);
    take(&h200, (struct r4_gemm_product){UINT_MAX, 64, 64, 0, 1024, 0}, &sizes[2], 132);
}

/* ---- What is refused ------------------------------------------------------------------------- */

/* Each differs from a product that is taken in one number. */
static void test_refusals(void **state) {
    static const struct r4_gemm_product taken[] = {{16, 128, 64, 1, 0, 0}, {16, 128, 64, 0, 1, 0}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(taken); i++) {
        struct r4_gemm_product p = taken[i];
        take(&h200, p, &sizes[0], i == 0 ? 1 : 132);
        p.nx = 0;
        refuse(&h200, p);
        p = taken[i];
        for (p.taken = 0; p.taken < 64; p.taken++)
            refuse(&h200, p);
        p = taken[i];
        for (p.ncols = 0; p.ncols < 1000; p.ncols++)
            if (p.ncols % 64 || p.ncols == 0) refuse(&h200, p);
        p.ncols = (1u << 24) - 192;
        refuse(&h200, p);
        p = taken[i];
        p.nexperts = 1025;
        refuse(&h200, p);
        p.nexperts = UINT_MAX;
        refuse(&h200, p);
    }
    refuse(&h200, (struct r4_gemm_product){257, 128, 64, 1, 0, 0});
    refuse(&h200, (struct r4_gemm_product){UINT_MAX, 128, 64, 1, 0, 0});
    refuse(&h200, (struct r4_gemm_product){16, 128, 64, 0, 0, 0});
    refuse(&h200, (struct r4_gemm_product){16, 128, 64, 6, 0, 0});
    refuse(&h200, (struct r4_gemm_product){16, 128, 64, UINT_MAX, 0, 0});
    refuse(&h200,
           (struct r4_gemm_product){16, 576, 64, 4, 0, 0}); /* 192 columns, none for the last */
}

/* One byte of shared memory less than a kernel needs is too little. */
static void test_shared_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (unsigned nexperts = 0; nexperts <= 1; nexperts++) {
            const struct r4_gemm_product p = {sizes[i].nx, 128, 64, 1, nexperts, sizes[i].nx};
            struct r4_device device = {1, 0};
            device.shared_most =
                BARRIERS_NBYTES + (nexperts ? STARTS_NBYTES : 0) + sizes[i].slots_nbytes;
            assert_true(device.shared_most <= h200.shared_most);
            take(&device, p, &sizes[i], 1);
            device.shared_most--;
            refuse(&device, p);
        }
}

/* The threads of a launch are an int to MLX. */
static void test_threads(void **state) {
    const unsigned most[] = {INT_MAX / 768, INT_MAX / 768, INT_MAX / 512}; /* blocks */
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct r4_device device = {most[i], h200.shared_most};
        struct r4_gemm_product p = {sizes[i].nx, 4096, 64 * most[i], 1, 0, 0};
        take(&device, p, &sizes[i], most[i]);
        p.nexperts = 1;
        take(&device, p, &sizes[i], most[i]);
        device.nprocessors++;
        refuse(&device, p);
        p.nexperts = 0;
        take(&device, p, &sizes[i], most[i]);
        p.taken++;
        refuse(&device, p);
        for (p.nsplits = 2; p.nsplits <= 5; p.nsplits++) {
            p.taken = 64 * (most[i] / p.nsplits);
            take(&h200, p, &sizes[i], most[i] / p.nsplits * p.nsplits);
            p.taken++;
            refuse(&h200, p);
        }
    }
    /* 2^32 blocks. */
    refuse(&h200, (struct r4_gemm_product){256, 128, UINT_MAX, 4, 0, 16});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_x),     cmocka_unit_test(test_small_products),
        cmocka_unit_test(test_tiles),         cmocka_unit_test(test_multiprocessors),
        cmocka_unit_test(test_experts),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
