/* checkpoint.h - an open checkpoint, packed or not: the files, their headers, and the original
 * tensors. */
#ifndef BINADE_PACK_CHECKPOINT_H
#define BINADE_PACK_CHECKPOINT_H

#include <pthread.h>

#include "io/checkpoint_dir.h"
#include "io/name_index.h"
#include "io/safetensors.h"
#include "pack/decode.h"
#include "pack/manifest.h"

struct shard {
    const char *name; /* relative to the directory */
    struct file file;
    struct st_header header;
    size_t entry0, nentries; /* of its tensors, in file order */
};

/* One original tensor. */
struct entry {
    const char *name;
    uint32_t name_nbytes;
    uint32_t shard;
    const struct st_tensor
        *tensor; /* carried: itself; packed: its raw part, with the original shape */
    const struct st_tensor **parts; /* [NPARTS]; NULL: carried */
};

struct binade_checkpoint {
    struct checkpoint_dir dir;
    struct manifest manifest; /* format 0: not a pack */
    struct shard *shards;     /* [dir.shards.count] */
    struct entry *entries;
    size_t nentries;
    struct name_index names; /* of entries */
    pthread_mutex_t starts_lock;
    struct stream_start **starts; /* [nentries], format 1: made at the first read */
};

/* R x K of a shape, K the last dimension; 1 x 1 for a scalar. */
void shape_rows_cols(const struct st_tensor *t, uint64_t *rows, uint64_t *cols);

/* Bytes of the original tensor and of what is stored for it. */
uint64_t entry_nbytes(const struct entry *e);
uint64_t entry_stored_nbytes(const struct entry *e);

/* Describes packed entry `i`: its table is read, but no streams. */
binade_status checkpoint_locate(const binade_checkpoint *c, size_t i, struct packed_tensor *t,
                                binade_error *err);

/* The same for decoding: in format 1 its streams are scanned once. Nothing to close: the starts
 * stay the checkpoint's. */
binade_status checkpoint_describe(const binade_checkpoint *c, size_t i, struct packed_tensor *t,
                                  binade_error *err);

/* Opens a directory that hub_resolve gave. */
binade_status checkpoint_open_dir(const char *dir, binade_checkpoint **out, binade_error *err);

#endif
