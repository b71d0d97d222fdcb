/* r4_task.c - see r4_task.h.
 *
 * Columns are taken in chunks that fit the scratch. Between chunks the sums lie in memory as
 * float32, which changes nothing about them.
 *
 * A block's missing rows are decoded and multiplied as zero bytes say, and never stored. Missing
 * columns are left out: a product with zero would not be harmless where steps are fused, since
 * there a tiny sum may have become -0, which adding +0 turns into +0.
 */
#include "cpu/r4_task.h"

#include <string.h>

#include "base/team.h"
#include "r4/r4_plain.h"

enum {
    VECTOR_NCOLS = 8192, /* a chunk for one row of x: 32 KB of float32 */
    PANEL_NCOLS = 128,   /* a chunk for several: 32 KB of decoded weights */
    PANEL_NROWS = 48,    /* rows of x at a time: 24 KB */
};
_Static_assert(VECTOR_NCOLS % R4_NCOLS == 0 && PANEL_NCOLS % R4_NCOLS == 0, "whole groups");

struct vector_scratch {
    float x[VECTOR_NCOLS];
    float sums[R4_TASK_NBLOCKS * R4_NROWS];
    const uint8_t *escapes[R4_TASK_NBLOCKS];
};

struct panel_scratch {
    float w[PANEL_NCOLS * R4_PANEL];
    float x[PANEL_NROWS * PANEL_NCOLS];
    float sums[R4_TASK_NROWS * R4_PANEL];
};
_Static_assert(sizeof(struct vector_scratch) <= TEAM_SCRATCH_NBYTES &&
                   sizeof(struct panel_scratch) <= TEAM_SCRATCH_NBYTES,
               "what a task needs fits");

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t item_at(const struct r4_task *t, size_t i) {
    return t->items ? t->items[t->first_item + i] : t->first_item + i;
}

static const uint16_t *x_row(const struct r4_task *t, size_t i) {
    size_t item = item_at(t, i);
    return t->operands.x + (t->x_rows ? t->x_rows[item] : item) * t->operands.ldx;
}

/* Blocks from `block` of the expert on. */
static const uint8_t *groups_at(const struct r4_task *t, size_t block) {
    size_t b = (size_t)t->expert * r4_nblocks(t->w) + block;
    return t->w->groups + b * r4_block_nbytes(t->w);
}

static void find_escapes(const struct r4_task *t, size_t block, size_t nblocks,
                         const uint8_t **escapes) {
    const uint32_t *starts = t->w->escape_starts + (size_t)t->expert * r4_nblocks(t->w) + block;
    for (size_t b = 0; b < nblocks; b++)
        escapes[b] = t->w->escapes + starts[b];
}

/* Sums of item i that begin at row `row` of the expert, as far as the expert has rows. */
static void store_sums(const struct r4_task *t, size_t i, size_t row, const float *sums,
                       size_t nsums) {
    uint16_t *y = t->operands.y + item_at(t, i) * t->operands.ldy + row;
    size_t n = smaller(nsums, (size_t)t->w->rows - row);
    if (t->operands.bias) {
        for (size_t r = 0; r < n; r++)
            y[r] = r4_round(sums[r] + r4_widen(t->operands.bias[row + r]));
    } else {
        for (size_t r = 0; r < n; r++)
            y[r] = r4_round(sums[r]);
    }
}

static void multiply_vector(const struct r4_task *t, struct vector_scratch *s) {
    const uint8_t *groups = groups_at(t, t->block0);
    size_t cols = (size_t)t->w->cols;

    find_escapes(t, t->block0, t->nblocks, s->escapes);
    memset(s->sums, 0, t->nblocks * R4_NROWS * sizeof *s->sums);
    for (size_t col = 0; col < cols; col += VECTOR_NCOLS) {
        size_t ncols = smaller(cols - col, VECTOR_NCOLS);
        t->set->widen(x_row(t, 0) + col, ncols, s->x);
        t->set->matvec(t->lookup, groups + col / R4_NCOLS * R4_NBYTES, r4_block_nbytes(t->w),
                       s->escapes, t->nblocks, s->x, ncols, s->sums);
    }
    store_sums(t, 0, t->block0 * R4_NROWS, s->sums, t->nblocks * R4_NROWS);
}

/* Adds ncols columns of a decoded panel to the sums of every row. */
static void multiply_columns(const struct r4_task *t, struct panel_scratch *s, size_t nblocks,
                             size_t col, size_t ncols) {
    for (size_t m = 0; m < t->nitems; m += PANEL_NROWS) {
        size_t nrows = smaller(t->nitems - m, PANEL_NROWS);
        for (size_t i = 0; i < nrows; i++)
            t->set->widen(x_row(t, m + i) + col, ncols, s->x + i * PANEL_NCOLS);
        t->set->gemm(s->w, nblocks, ncols, s->x, PANEL_NCOLS, nrows, s->sums + m * R4_PANEL);
    }
}

static void multiply_panel(const struct r4_task *t, struct panel_scratch *s, size_t block,
                           size_t nblocks) {
    const uint8_t *groups = groups_at(t, block), *escapes[R4_PANEL_NBLOCKS];
    size_t cols = (size_t)t->w->cols, block_nbytes = r4_block_nbytes(t->w);

    find_escapes(t, block, nblocks, escapes);
    memset(s->sums, 0, t->nitems * R4_PANEL * sizeof *s->sums);
    for (size_t col = 0; col < cols; col += PANEL_NCOLS) {
        size_t ncols = smaller(cols - col, PANEL_NCOLS);
        for (size_t b = 0; b < nblocks; b++)
            t->set->decode(t->lookup, groups + b * block_nbytes + col / R4_NCOLS * R4_NBYTES,
                           (size_t)ceil_div(ncols, R4_NCOLS), &escapes[b], s->w + b * R4_NROWS,
                           R4_PANEL);
        multiply_columns(t, s, nblocks, col, ncols);
    }
    for (size_t i = 0; i < t->nitems; i++)
        store_sums(t, i, block * R4_NROWS, s->sums + i * R4_PANEL, nblocks * R4_NROWS);
}

void r4_task_run(const struct r4_task *t, void *scratch) {
    if (t->nitems == 1) {
        multiply_vector(t, scratch);
        return;
    }
    for (size_t b = 0; b < t->nblocks; b += R4_PANEL_NBLOCKS)
        multiply_panel(t, scratch, t->block0 + b, smaller(t->nblocks - b, R4_PANEL_NBLOCKS));
}
