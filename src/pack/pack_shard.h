/* pack_shard.h - packs one shard of a checkpoint. */
#ifndef BINADE_PACK_PACK_SHARD_H
#define BINADE_PACK_PACK_SHARD_H

#include "base/progress.h"
#include "base/sha256.h"
#include "base/threads.h"
#include "pack/checkpoint.h"
#include "pack/shard_header.h"

struct shard_job {
    const struct shard *source;
    const char *out_name; /* of the packed shard, relative to the output */
    /* By tensor of the source's header; `packed` is set by the caller. */
    struct packed_size *sizes;

    /* Results. */
    uint64_t *parts_xxh3; /* of the packed shard's tensors in file order */
    size_t nparts;
    uint64_t header_xxh3, out_nbytes;
    uint8_t sha256[SHA256_NBYTES]; /* of the source: filled by the hashing job */
};

struct pack_context {
    int format;
    bool records; /* compute checksums */
    const char *out_dir;
    struct pool *pool;
    struct progress *progress;
};

/* Writes and syncs out_dir/out_name, whose folder must be there. */
binade_status pack_shard(const struct pack_context *x, struct shard_job *job, binade_error *err);

void shard_job_free(struct shard_job *job);

#endif
