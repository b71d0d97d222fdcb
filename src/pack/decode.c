/* decode.c - see decode.h. */
#include "pack/decode.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "format/fixed.h"
#include "format/rice.h"

/* The loosest valid meta: 3 low bits and 63 planes for each weight, a word begun for each row. */
enum { RICE_PIECE_NBYTES = PIECE_NWEIGHTS / 8 * (RICE_K_MAX + RICE_Q_MAX) + 4 * PIECE_NWEIGHTS };
/* A row may hold a single weight, so a piece may hold as many tiles as weights. */
enum { FIXED_PIECE_NBYTES = TILE * PIECE_NWEIGHTS };

static binade_status corrupt(const struct packed_tensor *t, binade_error *err, const char *format,
                             ...) __attribute__((format(printf, 3, 4)));

static binade_status corrupt(const struct packed_tensor *t, binade_error *err, const char *format,
                             ...) {
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fail(err, BINADE_E_DATA, "%s: tensor %s: %s", quote_path(t->file).text,
                quote(t->name, t->name_nbytes).text, what);
}

static binade_status corrupt_stream(const struct packed_tensor *t, uint64_t row,
                                    enum stream_fault fault, binade_error *err) {
    if (fault == STREAM_BAD_META)
        return corrupt(t, err, "row %" PRIu64 ": %s holds a value outside the format", row,
                       part_suffix(t->format, PART_META));
    return corrupt(t, err, "row %" PRIu64 ": %s ends before the row's weights do", row,
                   part_suffix(t->format, PART_CODES));
}

/* ---- Opening ----------------------------------------------------------------------------- */

binade_status packed_tensor_open(struct packed_tensor *t, binade_error *err) {
    uint64_t nweights, ntiles;
    if (t->rows == 0 || t->cols == 0) return corrupt(t, err, "a packed tensor without weights");
    if (mul_overflows(t->rows, t->cols, &nweights) ||
        mul_overflows(t->rows, row_ntiles(t->cols), &ntiles) || nweights > UINT64_MAX / 256)
        return corrupt(t, err, "the shape %" PRIu64 " x %" PRIu64 " overflows", t->rows, t->cols);

    const uint64_t expected[NPARTS] = {nweights, 256, ntiles, 0, 4 * t->rows};
    for (int p = 0; p < NPARTS; p++) {
        bool free_size = p == PART_CODES || (p == PART_TAIL && t->format == 1);
        if (!free_size && t->parts[p].nbytes != expected[p])
            return corrupt(t, err, "%s has %" PRIu64 " bytes, the shape needs %" PRIu64,
                           part_suffix(t->format, p), t->parts[p].nbytes, expected[p]);
    }
    if (t->format == 2 && t->parts[PART_CODES].nbytes / 4 > UINT32_MAX)
        return corrupt(t, err, ".bits has %" PRIu64 " bytes, the format allows fewer than 2^34",
                       t->parts[PART_CODES].nbytes);
    if (t->parts[PART_CODES].nbytes % 4)
        return corrupt(t, err, "%s has %" PRIu64 " bytes, not whole words",
                       part_suffix(t->format, PART_CODES), t->parts[PART_CODES].nbytes);
    const struct part_range *table = &t->parts[PART_TABLE];
    return bytes_read(&table->source, table->offset, 256, t->table, err);
}

void packed_tensor_close(struct packed_tensor *t) {
    free(t->starts);
    t->starts = NULL;
}

binade_status decode_scratch_open(struct decode_scratch *s, binade_error *err) {
    *s = (struct decode_scratch){
        .weights = malloc(PIECE_NBYTES),
        .raw = malloc(PIECE_NWEIGHTS),
        .meta = malloc(PIECE_NWEIGHTS),
        .codes = malloc(FIXED_PIECE_NBYTES + STREAM_SLACK),
        .tail = malloc(FIXED_PIECE_NBYTES + STREAM_SLACK),
    };
    _Static_assert(RICE_PIECE_NBYTES + 8 <= FIXED_PIECE_NBYTES, "one buffer serves both formats");
    if (s->weights && s->raw && s->meta && s->codes && s->tail) return BINADE_OK;
    decode_scratch_close(s);
    return fail_memory(err);
}

