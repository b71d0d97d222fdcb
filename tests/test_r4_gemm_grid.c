/* test_r4_gemm_grid.c - which kernel of r4_gemm.cu, r4_gemm_mma.cu or r4_skinny.cu multiplies
 * several rows of x, in what shape and with what grid, and what is refused. Which tile is fastest
 * is an estimate, so that little is said of it here; whatever is chosen has to be one that the
 * kernel can do. */
#include "r4_gemm_rules.h"

#include <limits.h>

static const struct r4_device h200 = {132, 232448};
static const struct r4_device a100 = {108, 166912}, rtx4090 = {128, 101376};

/* ---- What is taken --------------------------------------------------------------------------- */

static const unsigned all_taken[] = {16,  18,  30,  32,   34,   64,    66,    96,
                                     112, 126, 128, 1024, 4096, 14336, 151936};
static const unsigned all_ncols[] = {64, 128, 192, 512, 576, 2048, 2880, 4096, 14336, NCOLS_MOST};

/* Splits that a way knows. In a cluster each has to have columns, and their number is a kernel's.
 */
static bool can_split(enum r4_gemm_way way, unsigned ncols, unsigned nsplits) {
    if (has_clusters(way)) return nsplits <= 5 && has_columns(ncols, nsplits);
    return nsplits == 1 || way == R4_GEMM_MMA_SPLITS;
}

/* Every number of rows of x. */
static void test_rows_of_x(void **state) {
    (void)state;
    for (unsigned nx = 1; nx <= R4_GEMM_NX_MOST; nx++)
        for (size_t i = 0; i < COUNT_OF(all_taken); i++)
            for (size_t c = 0; c < COUNT_OF(all_ncols); c++)
                for (unsigned nsplits = 1; nsplits <= 6; nsplits++)
                    for (unsigned way = 0; way <= R4_GEMM_SKINNY; way++)
                        take_if(nx <= nx_most(way, SKINNY_NX_MOST) &&
                                    can_split(way, all_ncols[c], nsplits),
                                &h200, rows_of(way, nx, all_ncols[c], all_taken[i], nsplits));
}

/* One part or two; splits mean nothing to them. */
static void test_experts(void **state) {
    static const unsigned all_nexperts[] = {1, 2, 3, 8, 128, 1023, 1024};
    static const unsigned all_nx[] = {1, 2, 16, 65, 1000, 131072, UINT_MAX};
    (void)state;
    for (size_t e = 0; e < COUNT_OF(all_nexperts); e++)
        for (size_t n = 0; n < COUNT_OF(all_nx); n++)
            for (size_t i = 0; i < COUNT_OF(all_taken); i++)
                for (size_t c = 0; c < COUNT_OF(all_ncols); c++)
                    for (unsigned nparts = 1; nparts <= 2; nparts++)
                        for (unsigned way = 0; way <= R4_GEMM_SKINNY; way++) {
                            bool is_taken = has_experts(way);
                            struct r4_gemm_product p =
                                experts_of(way, all_nx[n], all_ncols[c], all_taken[i], nparts,
                                           all_nexperts[e]);
                            take_if(is_taken, &h200, p);
                            p.nsplits = R4_GEMM_NSPLITS_MOST + 1;
                            take_if(is_taken, &h200, p);
                        }
}

/* Whatever is fastest, the tile that was asked for, or the half of it that was. */
static void test_tiles(void **state) {
    static const unsigned all_nx[] = {1, 8, 9, 16, 17, 32, 33, 64, 65, 128, 200, 256};
    static const unsigned all_tile_nx[] = {0, 8, 16, 32, 64, 128};
    (void)state;
    for (size_t n = 0; n < COUNT_OF(all_nx); n++)
        for (size_t i = 0; i < COUNT_OF(all_taken); i++)
            for (size_t t = 0; t < COUNT_OF(all_tile_nx); t++)
                for (unsigned height = 0; height <= 256; height += HEIGHT_STEP)
                    for (unsigned way = 0; way <= R4_GEMM_SKINNY; way++) {
                        unsigned tile_nx = all_tile_nx[t];
                        bool is_split = has_clusters(way) || way == R4_GEMM_MMA_SPLITS;
                        struct r4_gemm_product p =
                            rows_of(way, all_nx[n], 4096, all_taken[i], is_split ? 3 : 1);
                        bool fits = has_tile(&h200, &p, tile_nx, height);
                        take_if(fits, &h200, with_tile(p, tile_nx, height));
                        if (is_split) continue;
                        p.nexperts = 8;
                        take_if(fits && has_experts(way), &h200, with_tile(p, tile_nx, height));
                    }
}

