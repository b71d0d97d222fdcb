/* encode_piece.h - codes one piece of a packed tensor, before it is known where its streams go. */
#ifndef BINADE_PACK_ENCODE_PIECE_H
#define BINADE_PACK_ENCODE_PIECE_H

#include <stdbool.h>

#include "base/status.h"
#include "cpu/kernels.h"
#include "pack/piece.h"

/* One thread's buffers and what the last piece made of them. */
struct piece_scratch {
    int format;
    uint8_t *weights, *raw, *meta, *codes, *tail;
    size_t raw_nbytes, meta_nbytes, codes_nbytes, tail_nbytes;
    struct bit_sink bits; /* carries the last bits of a run over to the next of its row */
};

binade_status piece_scratch_open(struct piece_scratch *s, int format, binade_error *err);
/* Accepts a zeroed one. */
void piece_scratch_close(struct piece_scratch *s);

/* Codes nrows x ncols weights: whole rows, or one run of a long row, then nrows is 1. Row offsets
 * (format 2) count words from the start of the piece. */
void encode_piece(struct piece_scratch *s, const uint8_t rank_of[256], const uint8_t *weights,
                  uint64_t nrows, size_t ncols, bool starts_row, bool ends_row);

/* The most bytes of the codes and tail parts that a tensor can have. */
binade_status encode_bound(int format, uint64_t rows, uint64_t cols, uint64_t *codes_nbytes,
                           uint64_t *tail_nbytes, binade_error *err);

#endif