void decode_scratch_close(struct decode_scratch *s) {
    free(s->weights);
    free(s->raw);
    free(s->meta);
    free(s->codes);
    free(s->tail);
    *s = (struct decode_scratch){0};
}

/* ---- Pieces -------------------------------------------------------------------------------- */

struct decoding {
    const struct packed_tensor *t;
    struct decode_scratch *s;
    struct decoded_piece piece;
    size_t row_ntiles; /* of one row or run within the piece */
    /* Position within a long row, carried from run to run. */
    uint64_t bit;               /* format 2: from the row's first word */
    uint64_t codes_at, tail_at; /* format 1: bytes into the parts */
    binade_error *err;
};

/* Shows piece.parts[part]: nbytes from `at` of the part. Codes and tail are copied, for the slack
 * that kernels read behind them. */
static binade_status load(struct decoding *d, enum part part, uint64_t at, uint64_t nbytes,
                          uint8_t *scratch) {
    const struct part_range *range = &d->t->parts[part];
    d->piece.parts[part] = scratch;
    d->piece.parts_nbytes[part] = (size_t)nbytes;
    if (part == PART_CODES || part == PART_TAIL) {
        memset(scratch + nbytes, 0, STREAM_SLACK); /* its value does not matter, but tools ask */
        return bytes_read(&range->source, range->offset + at, (size_t)nbytes, scratch, d->err);
    }
    return bytes_view(&range->source, range->offset + at, (size_t)nbytes, scratch,
                      &d->piece.parts[part], d->err);
}

static binade_status load_raw_meta(struct decoding *d) {
    struct decoded_piece *p = &d->piece;
    uint64_t tn = row_ntiles(d->t->cols);
    d->row_ntiles = (size_t)row_ntiles(p->ncols);
    p->weights = d->s->weights;
    p->weights_nbytes = 2 * (size_t)(p->nrows * p->ncols);
    binade_status status =
        load(d, PART_RAW, p->row * d->t->cols + p->col, p->nrows * p->ncols, d->s->raw);
    if (status) return status;
    return load(d, PART_META, p->row * tn + p->col / TILE, p->nrows * d->row_ntiles, d->s->meta);
}

/* The words at which rows [row, row + nrows] start, the last one that behind the rows. */
static binade_status load_row_offsets(struct decoding *d) {
    const struct packed_tensor *t = d->t;
    struct decoded_piece *p = &d->piece;
    uint64_t total = t->parts[PART_CODES].nbytes / 4, behind = p->row + p->nrows;
    uint64_t nread = p->nrows + (behind < t->rows);
    binade_status status = load(d, PART_TAIL, 4 * p->row, 4 * nread, d->s->tail);
    if (status) return status;
    if (behind == t->rows) store_le32(d->s->tail + 4 * p->nrows, (uint32_t)total);
    p->parts_nbytes[PART_TAIL] = p->col == 0 ? 4 * (size_t)p->nrows : 0;

    uint32_t word = load_le32(d->s->tail);
    if (p->row == 0 && word != 0) return corrupt(t, d->err, ".roff starts at word %u, not 0", word);
    for (uint64_t r = 0; r < p->nrows; r++) {
        uint32_t next = load_le32(d->s->tail + 4 * (r + 1));
        if (next < word || next > total)
            return corrupt(t, d->err, "row %" PRIu64 ": .roff goes from word %u to %u of %" PRIu64,
                           p->row + r, word, next, total);
        word = next;
    }
    return BINADE_OK;
}