/* Kernels by mma.sync are for GPUs with less shared memory too. */
static void test_devices(void **state) {
    static const unsigned nprocessors[] = {1, 2, 63, 64, 65, 114, 132, 1000};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(nprocessors); i++) {
        const struct r4_device device = {nprocessors[i], h200.shared_most};
        for (unsigned nx = 1; nx <= 256; nx += 51) {
            for (unsigned nsplits = 1; nsplits <= 5; nsplits++)
                take(&device, rows_of(R4_GEMM_WGMMA, nx, 4096, 4096, nsplits));
            take(&device, rows_of(R4_GEMM_MMA_SPLITS, nx, 4096, 4096, 132));
            take(&device, experts_of(R4_GEMM_WGMMA, nx, 4096, 4096, 2, 32));
            for (unsigned ntiles = nprocessors[i]; ntiles <= nprocessors[i] + 1; ntiles++)
                take(&device, with_tile(rows_of(R4_GEMM_WGMMA, nx, 4096, 16 * ntiles, 1), 64, 16));
        }
        for (unsigned nx = 1; nx <= SKINNY_NX_MOST; nx++) {
            for (unsigned nsplits = 1; nsplits <= 5; nsplits++)
                take(&device, rows_of(R4_GEMM_SKINNY, nx, 4096, 4096, nsplits));
            for (unsigned ntiles = nprocessors[i]; ntiles <= nprocessors[i] + 1; ntiles++)
                take(&device, with_tile(rows_of(R4_GEMM_SKINNY, nx, 4096, 16 * ntiles, 1), 0, 16));
        }
    }
    for (unsigned nx = 1; nx <= 256; nx++)
        for (size_t i = 0; i < COUNT_OF(all_taken); i++)
            for (unsigned way = R4_GEMM_MMA; way <= R4_GEMM_MMA_TWO_SLICES; way++) {
                take(&a100, rows_of(way, nx, 4096, all_taken[i], 1));
                take(&rtx4090, rows_of(way, nx, 4096, all_taken[i], 1));
            }
}

/* ---- What is chosen -------------------------------------------------------------------------- */

/* Clusters of so many splits that an H200 has at once: its groups of multiprocessors are of
 * different sizes, and a cluster is in one of them. */
static const unsigned nclusters_most[] = {0, 132, 66, 39, 30, 22};

/* How many items a multiprocessor, or a cluster of them, of an H200 has one after another. */
static size_t count_rounds(const struct r4_gemm_product *p, const struct r4_gemm_kernel *k) {
    unsigned nsplits = has_clusters(p->way) ? p->nsplits : 1;
    return divide_up(count_items(p, k) / nsplits, nclusters_most[nsplits]);
}

/* Weights of models with few rows of x, K in as many splits as cublasLt plans on an H200: all have
 * tiles with which no multiprocessor takes two. */
static void test_one_round(void **state) {
    static const struct {
        unsigned taken, ncols, nsplits, nx;
    } cases[] = {
        {14336, 4096, 1, 2},  {14336, 4096, 1, 64}, {15360, 3840, 1, 2}, {4096, 14336, 4, 2},
        {4096, 14336, 3, 64}, {4096, 4096, 1, 2},   {4096, 4096, 1, 64}, {4096, 4096, 2, 2},
        {1024, 4096, 3, 2},   {10240, 2560, 1, 2},  {2560, 2048, 1, 2},  {2816, 2112, 1, 2},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct r4_gemm_product p =
            rows_of(R4_GEMM_WGMMA, cases[i].nx, cases[i].ncols, cases[i].taken, cases[i].nsplits);
        struct found f = take(&h200, p);
        if (count_rounds(&p, &f.kernel) > 1) fail_product(&h200, &p, &f, "more than one round");
        if (f.kernel.nx != 64) fail_product(&h200, &p, &f, "half of x is empty");
    }
}

