/* read.c - binade_read_rows and binade_measure: weights of an open checkpoint. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "pack/checkpoint.h"
#include "pack/count.h"

/* ---- Rows ---------------------------------------------------------------------------------- */

struct rows_wanted {
    uint64_t row0, row1, cols;
    uint8_t *out;
};

static binade_status copy_rows(void *user, const struct decoded_piece *piece, binade_error *err) {
    const struct rows_wanted *w = user;
    (void)err;
    uint64_t first = piece->row < w->row0 ? w->row0 : piece->row;
    uint64_t behind = piece->row + piece->nrows;
    if (behind > w->row1) behind = w->row1;
    if (first < behind) {
        /* nrows is 1 where a piece is a run of a row, so rows within a piece are ncols apart. */
        const uint8_t *from = piece->weights + 2 * (first - piece->row) * piece->ncols;
        memcpy(w->out + 2 * ((first - w->row0) * w->cols + piece->col), from,
               (size_t)(2 * (behind - first) * piece->ncols));
    }
    return BINADE_OK;
}

binade_status binade_read_rows(const binade_checkpoint *c, size_t i, uint64_t row0, uint64_t row1,
                               void *out, size_t out_nbytes, binade_error *err) {
    binade_tensor info;
    if (i >= c->nentries)
        return fail(err, BINADE_E_USAGE, "%s: no tensor %zu, there are %zu",
                    quote_path(c->dir.path).text, i, c->nentries);
    binade_get(c, i, &info);
    const char *name = info.name;
    if (row0 > row1 || row1 > info.rows)
        return fail(err, BINADE_E_USAGE, "tensor %s: rows %" PRIu64 " to %" PRIu64 " of %" PRIu64,
                    quote(name, info.name_nbytes).text, row0, row1, info.rows);
    if (row0 == row1) return BINADE_OK;
    uint64_t row_nbytes = info.nbytes / info.rows;
    bool whole = row0 == 0 && row1 == info.rows;
    uint64_t nbytes = whole ? info.nbytes : row_nbytes * (row1 - row0);
    if (!whole && row_nbytes * info.rows != info.nbytes)
        return fail(err, BINADE_E_USAGE, "tensor %s: its %" PRIu64 " rows are not whole bytes",
                    quote(name, info.name_nbytes).text, info.rows);
    if (out_nbytes < nbytes)
        return fail(err, BINADE_E_USAGE,
                    "tensor %s: the buffer has %zu bytes, the rows have %" PRIu64,
                    quote(name, info.name_nbytes).text, out_nbytes, nbytes);
    const struct entry *e = &c->entries[i];
    const struct shard *shard = &c->shards[e->shard];
    if (!e->parts)
        return file_read(&shard->file,
                         8 + shard->header.header_nbytes + e->tensor->begin + row0 * row_nbytes,
                         out, (size_t)nbytes, err);

    struct packed_tensor t;
    struct decode_scratch scratch;
    binade_status status = checkpoint_describe(c, i, &t, err);
    if (status) return status;
    if ((status = decode_scratch_open(&scratch, err))) return status;
    struct rows_wanted wanted = {row0, row1, t.cols, out};
    uint64_t step = t.format == 1 ? piece_nrows(t.cols) : 1;
    status = decode_rows(&t, row0 - row0 % step, row1, &scratch, copy_rows, &wanted, err);
    decode_scratch_close(&scratch);
    return status;
}

/* ---- Statistics ------------------------------------------------------------------------------ */

struct measuring {
    const struct packed_tensor *t;
    struct decode_scratch *scratch; /* [nthreads] */
    uint64_t (*counts)[256];        /* [nthreads] */
};

static binade_status count_piece(void *user, const struct decoded_piece *piece, binade_error *err) {
    (void)err;
    cpu_kernels()->count_exponents(piece->weights, piece->weights_nbytes / 2, user);
    return BINADE_OK;
}

static binade_status count_rows(void *user, size_t i, unsigned worker, binade_error *err) {
    struct measuring *m = user;
    uint64_t step = piece_nrows(m->t->cols), row0 = i * step;
    uint64_t row1 = m->t->rows - row0 < step ? m->t->rows : row0 + step;
    return decode_rows(m->t, row0, row1, &m->scratch[worker], count_piece, m->counts[worker], err);
}

