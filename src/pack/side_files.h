/* side_files.h - the files beside the shards: copied, hashed, compared. */
#ifndef BINADE_PACK_SIDE_FILES_H
#define BINADE_PACK_SIDE_FILES_H

#include "base/file.h"
#include "base/progress.h"
#include "base/sha256.h"
#include "base/staging.h"
#include "base/threads.h"

struct side_file {
    const char *path; /* relative to both directories */
    uint64_t nbytes;
    uint64_t xxh3;
    uint8_t sha256[SHA256_NBYTES];
};

enum side_digests { SIDE_XXH3 = 1, SIDE_SHA256 = 2 };

/* Reads from_dir/path whole; fills nbytes and the digests asked for; writes and syncs it to
 * out/path unless `out` is NULL; compares it with against_dir/path unless that is NULL
 * (BINADE_E_DATA names the first byte that differs). */
struct side_reading {
    const char *from_dir, *against_dir;
    const struct staging *out;
    unsigned digests;
    struct progress *progress;
};
binade_status side_file_read(const struct side_reading *x, struct side_file *f, binade_error *err);

/* The size of a regular file below a directory, links followed. */
binade_status side_file_size(const char *dir, const char *path, uint64_t *nbytes,
                             binade_error *err);

/* SHA-256 of a whole open file. Can be cancelled, but adds nothing to the progress. */
binade_status sha256_file(const struct file *f, struct progress *progress,
                          uint8_t digest[SHA256_NBYTES], binade_error *err);

#endif