/* A row must end in its last word, and the bits behind it are 0. */
static binade_status check_row_end(const struct decoding *d, uint64_t row,
                                   const struct bit_source *source) {
    if (ceil_div(source->pos, 32) * 32 != source->end)
        return corrupt(d->t, d->err, "row %" PRIu64 ": .bits ends at bit %" PRIu64 " of %" PRIu64,
                       row, source->pos, source->end);
    if (source->pos < source->end) {
        uint32_t last = load_le32(source->base + (source->end - 32) / 8);
        if (last >> (source->pos % 32))
            return corrupt(d->t, d->err, "row %" PRIu64 ": .bits has set bits behind the row's end",
                           row);
    }
    return BINADE_OK;
}

static enum stream_fault decode_rice_row(const struct decoding *d, uint64_t r,
                                         struct bit_source *source) {
    const struct decoded_piece *p = &d->piece;
    return cpu_kernels()->rice_decode(p->parts[PART_RAW] + r * p->ncols,
                                      p->parts[PART_META] + r * d->row_ntiles, p->ncols,
                                      d->t->table, source, d->s->weights + 2 * r * p->ncols);
}

static binade_status decode_rice_rows(struct decoding *d) {
    struct decoded_piece *p = &d->piece;
    binade_status status = load_row_offsets(d);
    if (status) return status;
    const uint8_t *offsets = d->s->tail;
    uint64_t first = load_le32(offsets), nwords = load_le32(offsets + 4 * p->nrows) - first;
    if (4 * nwords > RICE_PIECE_NBYTES)
        return corrupt(d->t, d->err,
                       "rows from %" PRIu64 " on: %" PRIu64 " words of .bits for %" PRIu64
                       " weights",
                       p->row, nwords, p->nrows * p->ncols);
    if ((status = load(d, PART_CODES, 4 * first, 4 * nwords, d->s->codes))) return status;
    for (uint64_t r = 0; r < p->nrows; r++) {
        struct bit_source source = {
            .base = d->s->codes,
            .pos = 32 * (load_le32(offsets + 4 * r) - first),
            .end = 32 * (load_le32(offsets + 4 * (r + 1)) - first),
        };
        enum stream_fault fault = decode_rice_row(d, r, &source);
        if (fault) return corrupt_stream(d->t, p->row + r, fault, d->err);
        if ((status = check_row_end(d, p->row + r, &source))) return status;
    }
    return BINADE_OK;
}

static binade_status decode_rice_run(struct decoding *d, bool ends_row) {
    struct decoded_piece *p = &d->piece;
    binade_status status = load_row_offsets(d);
    if (status) return status;
    uint64_t first = load_le32(d->s->tail), row_nwords = load_le32(d->s->tail + 4) - first;
    uint64_t word = d->bit / 32, nwords = row_nwords - word;
    bool whole = 4 * nwords <= RICE_PIECE_NBYTES + 4; /* 4: the run may begin within a word */
    if (!whole) nwords = RICE_PIECE_NBYTES / 4 + 1;
    if ((status = load(d, PART_CODES, 4 * (first + word), 4 * nwords, d->s->codes))) return status;

    struct bit_source source = {d->s->codes, d->bit % 32, 32 * nwords};
    enum stream_fault fault = decode_rice_row(d, 0, &source);
    if (fault) return corrupt_stream(d->t, p->row, fault, d->err);
    if (ends_row) {
        if (!whole || (status = check_row_end(d, p->row, &source)))
            return whole ? status
                         : corrupt(d->t, d->err, "row %" PRIu64 ": .bits is too long", p->row);
    } else {
        p->parts_nbytes[PART_CODES] = 4 * (size_t)(source.pos / 32);
    }
    d->bit = 32 * word + source.pos;
    return BINADE_OK;
}

/* Sums what ntiles tiles take of .idx, after checking each meta. */
static bool sum_fixed_nbytes(const uint8_t *meta, size_t ntiles, uint64_t *nbytes) {
    *nbytes = 0;
    for (size_t i = 0; i < ntiles; i++) {
        if (!fixed_meta_is_valid(meta[i])) return false;
        *nbytes += fixed_tile_nbytes(meta[i]);
    }
    return true;
}

/* Loads the piece's codes and finds how many escapes they hold: by counting, or where the piece is
 * whole and the scan has found what the next one starts with, from that. */
