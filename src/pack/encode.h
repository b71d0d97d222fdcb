/* encode.h - turns tensors into what a packed shard holds, on all threads, in bounded memory.
 *
 * Items are laid out one behind the other. Each packed tensor is read twice: to count its
 * exponents, then to code it. Where the pieces of a stream go depends on the length of all before
 * them, so a piece is coded first, then takes its turn to learn its place, then is written.
 */
#ifndef BINADE_PACK_ENCODE_H
#define BINADE_PACK_ENCODE_H

#include <stdbool.h>

#include "base/progress.h"
#include "base/threads.h"
#include "cpu/kernels.h"
#include "pack/bytes.h"
#include "pack/piece.h"

struct encode_item {
    const char *name; /* for messages */
    size_t name_nbytes;
    uint64_t src_offset, src_nbytes;
    bool packed;         /* false: carried byte for byte */
    uint64_t rows, cols; /* of a packed tensor; rows * cols * 2 == src_nbytes > 0 */

    /* Results. */
    uint64_t codes_nbytes, tail_nbytes; /* of a packed tensor */
    unsigned ndistinct;                 /* exponents that occur */
    uint64_t checksums[NPARTS];         /* XXH3-64 of each part; [0] of a carried tensor */
};

struct encoder {
    int format;
    struct byte_source source;
    struct byte_sink sink;     /* used unless `dry` or `parts` */
    const binade_parts *parts; /* write the one packed item here instead; NULL: to the sink */
    const char *spool_dir;     /* NULL: the last part waits in memory */
    bool dry;                  /* only find the sizes: write nothing, compute no checksum */
    bool checksums;
    struct pool *pool;
    struct progress *progress;

    uint64_t pos; /* where the next item goes in the sink; starts where the caller sets it */
};

/* Codes the items in order; may be called again for the items that follow. Items that are carried
 * and lie one behind the other in the source are moved together. */
binade_status encode_items(struct encoder *e, struct encode_item *items, size_t nitems,
                           binade_error *err);

#endif
