/* safetensors.h - reads and checks the header of one safetensors file. */
#ifndef BINADE_IO_SAFETENSORS_H
#define BINADE_IO_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

/* Larger headers are refused: 512 MiB, five times the 100,000,000 bytes that MLX and the Rust
 * reader take. */
#define ST_HEADER_MAX_NBYTES ((uint64_t)512 << 20)
/* Other readers refuse longer headers. */
#define ST_HEADER_PORTABLE_NBYTES ((uint64_t)100000000)

struct st_tensor {
    const char *name; /* unescaped, NUL-terminated, may hold NULs */
    uint32_t name_nbytes;
    uint32_t ndim;
    const uint64_t *shape; /* [ndim] */
    const char *dtype;     /* as written; holds no NUL */
    uint64_t begin, end;   /* bytes, relative to the data section */
};

struct st_header {
    uint64_t header_nbytes; /* the JSON text's length with its padding; data starts 8 bytes later */
    uint64_t data_nbytes;   /* from there to the end of the file */
    size_t count;
    struct st_tensor *tensors; /* in file order: by begin, equal begins in header order */
    /* The members of __metadata__ in header order, NUL-terminated pairs; lengths beside them. */
    size_t nmetadata;
    struct st_metadata {
        const char *key, *value;
        size_t key_nbytes, value_nbytes;
    } * metadata;
    struct arena *arena;       /* owns every string and shape */
    struct name_index *lookup; /* by name, once it is built */
};

/* Reads the header of the open file `f` (f->path names it in messages) and checks everything about
 * it: length, JSON, duplicate, unknown and missing keys, integers, products of shapes, shape
 * against data_offsets where the dtype is known (sub-byte F4, F6 included), offsets within the
 * file, no overlap. Gaps and trailing bytes are allowed. A tensor without bytes overlaps nothing
 * and may lie anywhere, so `end` may exceed the next `begin` where the next tensor is empty. On
 * failure *h is zeroed. If `text` is not NULL it gets the header text (malloc, header_nbytes bytes;
 * the caller frees). */
binade_status st_read_header(const struct file *f, struct st_header *h, char **text,
                             binade_error *err);
/* The same for header text already in memory, against a file of file_nbytes bytes. */
binade_status st_parse_header(const char *text, uint64_t header_nbytes, uint64_t file_nbytes,
                              const char *file, struct st_header *h, binade_error *err);
/* Accepts a zeroed header. */
void st_free_header(struct st_header *h);

/* Does a path end as the names of safetensors files do? */
bool st_is_file_name(const char *path, size_t nbytes);

/* The 8 bytes in front of a header: its length. */
void st_put_length(uint64_t header_nbytes, uint8_t bytes[8]);

/* Bits of one element of a dtype, or 0 if it is not known. */
unsigned st_dtype_nbits(const char *dtype);

/* The index of a name among h->tensors, or SIZE_MAX. Needs st_build_lookup once before. */
binade_status st_build_lookup(struct st_header *h, binade_error *err);
size_t st_find(const struct st_header *h, const char *name, size_t name_nbytes);

#endif
