/* r4_load.c - binade_r4_load: a packed tensor becomes R4, piece by piece. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/r4_build.h"
#include "pack/checkpoint.h"

struct loading {
    struct r4_builder builder;
    struct packed_tensor tensor; /* its rows are those of all experts */
    uint64_t expert_nrows, row0; /* of each expert the builder gets rows from row0 on */
    struct load_worker {
        struct decode_scratch scratch;
        uint8_t *rows; /* [16][cols] BF16: a block whose rows come in several pieces */
    } * workers;       /* [nthreads] */
};

/* A task: blocks of which `block` is the next, and whose rows arrive in ascending order. */
struct block_feed {
    struct loading *loading;
    struct load_worker *worker;
    unsigned worker_index;
    uint64_t block, block1;
    uint64_t nkept; /* rows of `block` that worker->rows holds */
};

/* The tensor's rows that make up a block. */
static void find_rows(const struct loading *l, uint64_t block, uint64_t *row0, uint64_t *row1) {
    uint64_t skipped_nrows = l->expert_nrows - l->builder.shape.rows;
    uint64_t expert = block / r4_nblocks(&l->builder.shape);

    r4_build_block_rows(&l->builder, block, row0, row1);
    *row0 += expert * skipped_nrows + l->row0;
    *row1 += expert * skipped_nrows + l->row0;
}

static void take_block(struct block_feed *f, const uint8_t *rows, uint64_t row_nbytes) {
    r4_build_block(&f->loading->builder, f->block, rows, (size_t)row_nbytes, f->worker_index);
    f->block++;
    f->nkept = 0;
}

/* Part of one row, all of it where columns are few. */
static void keep_row(struct block_feed *f, const struct decoded_piece *piece, uint64_t row,
                     uint64_t block_nrows) {
    uint64_t cols = f->loading->tensor.cols;
    const uint8_t *from = piece->weights + 2 * (row - piece->row) * piece->ncols;

    memcpy(f->worker->rows + 2 * (f->nkept * cols + piece->col), from, 2 * (size_t)piece->ncols);
    if (piece->col + piece->ncols < cols) return;
    if (++f->nkept == block_nrows) take_block(f, f->worker->rows, 2 * cols);
}

static binade_status feed_piece(void *user, const struct decoded_piece *piece, binade_error *err) {
    struct block_feed *f = user;
    uint64_t row = piece->row, behind = piece->row + piece->nrows, row0, row1;
    bool has_whole_rows = piece->ncols == f->loading->tensor.cols;
    (void)err;

    while (row < behind && f->block < f->block1) {
        find_rows(f->loading, f->block, &row0, &row1);
        if (row < row0) {
            row = row0; /* a piece may begin with rows of another task's blocks */
        } else if (has_whole_rows && row == row0 && row1 <= behind) {
            take_block(f, piece->weights + 2 * (row - piece->row) * piece->ncols, 2 * piece->ncols);
            row = row1;
        } else {
            keep_row(f, piece, row, row1 - row0);
            row++;
        }
    }
    return BINADE_OK;
}

/* Blocks from f->block on whose rows follow each other, up to `end`. */
static binade_status load_range(struct block_feed *f, uint64_t end, binade_error *err) {
    const struct packed_tensor *t = &f->loading->tensor;
    uint64_t first, behind, next, next_behind;

    find_rows(f->loading, f->block, &first, &behind);
    for (f->block1 = f->block + 1; f->block1 < end; f->block1++) {
        find_rows(f->loading, f->block1, &next, &next_behind);
        if (next != behind) break;
        behind = next_behind;
    }
    uint64_t step = t->format == 1 ? piece_nrows(t->cols) : 1;
    return decode_rows(t, first - first % step, behind, &f->worker->scratch, feed_piece, f, err);
}

static binade_status load_blocks(void *user, size_t i, unsigned worker, binade_error *err) {
    struct loading *l = user;
    struct block_feed feed = {.loading = l, .worker = &l->workers[worker], .worker_index = worker};
    uint64_t end;

    r4_build_task_blocks(&l->builder, i, &feed.block, &end);
    while (feed.block < end) {
        binade_status status = load_range(&feed, end, err);
        if (status) return status;
    }
    return r4_build_end_task(&l->builder, i, worker, err);
}

static binade_status open_workers(struct loading *l, unsigned nthreads, binade_error *err) {
    l->workers = calloc(nthreads, sizeof *l->workers);
    if (!l->workers) return fail_memory(err);
    for (unsigned w = 0; w < nthreads; w++) {
        binade_status status = decode_scratch_open(&l->workers[w].scratch, err);
        if (status) return status;
        l->workers[w].rows = malloc((size_t)(2 * R4_NROWS * l->tensor.cols));
        if (!l->workers[w].rows) return fail_memory(err);
    }
    return BINADE_OK;
}

static void close_workers(struct loading *l, unsigned nthreads) {
    for (unsigned w = 0; l->workers && w < nthreads; w++) {
        decode_scratch_close(&l->workers[w].scratch);
        free(l->workers[w].rows);
    }
    free(l->workers);
}

static binade_status load_tensor(struct loading *l, uint64_t row1, struct pool *pool,
                                 binade_r4 *out, binade_error *err) {
    const struct packed_tensor *t = &l->tensor;
    uint64_t nexperts = t->rows / l->expert_nrows;
    binade_status status =
        r4_build_open(&l->builder, nexperts, row1 - l->row0, t->cols, t->table, pool, err);
    if (!status) status = open_workers(l, pool_nthreads(pool), err);
    if (!status) status = pool_run(pool, l->builder.ntasks, load_blocks, l, err);
    if (!status) status = r4_build_finish(&l->builder, out, err);
    close_workers(l, pool_nthreads(pool));
    r4_build_close(&l->builder);
    return status;
}

static binade_status check_wanted(const binade_checkpoint *c, const binade_tensor *info,
                                  uint64_t row0, uint64_t row1, binade_error *err) {
    struct quoted name = quote(info->name, info->name_nbytes);
    if (!info->packed || info->ndim < 2 || info->ndim > 3)
        return fail(err, BINADE_E_USAGE,
                    "%s: tensor %s: %s with %zu dimensions, R4 needs a packed one with 2 or 3",
                    quote_path(c->dir.path).text, name.text,
                    info->packed ? "a packed tensor" : "a tensor that is not packed", info->ndim);
    uint64_t nrows = info->shape[info->ndim - 2];
    if (row0 > row1 || row1 > nrows)
        return fail(err, BINADE_E_USAGE, "tensor %s: rows %" PRIu64 " to %" PRIu64 " of %" PRIu64,
                    name.text, row0, row1, nrows);
    return BINADE_OK;
}

binade_status binade_r4_load(const binade_checkpoint *c, size_t i, uint64_t row0, uint64_t row1,
                             unsigned nthreads, binade_r4 *out, binade_error *err) {
    struct loading l = {.row0 = row0};
    struct pool *pool;
    binade_tensor info;

    *out = (binade_r4){0};
    if (i >= c->nentries)
        return fail(err, BINADE_E_USAGE, "%s: no tensor %zu, there are %zu",
                    quote_path(c->dir.path).text, i, c->nentries);
    binade_get(c, i, &info);
    binade_status status = check_wanted(c, &info, row0, row1, err);
    if (status) return status;
    l.expert_nrows = info.shape[info.ndim - 2];
    if ((status = checkpoint_describe(c, i, &l.tensor, err))) return status;
    if ((status = pool_open(&pool, nthreads, err))) return status;
    status = load_tensor(&l, row1, pool, out, err);
    pool_close(pool);
    return status;
}