static binade_status load_fixed_codes(struct decoding *d, uint64_t *nescapes) {
    const struct decoded_piece *p = &d->piece;
    const struct part_range *codes = &d->t->parts[PART_CODES];
    const uint8_t *meta = p->parts[PART_META];
    size_t ntiles = p->parts_nbytes[PART_META];
    uint64_t nbytes;
    if (!sum_fixed_nbytes(meta, ntiles, &nbytes))
        return corrupt_stream(d->t, p->row, STREAM_BAD_META, d->err);
    if (nbytes > codes->nbytes - d->codes_at)
        return corrupt_stream(d->t, p->row, STREAM_SHORT, d->err);
    binade_status status = load(d, PART_CODES, d->codes_at, nbytes, d->s->codes);
    if (status) return status;
    uint64_t behind = p->row + p->nrows, step = piece_nrows(d->t->cols);
    bool ends_tensor = behind == d->t->rows;
    if (d->t->starts && p->ncols == d->t->cols && (ends_tensor || behind % step == 0)) {
        uint64_t tail_end =
            ends_tensor ? d->t->parts[PART_TAIL].nbytes : d->t->starts[behind / step].tail;
        *nescapes = tail_end - d->tail_at;
        return BINADE_OK;
    }
    const uint8_t *idx = d->s->codes;
    *nescapes = 0;
    enum stream_fault fault =
        cpu_kernels()->fixed_count_escapes(meta, ntiles, &idx, idx + nbytes, nescapes);
    if (fault) return corrupt_stream(d->t, p->row, fault, d->err);
    if (*nescapes > d->t->parts[PART_TAIL].nbytes - d->tail_at)
        return corrupt(d->t, d->err, "row %" PRIu64 ": .esc ends before the row's escapes do",
                       p->row);
    return BINADE_OK;
}

static binade_status decode_fixed(struct decoding *d) {
    struct decoded_piece *p = &d->piece;
    uint64_t nescapes;
    binade_status status = load_fixed_codes(d, &nescapes);
    if (status) return status;
    if ((status = load(d, PART_TAIL, d->tail_at, nescapes, d->s->tail))) return status;
    const uint8_t *idx = d->s->codes, *idx_end = idx + p->parts_nbytes[PART_CODES];
    const uint8_t *esc = d->s->tail, *esc_end = esc + nescapes;
    for (uint64_t r = 0; r < p->nrows; r++) {
        enum stream_fault fault = cpu_kernels()->fixed_decode(
            p->parts[PART_RAW] + r * p->ncols, p->parts[PART_META] + r * d->row_ntiles, p->ncols,
            d->t->table, &idx, idx_end, &esc, esc_end, d->s->weights + 2 * r * p->ncols);
        if (fault) return corrupt_stream(d->t, p->row + r, fault, d->err);
    }
    if (idx != idx_end || esc != esc_end) /* the file has changed since the scan */
        return corrupt(d->t, d->err, "row %" PRIu64 ": .idx and .esc do not fit each other",
                       p->row);
    d->codes_at += p->parts_nbytes[PART_CODES];
    d->tail_at += nescapes;
    return BINADE_OK;
}

/* ---- Walking --------------------------------------------------------------------------------- */

typedef binade_status (*visit_piece)(struct decoding *d, bool ends_row, void *user);

/* Visits the pieces of rows [row0, row1); the visitor loads what it needs of each. */
static binade_status walk_pieces(struct decoding *d, uint64_t row0, uint64_t row1,
                                 visit_piece visit, void *user) {
    const struct packed_tensor *t = d->t;
    uint64_t step = piece_nrows(t->cols);
    for (uint64_t row = row0; row < row1; row += step) {
        for (uint64_t col = 0; col < t->cols; col += PIECE_NWEIGHTS) {
            uint64_t nrows = row1 - row < step ? row1 - row : step;
            uint64_t left = t->cols - col, ncols = left < PIECE_NWEIGHTS ? left : PIECE_NWEIGHTS;
            if (col == 0) d->bit = 0;
            d->piece = (struct decoded_piece){
                .row = row,
                .nrows = nrows,
                .col = col,
                .ncols = ncols,
                .last = row + nrows == row1 && ncols == left,
            };
            binade_status status = visit(d, ncols == left, user);
            if (status) return status;
        }
    }
    return BINADE_OK;
}

