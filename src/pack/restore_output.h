/* restore_output.h - where the bytes of one restored file go: written, compared, hashed. */
#ifndef BINADE_PACK_RESTORE_OUTPUT_H
#define BINADE_PACK_RESTORE_OUTPUT_H

#include "pack/restore.h"

struct restore_output {
    const struct restore_plan *plan;
    const struct restore_target *target;
    const struct entry *entries; /* of the plan's shard */
    struct progress *progress;
    uint64_t sha_pos; /* bytes of the file hashed so far; owned by whoever has the turn */
    size_t next_gap;  /* to be hashed */
};

/* Delivers and hashes the header; call it first. It and the gaps count in the progress here,
 * tensors where they are decoded. */
binade_status output_header(struct restore_output *o, binade_error *err);
/* Delivers the gaps and gives the file its length. */
binade_status output_gaps(struct restore_output *o, binade_error *err);

/* Writes and compares bytes of which the first is in `entry` and the others in it and those behind
 * it, in any order and from any thread. `other` has room for nbytes. */
binade_status output_deliver(struct restore_output *o, size_t entry, uint64_t offset,
                             const uint8_t *data, size_t nbytes, uint8_t *other, binade_error *err);
/* Hashes them, in the order of the file; the gaps before them are hashed on the way. */
binade_status output_hash(struct restore_output *o, uint64_t offset, const uint8_t *data,
                          size_t nbytes, binade_error *err);
/* Hashes the gaps behind the last tensor. */
binade_status output_end(struct restore_output *o, binade_error *err);

#endif
