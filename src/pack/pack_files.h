/* pack_files.h - what unpack and verify share: which files a pack stands for. */
#ifndef BINADE_PACK_PACK_FILES_H
#define BINADE_PACK_PACK_FILES_H

#include "pack/restore.h"
#include "pack/side_files.h"

/* Opens a pack; BINADE_E_USAGE if the checkpoint is none. */
binade_status pack_open(const char *path, const char *revision, binade_checkpoint **c,
                        binade_error *err);

/* The pack's own index against its recorded checksum. */
binade_status pack_check_index(const binade_checkpoint *c, binade_error *err);

/* The files that a pack holds as they are. */
struct copied_files {
    const char **paths;
    const struct record **records; /* [count] of the same files; NULL: none */
    size_t count;
    bool marked_config; /* config.json carries an old mark: it is not among the paths */
};

/* Plans every shard and lists the copied files; *total_nbytes is what the original holds in all.
 * What the pack's directory holds beyond that is told by a note. Free all even after a failure. */
binade_status pack_plan(const binade_checkpoint *c, struct restore_plan **plans, size_t *nplans,
                        struct copied_files *copies, struct progress *progress,
                        uint64_t *total_nbytes, binade_error *err);
void copied_files_free(struct copied_files *copies);

/* Whether the original had a file of this path. */
bool is_recorded(const struct manifest *m, const char *path);

/* BINADE_E_DATA if there is no file dir/path. */
binade_status require_file(const char *dir, const char *path, binade_error *err);

/* Reads copied file `i` as `reading` says, and checks what its record says of it. */
binade_status copied_file_read(const struct copied_files *copies, size_t i,
                               const struct side_reading *reading, binade_error *err);

#endif
