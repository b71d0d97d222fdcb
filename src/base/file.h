/* file.h - open files, whole reads and writes, paths. Every failure names the path. */
#ifndef BINADE_BASE_FILE_H
#define BINADE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

struct file {
    int fd;          /* -1: closed */
    char *path;      /* owned */
    uint64_t nbytes; /* at opening */
    int64_t mtime;   /* at opening, nanoseconds; not of created files */
};

/* Opens a regular file for reading; links are followed. */
binade_status file_open(struct file *f, const char *path, binade_error *err);
/* Creates a file that must not exist. */
binade_status file_create(struct file *f, const char *path, binade_error *err);
/* Closes; accepts a closed file {-1}. */
void file_close(struct file *f);
/* Flushes to the device, then closes: the last step of a file that must survive. */
binade_status file_sync_close(struct file *f, binade_error *err);

/* Reads exactly nbytes at `offset`; a file that became shorter is BINADE_E_IO. */
binade_status file_read(const struct file *f, uint64_t offset, void *data, size_t nbytes,
                        binade_error *err);
/* BINADE_E_IO if the size or the time of last change is not that at opening: of a file that was
 * read in more than one pass, the passes may have seen different bytes. */
binade_status file_check_unchanged(const struct file *f, binade_error *err);
/* Writes exactly nbytes at `offset`. */
binade_status file_write(const struct file *f, uint64_t offset, const void *data, size_t nbytes,
                         binade_error *err);

/* Reads a whole file into malloc'd memory with a NUL behind it; larger than `limit` is
 * BINADE_E_DATA. */
binade_status file_slurp(const char *path, uint64_t limit, char **data, size_t *nbytes,
                         binade_error *err);

/* "dir/name" in malloc'd memory, NULL when out of memory. */
char *path_join(const char *dir, const char *name);
/* The part behind the last slash. */
const char *path_base(const char *path);
bool path_is_dir(const char *path);
bool path_is_empty_dir(const char *path);
/* True for a relative path that stays inside its directory: not empty, no leading slash, no
 * component "", "." or "..", no NUL among nbytes. */
bool path_is_inside(const char *path, size_t nbytes);

#endif
