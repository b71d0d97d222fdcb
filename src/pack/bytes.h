/* bytes.h - where weights and parts are read from and written to: an open file or memory.
 *
 * Files are read with pread, never mapped: a file that shrinks meanwhile is then an error
 * to report, not a signal.
 */
#ifndef BINADE_PACK_BYTES_H
#define BINADE_PACK_BYTES_H

#include <string.h>

#include "base/file.h"

struct byte_source {
    const struct file *file; /* NULL: memory */
    const uint8_t *memory;
};

struct byte_sink {
    const struct file *file; /* NULL: memory */
    uint8_t *memory;
};

/* Points *view at nbytes from `offset`: into the memory, or into `scratch`, which is filled. */
static inline binade_status bytes_view(const struct byte_source *s, uint64_t offset, size_t nbytes,
                                       uint8_t *scratch, const uint8_t **view, binade_error *err) {
    *view = s->file ? scratch : s->memory + offset;
    return s->file ? file_read(s->file, offset, scratch, nbytes, err) : BINADE_OK;
}

/* Copies nbytes from `offset` into `data`. */
static inline binade_status bytes_read(const struct byte_source *s, uint64_t offset, size_t nbytes,
                                       uint8_t *data, binade_error *err) {
    if (s->file) return file_read(s->file, offset, data, nbytes, err);
    if (nbytes) memcpy(data, s->memory + offset, nbytes);
    return BINADE_OK;
}

static inline binade_status bytes_write(const struct byte_sink *s, uint64_t offset,
                                        const uint8_t *data, size_t nbytes, binade_error *err) {
    if (s->file) return nbytes ? file_write(s->file, offset, data, nbytes, err) : BINADE_OK;
    if (nbytes) memcpy(s->memory + offset, data, nbytes);
    return BINADE_OK;
}

#endif
