/* encode_piece.c - see encode_piece.h. */
#include "pack/encode_piece.h"

#include <stdlib.h>

binade_status encode_bound(int format, uint64_t rows, uint64_t cols, uint64_t *codes_nbytes,
                           uint64_t *tail_nbytes, binade_error *err) {
    uint64_t row_nbytes;
    bool bad;
    if (format == 1) {
        bad = mul_overflows(row_ntiles(cols), TILE, &row_nbytes) ||
              mul_overflows(rows, cols, tail_nbytes);
    } else {
        bad = mul_overflows(cols, RICE_TILE_MAX_NBITS / TILE, &row_nbytes) ||
              mul_overflows(rows, 4, tail_nbytes);
        row_nbytes = 4 * ceil_div(row_nbytes, 32);
    }
    if (bad || mul_overflows(rows, row_nbytes, codes_nbytes) ||
        add_overflows(*codes_nbytes, STREAM_SLACK, codes_nbytes) ||
        add_overflows(*tail_nbytes, STREAM_SLACK, tail_nbytes) || *codes_nbytes > SIZE_MAX / 2 ||
        *tail_nbytes > SIZE_MAX / 2)
        return fail(err, BINADE_E_USAGE, "a weight of %llu x %llu is too large",
                    (unsigned long long)rows, (unsigned long long)cols);
    return BINADE_OK;
}

binade_status piece_scratch_open(struct piece_scratch *s, int format, binade_error *err) {
    /* Rows may be single weights: a tile, a word of bits and a row offset for each. */
    size_t ntiles = PIECE_NWEIGHTS;
    size_t rice_nbytes = PIECE_NWEIGHTS / TILE * (RICE_TILE_MAX_NBITS / 8) + 4 * ntiles;
    *s = (struct piece_scratch){
        .format = format,
        .weights = malloc(PIECE_NBYTES),
        .raw = malloc(PIECE_NWEIGHTS),
        .meta = malloc(ntiles),
        .codes = malloc((format == 1 ? TILE * ntiles : rice_nbytes) + STREAM_SLACK),
        .tail = malloc(4 * ntiles + STREAM_SLACK),
    };
    return s->weights && s->raw && s->meta && s->codes && s->tail ? BINADE_OK : fail_memory(err);
}

void piece_scratch_close(struct piece_scratch *s) {
    free(s->weights);
    free(s->raw);
    free(s->meta);
    free(s->codes);
    free(s->tail);
}

void encode_piece(struct piece_scratch *s, const uint8_t rank_of[256], const uint8_t *weights,
                  uint64_t nrows, size_t ncols, bool starts_row, bool ends_row) {
    const struct cpu_kernels *kernels = cpu_kernels();
    size_t ntiles = (size_t)row_ntiles(ncols);
    uint8_t *codes = s->codes, *tail = s->tail;

    if (starts_row) s->bits = (struct bit_sink){0};
    s->bits.next = codes;
    for (uint64_t r = 0; r < nrows; r++) {
        const uint8_t *row = weights + 2 * r * ncols;
        uint8_t *raw = s->raw + r * ncols, *meta = s->meta + r * ntiles;
        if (s->format == 1) {
            kernels->fixed_encode(row, ncols, rank_of, raw, meta, &codes, &tail);
            continue;
        }
        if (starts_row) {
            store_le32(tail, (uint32_t)((s->bits.next - s->codes) / 4));
            tail += 4;
        }
        kernels->rice_encode(row, ncols, rank_of, raw, meta, &s->bits);
        if (ends_row) bit_sink_end_row(&s->bits);
    }
    if (s->format == 2) codes = s->bits.next;
    s->raw_nbytes = (size_t)nrows * ncols;
    s->meta_nbytes = (size_t)nrows * ntiles;
    s->codes_nbytes = (size_t)(codes - s->codes);
    s->tail_nbytes = (size_t)(tail - s->tail);
}
