/* shard_header.h - the header of a packed shard, as docs/FORMAT.md lays it out. */
#ifndef BINADE_PACK_SHARD_HEADER_H
#define BINADE_PACK_SHARD_HEADER_H

#include <stdbool.h>

#include "base/buffer.h"
#include "io/safetensors.h"

/* What packing made of one tensor of the source's header. */
struct packed_size {
    bool packed;
    unsigned ndistinct; /* exponents that occur; packed only, as what follows */
    uint64_t codes_nbytes, tail_nbytes;
};

/* Bytes of all parts of a packed tensor. */
uint64_t packed_nbytes(const struct st_tensor *t, const struct packed_size *size);

struct shard_layout {
    int format;
    const struct st_header *source;
    const struct packed_size *sizes; /* [source->count] */
    uint64_t
        header_nbytes; /* of the packed shard, without the 8 bytes before it; the caller's choice */
    uint64_t data_nbytes;
};

/* Appends the header's JSON text, without padding, and sets l->data_nbytes. */
binade_status layout_put_header(struct shard_layout *l, struct buffer *text, binade_error *err);

/* The length that is reserved for the header before the sizes are known: enough unless names are
 * long and not ASCII. */
binade_status layout_reserve(const struct shard_layout *l, uint64_t *nbytes, binade_error *err);

#endif