static binade_status scan_piece(struct decoding *d, bool ends_row, void *user) {
    struct stream_start *starts = user;
    uint64_t nescapes;
    (void)ends_row;
    if (d->piece.col == 0)
        starts[d->piece.row / piece_nrows(d->t->cols)] =
            (struct stream_start){d->codes_at, d->tail_at};
    d->row_ntiles = (size_t)row_ntiles(d->piece.ncols);
    binade_status status =
        load(d, PART_META, d->piece.row * row_ntiles(d->t->cols) + d->piece.col / TILE,
             d->piece.nrows * d->row_ntiles, d->s->meta);
    if (status) return status;
    if ((status = load_fixed_codes(d, &nescapes))) return status;
    d->codes_at += d->piece.parts_nbytes[PART_CODES];
    d->tail_at += nescapes;
    return BINADE_OK;
}

/* After the last row both streams must be used up. */
static binade_status check_stream_ends(const struct decoding *d) {
    const struct packed_tensor *t = d->t;
    if (d->codes_at == t->parts[PART_CODES].nbytes && d->tail_at == t->parts[PART_TAIL].nbytes)
        return BINADE_OK;
    return corrupt(t, d->err,
                   "the weights end at byte %" PRIu64 " of %" PRIu64 " of .idx and byte %" PRIu64
                   " of %" PRIu64 " of .esc",
                   d->codes_at, t->parts[PART_CODES].nbytes, d->tail_at,
                   t->parts[PART_TAIL].nbytes);
}

binade_status packed_tensor_scan(struct packed_tensor *t, binade_error *err) {
    if (t->format != 1 || t->starts) return BINADE_OK;
    uint64_t nstarts = ceil_div(t->rows, piece_nrows(t->cols));
    struct decode_scratch scratch;
    binade_status status = decode_scratch_open(&scratch, err);
    if (status) return status;
    struct stream_start *starts =
        nstarts <= SIZE_MAX / sizeof *starts ? malloc((size_t)nstarts * sizeof *starts) : NULL;
    if (!starts) {
        status = fail_memory(err);
        goto done;
    }
    struct decoding d = {.t = t, .s = &scratch, .err = err};
    if ((status = walk_pieces(&d, 0, t->rows, scan_piece, starts))) goto done;
    if ((status = check_stream_ends(&d))) goto done;
    t->starts = starts;
    starts = NULL;
done:
    free(starts);
    decode_scratch_close(&scratch);
    return status;
}

struct consumer {
    use_piece use;
    void *user;
};

static binade_status decode_piece(struct decoding *d, bool ends_row, void *user) {
    const struct consumer *consumer = user;
    bool is_run = d->t->cols > PIECE_NWEIGHTS;
    binade_status status = load_raw_meta(d);
    if (status) return status;
    if (d->t->format == 1)
        status = decode_fixed(d);
    else
        status = is_run ? decode_rice_run(d, ends_row) : decode_rice_rows(d);
    return status ? status : consumer->use(consumer->user, &d->piece, d->err);
}

binade_status decode_rows(const struct packed_tensor *t, uint64_t row0, uint64_t row1,
                          struct decode_scratch *scratch, use_piece use, void *user,
                          binade_error *err) {
    struct decoding d = {.t = t, .s = scratch, .err = err};
    struct consumer consumer = {use, user};
    if (t->starts) {
        const struct stream_start *start = &t->starts[row0 / piece_nrows(t->cols)];
        d.codes_at = start->codes;
        d.tail_at = start->tail;
    }
    binade_status status = walk_pieces(&d, row0, row1, decode_piece, &consumer);
    return status || t->format != 1 || row1 != t->rows ? status : check_stream_ends(&d);
}