/* Tiles that an H200 is given, and why. */
static void test_choices(void **state) {
    static const struct {
        enum r4_gemm_way way;
        unsigned taken, ncols, nsplits, nx0, nx1; /* rows of x */
        unsigned kernel_nx, height, nblocks;
    } cases[] = {
        {R4_GEMM_WGMMA, 14336, 4096, 1, 2, 64, 64, 112, 128}, /* one round */
        {R4_GEMM_WGMMA, 4096, 4096, 1, 2, 64, 64, 32, 128},   /* one, and decoders have few rows */
        /* With tiles of 128 rows 32 clusters, with 112 rows 23, would be two rounds. */
        {R4_GEMM_WGMMA, 4096, 14336, 4, 2, 16, 64, 144, 116},
        {R4_GEMM_WGMMA, 2560, 10240, 5, 16, 16, 64, 128, 100},
        {R4_GEMM_WGMMA, 4096, 4096, 1, 128, 128, 128, 32, 128}, /* W is decoded once */
        /* One round here too, whatever the rows of x. */
        {R4_GEMM_SKINNY, 14336, 4096, 1, 1, 8, 8, 112, 128},
        {R4_GEMM_SKINNY, 14336, 4096, 1, 9, 16, 16, 112, 128},
        {R4_GEMM_SKINNY, 14336, 4096, 1, 17, 32, 32, 112, 128},
        {R4_GEMM_SKINNY, 2560, 2048, 1, 1, 8, 8, 32, 80}, /* with 16 rows 28 would be left over */
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (unsigned nx = cases[i].nx0; nx <= cases[i].nx1; nx++) {
            struct r4_gemm_product p =
                rows_of(cases[i].way, nx, cases[i].ncols, cases[i].taken, cases[i].nsplits);
            struct found f = take(&h200, p);
            if (f.kernel.nx != cases[i].kernel_nx ||
                f.kernel.shape.height != (int)cases[i].height || f.grid.nblocks != cases[i].nblocks)
                fail_product(&h200, &p, &f, "another tile or grid");
        }
}

/* No tile is higher than its number of rounds takes: decoders have fewer rows each. */
static void test_no_higher_than_needed(void **state) {
    static const unsigned all_nx[] = {2, 16, 32, 64, 65, 128, 129, 256};
    (void)state;
    for (size_t n = 0; n < COUNT_OF(all_nx); n++)
        for (unsigned taken = 256; taken <= 16384; taken += 256)
            for (unsigned nsplits = 1; nsplits <= 5; nsplits++)
                for (unsigned way = 0; way <= R4_GEMM_SKINNY; way++) {
                    struct r4_gemm_product p = rows_of(way, all_nx[n], 4096, taken, nsplits);
                    if (p.nx > nx_most(way, SKINNY_NX_MOST) || !can_split(way, 4096, nsplits))
                        continue;
                    struct found f = take(&h200, p), lower = f;
                    lower.kernel.shape.height -= HEIGHT_STEP;
                    if (lower.kernel.shape.height > 0 &&
                        count_rounds(&p, &lower.kernel) == count_rounds(&p, &f.kernel))
                        fail_product(&h200, &p, &f, "16 rows lower would do");
                }
}

/* ---- Shared memory --------------------------------------------------------------------------- */

/* On an H200 every tile has a slot to spare, whatever the rows of x; but the highest ones for few
 * rows of x do not fit. */
static void test_h200_shapes(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        if (sizes[i].way == R4_GEMM_SKINNY) continue;
        for (unsigned height = HEIGHT_STEP; height <= sizes[i].height_most; height += HEIGHT_STEP)
            for (unsigned nexperts = 0; nexperts <= has_experts(sizes[i].way); nexperts++)
                for (unsigned nx = 1; nx <= R4_GEMM_NX_MOST; nx++) {
                    struct r4_gemm_product p = with_tile(
                        experts_of(sizes[i].way, nx, 4096, 4096, 1, nexperts), sizes[i].nx, height);
                    struct found f = take(&h200, p);
                    if (f.kernel.shape.nslots <= NSLOTS_LEAST)
                        fail_product(&h200, &p, &f, "no slot to spare");
                }
    }
}

