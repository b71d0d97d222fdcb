/* packed_names.h - which parts in a packed shard belong to which original tensor. */
#ifndef BINADE_PACK_PACKED_NAMES_H
#define BINADE_PACK_PACKED_NAMES_H

#include "pack/checkpoint.h"

/* Fills `entries` (room for h->count) with the original tensors of a packed shard in file order.
 * The shard's metadata names the packed ones with their shapes; each must have its five parts with
 * the right dtypes, `raw` in that shape. */
binade_status packed_entries(const char *file, struct st_header *h, uint32_t shard, int format,
                             struct entry *entries, size_t *nentries, binade_error *err);

/* Frees what packed_entries allocated for an entry; does nothing to a carried one. */
void packed_entry_free(struct entry *e);

#endif
