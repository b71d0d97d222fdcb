/* spool.c - see spool.h. */
#include "pack/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void spool_open(struct spool *s, const char *dir) {
    *s = (struct spool){.dir = dir, .file = {.fd = -1}};
}

static binade_status open_nameless(struct spool *s, binade_error *err) {
    char *path = path_join(s->dir, ".spool-XXXXXX");
    if (!path) return fail_memory(err);
    int fd = mkstemp(path);
    int code = errno;
    if (fd < 0) {
        free(path);
        return fail_errno(err, code, "%s: cannot make a temporary file", quote_path(s->dir).text);
    }
    unlink(path);
    s->file = (struct file){.fd = fd, .path = path};
    return BINADE_OK;
}

static binade_status spill(struct spool *s, binade_error *err) {
    binade_status status = s->file.fd < 0 ? open_nameless(s, err) : BINADE_OK;
    if (status) return status;
    status = file_write(&s->file, s->file.nbytes, s->memory.data, s->memory.nbytes, err);
    if (status) return status;
    s->file.nbytes += s->memory.nbytes;
    s->memory.nbytes = 0;
    return BINADE_OK;
}

binade_status spool_put(struct spool *s, const void *data, size_t nbytes, binade_error *err) {
    binade_status status = buffer_put(&s->memory, data, nbytes, err);
    if (status) return status;
    s->nbytes += nbytes;
    return s->dir && s->memory.nbytes > SPOOL_MEMORY_NBYTES / 2 ? spill(s, err) : BINADE_OK;
}

binade_status spool_get(const struct spool *s, uint64_t offset, void *data, size_t nbytes,
                        binade_error *err) {
    size_t from_file = 0;
    if (offset < s->file.nbytes) {
        uint64_t left = s->file.nbytes - offset;
        from_file = nbytes < left ? nbytes : (size_t)left;
        binade_status status = file_read(&s->file, offset, data, from_file, err);
        if (status) return status;
    }
    if (nbytes > from_file)
        memcpy((char *)data + from_file, s->memory.data + (offset + from_file - s->file.nbytes),
               nbytes - from_file);
    return BINADE_OK;
}

void spool_clear(struct spool *s) {
    file_close(&s->file);
    s->memory.nbytes = 0;
    s->nbytes = 0;
}

void spool_close(struct spool *s) {
    file_close(&s->file);
    buffer_free(&s->memory);
    s->nbytes = 0;
}
