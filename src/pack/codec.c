/* codec.c - encoding and decoding of one weight in memory: the public functions. */
#include <stdlib.h>

#include "pack/decode.h"
#include "pack/encode.h"
#include "pack/encode_piece.h"

static binade_status check_shape(int format, uint64_t rows, uint64_t cols, binade_error *err) {
    uint64_t nweights;
    if (format != 1 && format != 2)
        return fail(err, BINADE_E_USAGE, "format %d: only 1 and 2 exist", format);
    if (rows == 0 || cols == 0 || mul_overflows(rows, cols, &nweights) || nweights > SIZE_MAX / 512)
        return fail(err, BINADE_E_USAGE, "%llu x %llu weights cannot be coded",
                    (unsigned long long)rows, (unsigned long long)cols);
    return BINADE_OK;
}

binade_status binade_encode_bound(int format, uint64_t rows, uint64_t cols, binade_parts *parts,
                                  binade_error *err) {
    uint64_t codes_nbytes, tail_nbytes;
    binade_status status = check_shape(format, rows, cols, err);
    if (status) return status;
    if ((status = encode_bound(format, rows, cols, &codes_nbytes, &tail_nbytes, err)))
        return status;
    parts->raw_nbytes = (size_t)(rows * cols);
    parts->table_nbytes = 256;
    parts->meta_nbytes = (size_t)(rows * row_ntiles(cols));
    parts->codes_nbytes = (size_t)codes_nbytes;
    parts->tail_nbytes = (size_t)tail_nbytes;
    return BINADE_OK;
}

static binade_status check_capacity(int format, uint64_t rows, uint64_t cols,
                                    const binade_parts *parts, binade_error *err) {
    binade_parts bound;
    binade_status status = binade_encode_bound(format, rows, cols, &bound, err);
    if (status) return status;
    const size_t have[] = {parts->raw_nbytes, parts->table_nbytes, parts->meta_nbytes,
                           parts->codes_nbytes, parts->tail_nbytes};
    const size_t need[] = {bound.raw_nbytes, bound.table_nbytes, bound.meta_nbytes,
                           bound.codes_nbytes, bound.tail_nbytes};
    for (int p = 0; p < NPARTS; p++) {
        if (have[p] < need[p])
            return fail(err, BINADE_E_USAGE, "the buffer for %s has %zu bytes, %zu are needed",
                        part_suffix(format, p), have[p], need[p]);
    }
    return BINADE_OK;
}

binade_status binade_encode(int format, const void *bf16, uint64_t rows, uint64_t cols,
                            binade_parts *parts, unsigned nthreads, binade_error *err) {
    struct progress progress;
    struct encoder e = {
        .format = format, .source = {.memory = bf16}, .parts = parts, .progress = &progress};
    struct encode_item item = {
        .name = "", .src_nbytes = 2 * rows * cols, .packed = true, .rows = rows, .cols = cols};
    binade_status status = check_capacity(format, rows, cols, parts, err);
    if (status) return status;
    progress_open(&progress, NULL, NULL);
    if ((status = pool_open(&e.pool, nthreads, err))) goto done;
    if ((status = encode_items(&e, &item, 1, err))) goto done;
    parts->raw_nbytes = (size_t)(rows * cols);
    parts->table_nbytes = 256;
    parts->meta_nbytes = (size_t)(rows * row_ntiles(cols));
    parts->codes_nbytes = (size_t)item.codes_nbytes;
    parts->tail_nbytes = (size_t)item.tail_nbytes;
done:
    pool_close(e.pool);
    progress_close(&progress);
    return status;
}

struct memory_decoding {
    struct packed_tensor tensor;
    struct decode_scratch *scratch; /* [nthreads] */
    uint64_t task_nrows;
    uint8_t *out;
};

struct memory_task {
    const struct memory_decoding *d;
    struct decode_scratch scratch;
};

static uint8_t *place_of(const struct memory_decoding *d, uint64_t row, uint64_t col) {
    return d->out + 2 * (row * d->tensor.cols + col);
}

/* Pieces of whole rows are decoded where they belong; runs of a long row in the scratch. */
static binade_status place_piece(void *user, const struct decoded_piece *piece, binade_error *err) {
    struct memory_task *task = user;
    (void)err;
    if (piece->ncols < task->d->tensor.cols)
        memcpy(place_of(task->d, piece->row, piece->col), piece->weights, piece->weights_nbytes);
    else
        task->scratch.weights += piece->weights_nbytes;
    return BINADE_OK;
}

static binade_status decode_task(void *user, size_t i, unsigned worker, binade_error *err) {
    struct memory_decoding *d = user;
    const struct packed_tensor *t = &d->tensor;
    struct memory_task task = {d, d->scratch[worker]};
    uint64_t row0 = i * d->task_nrows;
    uint64_t row1 = t->rows - row0 < d->task_nrows ? t->rows : row0 + d->task_nrows;
    if (t->cols <= PIECE_NWEIGHTS) task.scratch.weights = place_of(d, row0, 0);
    return decode_rows(t, row0, row1, &task.scratch, place_piece, &task, err);
}

binade_status binade_decode(int format, const binade_parts *parts, uint64_t rows, uint64_t cols,
                            void *bf16, unsigned nthreads, binade_error *err) {
    struct pool *pool = NULL;
    struct memory_decoding d = {.out = bf16};
    unsigned nopen = 0;
    binade_status status = check_shape(format, rows, cols, err);
    if (status) return status;
    d.tensor = (struct packed_tensor){.file = "memory",
                                      .name = "",
                                      .format = format,
                                      .rows = rows,
                                      .cols = cols,
                                      .parts = {
                                          {{.memory = parts->raw}, 0, parts->raw_nbytes},
                                          {{.memory = parts->table}, 0, parts->table_nbytes},
                                          {{.memory = parts->meta}, 0, parts->meta_nbytes},
                                          {{.memory = parts->codes}, 0, parts->codes_nbytes},
                                          {{.memory = parts->tail}, 0, parts->tail_nbytes},
                                      }};
    if ((status = pool_open(&pool, nthreads, err))) goto done;
    d.scratch = calloc(pool_nthreads(pool), sizeof *d.scratch);
    if (!d.scratch) {
        status = fail_memory(err);
        goto done;
    }
    for (; nopen < pool_nthreads(pool); nopen++) {
        if ((status = decode_scratch_open(&d.scratch[nopen], err))) goto done;
    }
    if ((status = packed_tensor_open(&d.tensor, err))) goto done;
    /* One thread decodes in order and needs no scan to find its way. */
    d.task_nrows = pool_nthreads(pool) == 1 ? rows : piece_nrows(cols);
    if (d.task_nrows < rows && (status = packed_tensor_scan(&d.tensor, err))) goto done;
    status = pool_run(pool, (size_t)ceil_div(rows, d.task_nrows), decode_task, &d, err);
done:
    packed_tensor_close(&d.tensor);
    for (unsigned w = 0; w < nopen; w++)
        decode_scratch_close(&d.scratch[w]);
    free(d.scratch);
    pool_close(pool);
    return status;
}
