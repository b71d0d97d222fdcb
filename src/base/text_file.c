/* text_file.c - see text_file.h. */
#include "base/text_file.h"

#include <stdlib.h>
#include <xxhash.h>

enum { FLUSH_NBYTES = 1 << 20 };

binade_status text_file_open(struct text_file *t, const char *dir, const char *name,
                             binade_error *err) {
    *t = (struct text_file){.file = {.fd = -1}};
    char *path = path_join(dir, name);
    binade_status status = path ? file_create(&t->file, path, err) : fail_memory(err);
    free(path);
    if (status) return status;
    t->hash = XXH3_createState();
    if (!t->hash) return fail_memory(err);
    XXH3_64bits_reset(t->hash);
    return BINADE_OK;
}

static binade_status write_text(struct text_file *t, binade_error *err) {
    binade_status status = file_write(&t->file, t->nbytes, t->text.data, t->text.nbytes, err);
    if (status) return status;
    XXH3_64bits_update(t->hash, t->text.data, t->text.nbytes);
    t->nbytes += t->text.nbytes;
    t->text.nbytes = 0;
    return BINADE_OK;
}

binade_status text_file_flush(struct text_file *t, binade_error *err) {
    return t->text.nbytes < FLUSH_NBYTES ? BINADE_OK : write_text(t, err);
}

binade_status text_file_checksum(struct text_file *t, uint64_t *xxh3, binade_error *err) {
    binade_status status = write_text(t, err);
    *xxh3 = XXH3_64bits_digest(t->hash);
    return status;
}

binade_status text_file_finish(struct text_file *t, binade_error *err) {
    binade_status status = write_text(t, err);
    return status ? status : file_sync_close(&t->file, err);
}

void text_file_close(struct text_file *t) {
    XXH3_freeState(t->hash);
    buffer_free(&t->text);
    file_close(&t->file);
    t->hash = NULL;
}