/* More memory, more than any GPU has, makes slots, as far as they are of use. For few rows of x it
 * makes turns first, which may leave room for fewer slots. */
static void give_more_memory(struct r4_gemm_product p, unsigned least) {
    struct r4_device device = {132, least};
    struct found before = take(&device, p), f = before;
    for (unsigned more = 0; more < 1 << 20; more += 1024, before = f) {
        device.shared_most = least + more;
        f = take(&device, p);
        const struct r4_gemm_shape *s = &f.kernel.shape, *s0 = &before.kernel.shape;
        if (p.way == R4_GEMM_SKINNY ? s->nturns < s0->nturns : s->nslots < s0->nslots)
            fail_product(&device, &p, &f, "fewer than before");
    }
    check_most(&device, &p, &f);
}

/* A tile is taken if the least that it needs fits, to the byte. */
static void test_shared_memory(void **state) {
    static const unsigned all_nx[] = {1, 8, 9, 24, 25, 33, 64, 65, 96, 128, 200};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (unsigned height = HEIGHT_STEP; height <= sizes[i].height_most; height += HEIGHT_STEP)
            for (unsigned nexperts = 0; nexperts <= has_experts(sizes[i].way); nexperts++)
                for (size_t n = 0; n < COUNT_OF(all_nx); n++) {
                    if (all_nx[n] > nx_most(sizes[i].way, sizes[i].nx)) continue;
                    const struct r4_gemm_product p =
                        with_tile(experts_of(sizes[i].way, all_nx[n], 4096, 4096, 1, nexperts),
                                  sizes[i].nx, height);
                    unsigned least = least_bytes(&p, sizes[i].nx, height);
                    struct r4_device device = rtx4090;
                    take_if(least <= device.shared_most, &device, p);
                    device.shared_most = least - 1;
                    refuse(&device, p);
                    give_more_memory(p, least);
                }
}

/* Where no tile is asked for, a product is taken if any fits. */
static void test_little_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (unsigned nexperts = 0; nexperts <= has_experts(sizes[i].way); nexperts++)
            for (unsigned nx = 1; nx <= nx_most(sizes[i].way, sizes[i].nx); nx++) {
                const struct r4_gemm_product p = with_tile(
                    experts_of(sizes[i].way, nx, 4096, 4096, 1, nexperts), sizes[i].nx, 0);
                struct r4_device device = rtx4090;
                unsigned least = UINT_MAX;
                for (unsigned h = HEIGHT_STEP; h <= sizes[i].height_most; h += HEIGHT_STEP)
                    if (least_bytes(&p, sizes[i].nx, h) < least)
                        least = least_bytes(&p, sizes[i].nx, h);
                take(&device, p);
                device.shared_most = least;
                take(&device, p);
                device.shared_most--;
                refuse(&device, p);
                device.shared_most = 0;
                refuse(&device, p);
            }
}

/* ---- What is refused ------------------------------------------------------------------------- */

/* Each differs from a product that is taken in one number. */
static void refuse_near(const struct r4_gemm_product taken) {
    struct r4_gemm_product p = taken;
    take(&h200, p);
    p.nx = 0;
    refuse(&h200, p);
    p = taken;
    for (p.taken = 0; p.taken < 300; p.taken++)
        if (p.taken < 16 || p.taken % 2) refuse(&h200, p);
    p.taken = UINT_MAX;
    refuse(&h200, p);
    p = taken;
    for (p.ncols = 0; p.ncols < 1000; p.ncols++)
        if (p.ncols % 64 || p.ncols == 0) refuse(&h200, p);
    p.ncols = NCOLS_MOST + 64;
    refuse(&h200, p);
    p.ncols = UINT_MAX - 63;
    refuse(&h200, p);
    p = taken;
    p.nparts = 0;
    refuse(&h200, p);
    p.nparts = p.nexperts ? 3 : 2;
    refuse(&h200, p);
    p.nparts = UINT_MAX;
    refuse(&h200, p);
    p = taken;
    p.nexperts = R4_GEMM_EXPERTS_MOST + 1;
    refuse(&h200, p);
    p.nexperts = UINT_MAX;
    refuse(&h200, p);
    if (taken.nexperts) return;
    p = taken;
    p.nx = nx_most(p.way, SKINNY_NX_MOST) + 1;
    refuse(&h200, p);
    p.nx = UINT_MAX;
    refuse(&h200, p);
    p = taken;
    p.nsplits = 0;
    refuse(&h200, p);
}

