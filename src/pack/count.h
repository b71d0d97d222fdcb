/* count.h - the first pass over a tensor: how often each exponent occurs. */
#ifndef BINADE_PACK_COUNT_H
#define BINADE_PACK_COUNT_H

#include "base/threads.h"
#include "pack/bytes.h"

struct count_item {
    uint64_t src_offset, nweights;
    uint64_t counts[256]; /* result */
};

/* Counts all items of one source, piece by piece on all threads. */
binade_status count_items(struct pool *pool, const struct byte_source *source,
                          struct count_item *items, size_t nitems, binade_error *err);

#endif
