/* manifest_write.h - writes binade_pack.json. */
#ifndef BINADE_PACK_MANIFEST_WRITE_H
#define BINADE_PACK_MANIFEST_WRITE_H

#include "base/text_file.h"
#include "pack/pack_shard.h"
#include "pack/side_files.h"

struct manifest_facts {
    const binade_checkpoint *source;
    const struct pack_context *x;
    const binade_pack_report *report;
    unsigned classes;
    const struct shard_job *shards; /* [source->dir.shards.count] */
    const struct side_file *others; /* [source->dir.others.count] */
    uint64_t index_xxh3;            /* of the pack's own index */
};

/* Writes and syncs the manifest in x->out_dir. */
binade_status manifest_write(const struct manifest_facts *f, binade_error *err);

#endif
