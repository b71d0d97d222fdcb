/* piece.h - the unit in which weights are read, coded and written: small enough for a core's cache.
 */
#ifndef BINADE_PACK_PIECE_H
#define BINADE_PACK_PIECE_H

#include <stdint.h>

#include "base/size.h"
#include "format/tile.h"

/* A multiple of TILE, so that a long row can be cut between tiles. */
enum { PIECE_NWEIGHTS = 1 << 17, PIECE_NBYTES = 2 * PIECE_NWEIGHTS };

/* The five parts of a packed tensor, in file order. */
enum part { PART_RAW, PART_TABLE, PART_META, PART_CODES, PART_TAIL, NPARTS };

/* ".raw" and so on; format 1 or 2. */
const char *part_suffix(int format, enum part part);
/* "U8", or "U32" for words. */
const char *part_dtype(int format, enum part part);

/* Rows of `cols` columns that make up a piece; 1 for longer rows, which are cut themselves. */
static inline uint64_t piece_nrows(uint64_t cols) {
    return cols >= PIECE_NWEIGHTS ? 1 : PIECE_NWEIGHTS / cols;
}

static inline uint64_t row_ntiles(uint64_t cols) {
    return ceil_div(cols, TILE);
}

#endif
