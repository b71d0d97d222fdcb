/* text_file.h - writes a text file in pieces and checksums it on the way. */
#ifndef BINADE_BASE_TEXT_FILE_H
#define BINADE_BASE_TEXT_FILE_H

#include "base/buffer.h"
#include "base/file.h"

struct text_file {
    struct buffer text; /* append to it; then call text_file_flush */
    struct file file;
    uint64_t nbytes; /* written */
    void *hash;      /* XXH3-64 of them */
};

/* Creates dir/name, which must not exist. */
binade_status text_file_open(struct text_file *t, const char *dir, const char *name,
                             binade_error *err);
/* Writes what `text` holds if it has become large. */
binade_status text_file_flush(struct text_file *t, binade_error *err);
/* Writes the rest; *xxh3 gets the checksum of all so far. More may follow. */
binade_status text_file_checksum(struct text_file *t, uint64_t *xxh3, binade_error *err);
/* Writes the rest and syncs. */
binade_status text_file_finish(struct text_file *t, binade_error *err);
/* Accepts a finished one. */
void text_file_close(struct text_file *t);

#endif
