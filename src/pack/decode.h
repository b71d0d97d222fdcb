/* decode.h - reads rows of a packed tensor, piece by piece. */
#ifndef BINADE_PACK_DECODE_H
#define BINADE_PACK_DECODE_H

#include <stdbool.h>

#include "pack/bytes.h"
#include "pack/piece.h"

/* Where a packed tensor's parts are and what they decode to. */
struct packed_tensor {
    const char *file, *name; /* for messages */
    size_t name_nbytes;
    int format;
    uint64_t rows, cols; /* both at least 1 */
    struct part_range {
        struct byte_source source;
        uint64_t offset, nbytes;
    } parts[NPARTS];
    uint8_t table[256];
    /* Format 1 stores no offsets: where the codes and the escapes of every piece_nrows(cols) rows
     * start. Made by packed_tensor_scan; NULL before. */
    struct stream_start {
        uint64_t codes, tail; /* bytes into the part */
    } * starts;
};

/* Checks that the parts' sizes fit the shape and each other, and reads the table. */
binade_status packed_tensor_open(struct packed_tensor *t, binade_error *err);

/* Format 1: finds the starts, reading meta and codes once. Nothing to do in format 2. */
binade_status packed_tensor_scan(struct packed_tensor *t, binade_error *err);
void packed_tensor_close(struct packed_tensor *t);

/* What one step of decoding read and made: nrows whole rows from `row` on, or a run of one long row
 * from column `col` on. The parts' bytes of consecutive pieces follow each other without gap or
 * overlap. */
struct decoded_piece {
    uint64_t row, nrows, col, ncols;
    bool last; /* of the rows asked for */
    const uint8_t *weights;
    size_t weights_nbytes;
    const uint8_t *parts[NPARTS]; /* raw, meta, codes and tail; the table is not part of a piece */
    size_t parts_nbytes[NPARTS];
};

/* Buffers for one thread. */
struct decode_scratch {
    uint8_t *weights, *raw, *meta, *codes, *tail;
};
binade_status decode_scratch_open(struct decode_scratch *s, binade_error *err);
void decode_scratch_close(struct decode_scratch *s);

/* Decodes rows [row0, row1) and calls `use` for each piece. In format 1 row0 is a multiple of
 * piece_nrows(cols), and others than 0 need the scan. Every row is checked to end where
 * the next begins. A failure of `use` ends the loop. `use` may point scratch->weights elsewhere
 * for the next piece. */
typedef binade_status (*use_piece)(void *user, const struct decoded_piece *piece,
                                   binade_error *err);
binade_status decode_rows(const struct packed_tensor *t, uint64_t row0, uint64_t row1,
                          struct decode_scratch *scratch, use_piece use, void *user,
                          binade_error *err);

#endif