static binade_status count_packed(const binade_checkpoint *c, size_t i, struct pool *pool,
                                  uint64_t counts[256], binade_error *err) {
    unsigned nthreads = pool_nthreads(pool), nopen = 0;
    struct packed_tensor t;
    struct measuring m = {&t, calloc(nthreads, sizeof *m.scratch),
                          calloc(nthreads, sizeof *m.counts)};
    binade_status status = m.scratch && m.counts ? BINADE_OK : fail_memory(err);
    for (; nopen < nthreads && !status; nopen++)
        status = decode_scratch_open(&m.scratch[nopen], err);
    if (!status) status = checkpoint_describe(c, i, &t, err);
    if (!status)
        status = pool_run(pool, (size_t)ceil_div(t.rows, piece_nrows(t.cols)), count_rows, &m, err);
    for (unsigned w = 0; w < nthreads && !status; w++) {
        for (unsigned e = 0; e < 256; e++)
            counts[e] += m.counts[w][e];
    }
    for (unsigned w = 0; w < nopen; w++)
        decode_scratch_close(&m.scratch[w]);
    free(m.counts);
    free(m.scratch);
    return status;
}

static binade_status count_carried(const binade_checkpoint *c, size_t i, struct pool *pool,
                                   uint64_t counts[256], binade_error *err) {
    const struct entry *e = &c->entries[i];
    const struct shard *shard = &c->shards[e->shard];
    struct byte_source source = {.file = &shard->file};
    struct count_item item = {
        .src_offset = 8 + shard->header.header_nbytes + e->tensor->begin,
        .nweights = entry_nbytes(e) / 2,
    };
    binade_status status = count_items(pool, &source, &item, 1, err);
    if (!status) memcpy(counts, item.counts, sizeof item.counts);
    return status;
}

static double entropy_of(const uint64_t counts[256], uint64_t total) {
    double sum = 0;
    for (unsigned e = 0; e < 256; e++) {
        double p = total ? (double)counts[e] / (double)total : 0;
        if (p > 0) sum -= p * log2(p);
    }
    return sum;
}

/* Weights whose exponent is not among the 15 most frequent: R4 has no short code for them. */
static uint64_t count_escapes(const uint64_t counts[256]) {
    enum { R4_NCODES = 15 };
    uint64_t left[256], nescapes = 0;
    memcpy(left, counts, sizeof left);
    for (int code = 0; code < R4_NCODES; code++) {
        unsigned most = 0;
        for (unsigned e = 1; e < 256; e++) {
            if (left[e] > left[most]) most = e;
        }
        left[most] = 0;
    }
    for (unsigned e = 0; e < 256; e++)
        nescapes += left[e];
    return nescapes;
}

binade_status binade_measure(const binade_checkpoint *c, size_t i, binade_stats *out,
                             unsigned nthreads, binade_error *err) {
    binade_tensor info;
    struct pool *pool;
    if (i >= c->nentries)
        return fail(err, BINADE_E_USAGE, "%s: no tensor %zu, there are %zu",
                    quote_path(c->dir.path).text, i, c->nentries);
    binade_get(c, i, &info);
    if (strcmp(info.dtype, "BF16"))
        return fail(err, BINADE_E_USAGE, "tensor %s: its dtype is %s, only BF16 can be measured",
                    quote(info.name, info.name_nbytes).text, info.dtype);
    binade_status status = pool_open(&pool, nthreads, err);
    if (status) return status;
    *out = (binade_stats){.nweights = info.nbytes / 2, .stored_nbits = 8 * info.stored_nbytes};
    status = info.packed ? count_packed(c, i, pool, out->counts, err)
                         : count_carried(c, i, pool, out->counts, err);
    pool_close(pool);
    if (status) return status;
    out->entropy = entropy_of(out->counts, out->nweights);
    uint64_t ntiles = info.rows * row_ntiles(info.cols);
    out->runtime_nbytes = out->nweights + ceil_div(out->nweights, 2) + ntiles + 4 * info.rows +
                          count_escapes(out->counts);
    return BINADE_OK;
}
