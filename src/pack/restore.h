/* restore.h - turns a packed shard back into the original file's bytes, for unpack and verify.
 *
 * Pieces are decoded in parallel; in turns, in the order of the original file, their checksums and
 * the SHA-256 of the original are taken.
 */
#ifndef BINADE_PACK_RESTORE_H
#define BINADE_PACK_RESTORE_H

#include "base/progress.h"
#include "base/sha256.h"
#include "base/threads.h"
#include "pack/checkpoint.h"

/* What one original shard is made of. */
struct restore_plan {
    const char *path;               /* of the original file, relative */
    const struct shard *shard;      /* the packed one */
    const struct record *record;    /* NULL: none */
    char *header;                   /* the original header text */
    uint64_t header_nbytes, nbytes; /* of it, and of the whole original file */
    uint64_t *offsets; /* [shard->nentries] where each entry goes in the original file */
};

/* From the record: checks that header, tensors and gaps make up the whole file, and that each
 * tensor is in the packed shard with the same dtype and shape. */
binade_status restore_plan_recorded(const binade_checkpoint *c, const struct record *record,
                                    struct restore_plan *plan, binade_error *err);
/* Without records: tensors back to back behind a new header. */
binade_status restore_plan_new(const binade_checkpoint *c, const struct shard *shard,
                               struct restore_plan *plan, binade_error *err);
void restore_plan_free(struct restore_plan *plan);

/* Where the restored bytes go; each may be left out. */
struct restore_target {
    const struct file *out;     /* write them here */
    const struct file *against; /* compare them with this */
    struct sha256 *sha;         /* hash them in order */
};

/* Restores everything; with a record checks every checksum of the packed shard. */
binade_status restore_shard(const binade_checkpoint *c, const struct restore_plan *plan,
                            const struct restore_target *target, struct pool *pool,
                            struct progress *progress, binade_error *err);

#endif
