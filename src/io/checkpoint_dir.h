/* checkpoint_dir.h - which files a checkpoint directory holds, and which of them are its shards. */
#ifndef BINADE_IO_CHECKPOINT_DIR_H
#define BINADE_IO_CHECKPOINT_DIR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define INDEX_NAME "model.safetensors.index.json"
#define MANIFEST_NAME "binade_pack.json"

/* Relative paths; functions give them sorted by bytes, each once. */
struct path_list {
    char **paths;
    size_t count, capacity;
};

struct checkpoint_dir {
    char *path;              /* the directory, links resolved */
    bool has_index;          /* INDEX_NAME is there */
    struct path_list shards; /* the index's distinct values, or every top-level *.safetensors */
    struct path_list others; /* every other regular file, sub-directories included; the index too */
    struct path_list left_out; /* with the reason, printable: "NAME (a link to a directory)" */
};

/* Lists the directory. Refused: no shards, a listed shard that is absent, names that leave the
 * directory or are not valid UTF-8, a listed shard that does not end in .safetensors, more than 64
 * levels of directories. Links to files count as files, wherever they lead; left out are .git and
 * .cache at any depth, links to directories, and what is neither file nor directory; a link to
 * nothing is refused. Without an index, names that begin with "._" are no shards: macOS writes such
 * files, which hold no tensors, beside others. On failure *d is zeroed. */
binade_status checkpoint_dir_scan(struct checkpoint_dir *d, const char *path, binade_error *err);
/* The same for a packed checkpoint, whose index cannot name shards without tensors: these are among
 * the others, and there may be no other shard. */
binade_status checkpoint_dir_scan_pack(struct checkpoint_dir *d, const char *path,
                                       binade_error *err);
/* Makes d->others.paths[i] a shard; the others behind it move up. */
binade_status checkpoint_dir_add_shard(struct checkpoint_dir *d, size_t i, binade_error *err);
/* Accepts a zeroed directory. */
void checkpoint_dir_free(struct checkpoint_dir *d);

/* shard_index.c: the distinct values of weight_map in the index text, sorted, none if it is empty;
 * checks the text strictly (duplicate keys, values that are not strings, leave the directory or do
 * not end in .safetensors). On failure *shards is zeroed. */
binade_status index_list_shards(const char *text, size_t nbytes, const char *file,
                                struct path_list *shards, binade_error *err);

/* path_list.c. Takes over `path`, which may be NULL when the caller ran out of memory, also on
 * failure. */
binade_status path_list_add(struct path_list *l, char *path, binade_error *err);
/* Sorts, and frees all but one of equal paths. */
binade_status path_list_sort(struct path_list *l, binade_error *err);
/* Whether a sorted list holds the path. */
bool path_list_has(const struct path_list *l, const char *path);
/* Accepts a zeroed list. */
void path_list_free(struct path_list *l);

/* hub_cache.c: `model` is a directory: its path, as given (a revision is then an error); or a hub
 * id in the local Hugging Face cache: the snapshot of `revision` (NULL: main; a branch, tag, or
 * prefix of a commit with at least 4 digits). Without refs/main, which a download of a given commit
 * does not write, main is the only snapshot there is. *path is malloc'd. If neither, BINADE_E_USAGE
 * with a sentence that names the `hf download` command. */
binade_status hub_resolve(const char *model, const char *revision, char **path, binade_error *err);

#endif
