/* manifest.h - binade_pack.json: what marks a directory as a pack, and the records from which the
 * original files are restored and proven (docs/FORMAT.md, "The manifest").
 */
#ifndef BINADE_PACK_MANIFEST_H
#define BINADE_PACK_MANIFEST_H

#include <stdbool.h>

#include "base/sha256.h"
#include "base/status.h"
#include "io/json_reader.h"

enum record_kind {
    RECORD_COPY,  /* the pack holds the file itself, at the same path */
    RECORD_TEXT,  /* the manifest holds the file's text */
    RECORD_SHARD, /* a packed shard, the header's text and what lies between the tensors make the
                     file */
};

/* A stretch of the manifest: the contents of a JSON string, still escaped. */
struct escaped_text {
    const char *text;
    size_t nbytes;
};

/* Bytes of an original shard that belong to no tensor. */
struct gap {
    uint64_t offset, nbytes;    /* in the file */
    struct escaped_text base64; /* text NULL: zeros */
};

/* One file of the original directory. */
struct record {
    enum record_kind kind;
    char *path; /* relative; inside the directory */
    uint64_t nbytes;
    uint8_t sha256[SHA256_NBYTES];
    uint64_t xxh3; /* COPY: of the file; SHARD: of the packed shard's length and header */
    struct escaped_text text; /* TEXT: the file; SHARD: the original header without its length */
    char *shard;              /* SHARD: the packed shard's name */
    uint64_t *parts_xxh3;     /* SHARD: of each tensor of the packed shard, in file order */
    size_t nparts;
    struct gap *gaps; /* SHARD: ascending, not touching the header or each other */
    size_t ngaps;
};

struct manifest {
    int format; /* 0: not a pack */
    bool has_records;
    uint64_t index_xxh3; /* of the pack's own index */
    struct record *records;
    size_t nrecords;
    char *text; /* the whole file; records point into it */
    size_t nbytes;
};

/* Reads and checks the manifest of the directory `dir`. A directory without a mark of a pack gives
 * format 0; a mark that older packs left in config.json counts. */
binade_status manifest_read(struct manifest *m, const char *dir, binade_error *err);
void manifest_free(struct manifest *m);

/* The bytes that `t` stands for. */
binade_status escaped_text_length(const struct escaped_text *t, uint64_t *nbytes,
                                  binade_error *err);
/* The text of `t` in malloc'd memory, which must have nbytes bytes. */
binade_status escaped_text_expand(const struct escaped_text *t, uint64_t nbytes, const char *what,
                                  char **text, binade_error *err);
/* The gap's bytes in malloc'd memory; NULL in *data for zeros. */
binade_status gap_expand(const struct gap *gap, const char *what, uint8_t **data,
                         binade_error *err);

/* The format that an old pack marks in dir/config.json; 0 if there is no mark, or no JSON. */
binade_status config_read_mark(const char *dir, int *format, binade_error *err);
/* In config.json's text, which has a NUL behind it: the byte range of the member
 * "quantization_config" that marks an old pack, with the comma that goes with it; begin == end if
 * there is none. *format is set if there is one.
 */
binade_status config_find_mark(const char *text, size_t nbytes, const char *file, int *format,
                               size_t *begin, size_t *end, binade_error *err);

#endif