static void test_refusals(void **state) {
    (void)state;
    for (unsigned way = 0; way <= R4_GEMM_SKINNY; way++)
        refuse_near(rows_of(way, 16, 128, 64, 1));
    refuse_near(experts_of(R4_GEMM_WGMMA, 16, 128, 64, 1, 1));
    refuse_near(experts_of(R4_GEMM_MMA, 16, 128, 64, 2, 1024));
    refuse(&h200, rows_of(R4_GEMM_WGMMA, 16, 4096, 64, UINT_MAX));
    refuse(&h200, rows_of(R4_GEMM_SKINNY, 16, 4096, 64, UINT_MAX));
    refuse(&h200, rows_of(R4_GEMM_MMA, 16, 4096, 64, 2));
    refuse(&h200, rows_of(R4_GEMM_MMA_TWO_SLICES, 16, 4096, 64, 2));
    /* 192 columns each, none for the last. */
    refuse(&h200, rows_of(R4_GEMM_WGMMA, 16, 576, 64, 4));
    refuse(&h200, rows_of(R4_GEMM_SKINNY, 16, 576, 64, 4));
}

/* Tiles of which there is no kernel, or with fewer rows of x than those that take all at once. */
static void refuse_tiles(const struct r4_gemm_product p, unsigned default_nx) {
    for (unsigned nx = 1; nx <= 300; nx++)
        if (!height_most(p.way, nx) || p.nx > nx_most(p.way, nx))
            refuse(&h200, with_tile(p, nx, 0));
    for (unsigned height = 1; height <= 300; height++)
        if (height % HEIGHT_STEP || height > height_most(p.way, default_nx))
            refuse(&h200, with_tile(p, 0, height));
    refuse(&h200, with_tile(p, UINT_MAX, 0));
    refuse(&h200, with_tile(p, 0, UINT_MAX - 15));
}

static void test_no_such_tile(void **state) {
    (void)state;
    refuse_tiles(rows_of(R4_GEMM_WGMMA, 16, 4096, 4096, 1), 64);
    for (unsigned nx = 1; nx <= SKINNY_NX_MOST; nx++)
        refuse_tiles(rows_of(R4_GEMM_SKINNY, nx, 4096, 4096, 1), skinny_nx(nx));
}

/* The threads of a launch are an int to MLX. */
static void test_threads(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const unsigned nx = sizes[i].nx;
        if (!has_clusters(sizes[i].way)) continue;
        struct r4_gemm_product p = with_tile(rows_of(sizes[i].way, nx, 4096, 4096, 1), nx, 16);
        const unsigned most = INT_MAX / take(&h200, p).grid.nthreads; /* blocks */
        struct r4_device device = {most, h200.shared_most};
        p.taken = 16 * most;
        take(&device, p);
        device.nprocessors++;
        take(&device, p);
        p.taken += 2;
        refuse(&device, p);
        if (has_experts(p.way)) {
            p.nexperts = 1;
            refuse(&device, p);
            device.nprocessors--;
            take(&device, p);
            p.nexperts = 0;
        }
        for (p.nsplits = 2; p.nsplits <= 5; p.nsplits++) {
            p.taken = 16 * (most / p.nsplits);
            take(&h200, p);
            p.taken += 2;
            refuse(&h200, p);
        }
    }
    /* More than 2^32 blocks. */
    refuse(&h200, with_tile(rows_of(R4_GEMM_WGMMA, 256, 4096, UINT_MAX - 1, 4), 64, 16));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_x),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_one_round),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_no_higher_than_needed),
        cmocka_unit_test(test_h200_shapes),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_such_tile),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
