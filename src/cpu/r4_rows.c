/* r4_rows.c - R4 weights as BF16 again: ranges of rows, and single rows for embeddings. */
#include <string.h>

#include "base/team.h"
#include "cpu/r4_product.h"
#include "r4/r4_plain.h"

/* Columns decoded at a time: 16 KB of float32. */
enum { CHUNK_NCOLS = 256 };

struct reading {
    const struct r4_kernels *set;
    const binade_r4 *w;
    struct r4_lookup lookup;
    uint64_t expert, row0, row1;
    const uint32_t *ids; /* rows: [n] */
    uint16_t *out;
};

/* out[k] = row `row` (0..15) of n decoded columns */
static void narrow_row(const float *columns, size_t row, size_t n, uint16_t *out) {
    for (size_t k = 0; k < n; k++) {
        uint32_t bits;
        memcpy(&bits, columns + k * R4_NROWS + row, sizeof bits);
        out[k] = (uint16_t)(bits >> 16);
    }
}

/* Rows [first, behind) of a block of the expert; out[behind - first][K]. */
static void read_block(const struct reading *r, size_t block, size_t first, size_t behind,
                       uint16_t *out, float *columns) {
    size_t b = (size_t)r->expert * r4_nblocks(r->w) + block, cols = (size_t)r->w->cols;
    const uint8_t *groups = r->w->groups + b * r4_block_nbytes(r->w);
    const uint8_t *escapes = r->w->escapes + r->w->escape_starts[b];

    for (size_t col = 0; col < cols; col += CHUNK_NCOLS) {
        size_t ncols = cols - col < CHUNK_NCOLS ? cols - col : CHUNK_NCOLS;
        r->set->decode(&r->lookup, groups + col / R4_NCOLS * R4_NBYTES,
                       (size_t)ceil_div(ncols, R4_NCOLS), &escapes, columns, R4_NROWS);
        for (size_t row = first; row < behind; row++)
            narrow_row(columns, row, ncols, out + (row - first) * cols + col);
    }
}

static void read_id(void *user, size_t i, void *scratch) {
    const struct reading *r = user;
    size_t row = r->ids[i] % R4_NROWS;
    read_block(r, r->ids[i] / R4_NROWS, row, row + 1, r->out + i * (size_t)r->w->cols, scratch);
}

static void rebuild_block(void *user, size_t i, void *scratch) {
    const struct reading *r = user;
    uint64_t block = r->row0 / R4_NROWS + i, row0 = block * R4_NROWS;
    uint64_t first = r->row0 > row0 ? r->row0 : row0;
    uint64_t behind = r->row1 < row0 + R4_NROWS ? r->row1 : row0 + R4_NROWS;
    read_block(r, (size_t)block, (size_t)(first - row0), (size_t)(behind - row0),
               r->out + (size_t)(first - r->row0) * (size_t)r->w->cols, scratch);
}

/* Below this many decoded weights handing over costs more than it saves. */
enum { NTHREADED_LEAST = 1 << 16 };

static void run(const struct r4_means *means, struct reading *r, size_t count, team_task task) {
    bool is_small = (double)count * R4_NROWS * (double)r->w->cols < NTHREADED_LEAST;
    r->set = means->set;
    r4_lookup_build(r->w->exponents, &r->lookup);
    if (count > 0) team_run(is_small ? 1 : means->nthreads, count, task, r);
}

void r4_rows(const struct r4_means *means, const binade_r4 *w, const uint32_t *ids, size_t n,
             uint16_t *out) {
    struct reading r = {.w = w, .ids = ids, .out = out};
    run(means, &r, n, read_id);
}

void r4_rebuild(const struct r4_means *means, const binade_r4 *w, uint64_t expert, uint64_t row0,
                uint64_t row1, uint16_t *out) {
    struct reading r = {.w = w, .expert = expert, .row0 = row0, .row1 = row1, .out = out};
    if (row0 < row1)
        run(means, &r, (size_t)(ceil_div(row1, R4_NROWS) - row0 / R4_NROWS), rebuild_block);
}

void binade_r4_rows(const binade_r4 *w, const uint32_t *ids, size_t n, uint16_t *out) {
    struct r4_means means = r4_default_means();
    r4_rows(&means, w, ids, n, out);
}

void binade_r4_rebuild(const binade_r4 *w, uint64_t expert, uint64_t row0, uint64_t row1,
                       uint16_t *out) {
    struct r4_means means = r4_default_means();
    r4_rebuild(&means, w, expert, row0, row1, out);
}
