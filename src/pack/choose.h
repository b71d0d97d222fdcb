/* choose.h - which tensors of a checkpoint are packed, and notes on what the choice leaves out. */
#ifndef BINADE_PACK_CHOOSE_H
#define BINADE_PACK_CHOOSE_H

#include "pack/pack_shard.h"

struct choice {
    const binade_checkpoint *source;
    const binade_pack_options *options;
    unsigned classes; /* bits 1 << class */
    int format;
    struct progress *progress; /* gets the notes */
};

/* Makes jobs[s].sizes for every shard of the source and sets `packed` in them. */
binade_status choose_tensors(const struct choice *c, struct shard_job *jobs, binade_error *err);

/* After packing: notes that tensors have grown. */
void note_growth(const struct choice *c, const struct shard_job *jobs);

/* Notes the shards that are carried whole, since the index does not list them or they lie in
 * sub-directories. */
binade_status note_other_shards(const struct choice *c, binade_error *err);

#endif
