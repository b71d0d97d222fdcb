/* r4_make.c - R4 of BF16 weights in memory. */
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/r4_build.h"
#include "format/rank_table.h"

struct making {
    struct r4_builder builder;
    const uint8_t *bf16;
    uint64_t nweights;
    uint64_t (*counts)[256]; /* [nthreads] */
};

enum { COUNTED_NWEIGHTS = 1 << 20 };

static binade_status count_part(void *user, size_t i, unsigned worker, binade_error *err) {
    struct making *m = user;
    uint64_t first = (uint64_t)i * COUNTED_NWEIGHTS, left = m->nweights - first;
    (void)err;
    cpu_kernels()->count_exponents(m->bf16 + 2 * first,
                                   (size_t)(left < COUNTED_NWEIGHTS ? left : COUNTED_NWEIGHTS),
                                   m->counts[worker]);
    return BINADE_OK;
}

/* The exponents by rank. */
static binade_status build_table(struct making *m, struct pool *pool, uint8_t table[256],
                                 binade_error *err) {
    uint8_t rank_of[256];
    m->counts = calloc(pool_nthreads(pool), sizeof *m->counts);
    if (!m->counts) return fail_memory(err);
    binade_status status =
        pool_run(pool, (size_t)ceil_div(m->nweights, COUNTED_NWEIGHTS), count_part, m, err);
    for (unsigned w = 1; w < pool_nthreads(pool); w++) {
        for (unsigned e = 0; e < 256; e++)
            m->counts[0][e] += m->counts[w][e];
    }
    if (!status) rank_table_build(m->counts[0], table, rank_of);
    free(m->counts);
    return status;
}

static binade_status encode_blocks(void *user, size_t i, unsigned worker, binade_error *err) {
    struct making *m = user;
    size_t stride = 2 * (size_t)m->builder.shape.cols;
    uint64_t block0, block1, row0, row1;

    r4_build_task_blocks(&m->builder, i, &block0, &block1);
    for (uint64_t block = block0; block < block1; block++) {
        r4_build_block_rows(&m->builder, block, &row0, &row1);
        r4_build_block(&m->builder, block, m->bf16 + row0 * stride, stride, worker);
    }
    return r4_build_end_task(&m->builder, i, worker, err);
}

binade_status binade_r4_make(const uint16_t *bf16, uint64_t nexperts, uint64_t rows, uint64_t cols,
                             unsigned nthreads, binade_r4 *out, binade_error *err) {
    struct making m = {.bf16 = (const uint8_t *)bf16, .nweights = nexperts * rows * cols};
    struct pool *pool = NULL;
    uint8_t table[256];
    size_t nbytes; /* more than the weights have, so that their number does not overflow either */

    *out = (binade_r4){0};
    binade_status status = binade_r4_groups_nbytes(nexperts, rows, cols, &nbytes, err);
    if (status) return status;
    if ((status = pool_open(&pool, nthreads, err))) return status;
    if ((status = build_table(&m, pool, table, err))) goto done;
    if ((status = r4_build_open(&m.builder, nexperts, rows, cols, table, pool, err))) goto done;
    if ((status = pool_run(pool, m.builder.ntasks, encode_blocks, &m, err))) goto done;
    status = r4_build_finish(&m.builder, out, err);
done:
    r4_build_close(&m.builder);
    pool_close(pool);
    return status;
}
