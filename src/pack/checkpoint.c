/* checkpoint.c - see checkpoint.h. */
#include "pack/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pack/classes.h"
#include "pack/packed_names.h"

void shape_rows_cols(const struct st_tensor *t, uint64_t *rows, uint64_t *cols) {
    *rows = 1;
    *cols = t->ndim ? t->shape[t->ndim - 1] : 1;
    for (uint32_t d = 0; d + 1 < t->ndim; d++)
        *rows *= t->shape[d]; /* the header's check has found that the product fits */
}

uint64_t entry_nbytes(const struct entry *e) {
    uint64_t nbytes = e->tensor->end - e->tensor->begin;
    return e->parts ? 2 * nbytes : nbytes;
}

uint64_t entry_stored_nbytes(const struct entry *e) {
    if (!e->parts) return e->tensor->end - e->tensor->begin;
    uint64_t nbytes = 0;
    for (int p = 0; p < NPARTS; p++)
        nbytes += e->parts[p]->end - e->parts[p]->begin;
    return nbytes;
}

/* ---- Opening ----------------------------------------------------------------------------- */

static struct name name_of_entry(const void *owner, size_t i) {
    const struct entry *entries = owner;
    return (struct name){entries[i].name, entries[i].name_nbytes};
}

static binade_status open_shard(binade_checkpoint *c, size_t s, binade_error *err) {
    struct shard *shard = &c->shards[s];
    shard->name = c->dir.shards.paths[s];
    char *path = path_join(c->dir.path, shard->name);
    if (!path) return fail_memory(err);
    binade_status status = file_open(&shard->file, path, err);
    free(path);
    return status ? status : st_read_header(&shard->file, &shard->header, NULL, err);
}

/* Whether a file is a packed shard without tensors; one that cannot be read is none. */
static bool is_empty_shard(const binade_checkpoint *c, const char *name) {
    struct file f = {.fd = -1};
    struct st_header h = {0};
    char *path = path_join(c->dir.path, name);
    bool found = false;
    if (path && !file_open(&f, path, NULL) && !st_read_header(&f, &h, NULL, NULL)) {
        for (size_t i = 0; i < h.nmetadata && h.count == 0; i++)
            found = found || !strcmp(h.metadata[i].key, "binade_tensors");
    }
    st_free_header(&h);
    file_close(&f);
    free(path);
    return found;
}

/* Records say it; without them the file's own metadata has to. */
static bool is_shard_beside_index(const binade_checkpoint *c, const char *name) {
    const struct manifest *m = &c->manifest;
    for (size_t i = 0; i < m->nrecords; i++) {
        if (m->records[i].kind == RECORD_SHARD && !strcmp(m->records[i].shard, name)) return true;
    }
    return !m->has_records && is_empty_shard(c, name);
}

/* An index names shards by their tensors, so a pack's shards without tensors are not in it. */
static binade_status add_empty_shards(binade_checkpoint *c, binade_error *err) {
    for (size_t i = 0; i < c->dir.others.count;) {
        const char *name = c->dir.others.paths[i];
        if (!st_is_file_name(name, strlen(name)) || !is_shard_beside_index(c, name)) {
            i++;
            continue;
        }
        binade_status status = checkpoint_dir_add_shard(&c->dir, i, err);
        if (status) return status;
    }
    return BINADE_OK;
}

static binade_status scan(binade_checkpoint *c, const char *dir, binade_error *err) {
    if (!c->manifest.format) return checkpoint_dir_scan(&c->dir, dir, err);
    binade_status status = checkpoint_dir_scan_pack(&c->dir, dir, err);
    return status ? status : add_empty_shards(c, err);
}

/* Adds the original tensors of shard `s`, in file order. */
static binade_status add_entries(binade_checkpoint *c, size_t s, binade_error *err) {
    struct shard *shard = &c->shards[s];
    struct entry *e = c->entries + c->nentries;
    shard->entry0 = c->nentries;
    if (c->manifest.format) {
        binade_status status = packed_entries(shard->file.path, &shard->header, (uint32_t)s,
                                              c->manifest.format, e, &shard->nentries, err);
        if (status) return status;
    } else {
        shard->nentries = shard->header.count;
        for (size_t i = 0; i < shard->nentries; i++) {
            const struct st_tensor *t = &shard->header.tensors[i];
            e[i] = (struct entry){t->name, t->name_nbytes, (uint32_t)s, t, NULL};
        }
    }
    c->nentries += shard->nentries;
    return BINADE_OK;
}

static binade_status check_names(binade_checkpoint *c, binade_error *err) {
    size_t twice;
    binade_status status = find_name_twice(c->nentries, name_of_entry, c->entries, &twice, err);
    if (status) return status;
    if (twice != SIZE_MAX) {
        const struct entry *e = &c->entries[twice];
        return fail(err, BINADE_E_DATA, "%s: tensor %s: it is also in another shard",
                    quote_path(c->shards[e->shard].file.path).text,
                    quote(e->name, e->name_nbytes).text);
    }
    return name_index_build(&c->names, c->nentries, name_of_entry, c->entries, err);
}

binade_status checkpoint_open_dir(const char *dir, binade_checkpoint **out, binade_error *err) {
    *out = NULL;
    binade_checkpoint *c = calloc(1, sizeof *c);
    if (!c) return fail_memory(err);
    pthread_mutex_init(&c->starts_lock, NULL);
    binade_status status = manifest_read(&c->manifest, dir, err);
    if (status) goto failed;
    if ((status = scan(c, dir, err))) goto failed;
    size_t nshards = c->dir.shards.count, count = 0;
    c->shards = calloc(nshards + 1, sizeof *c->shards);
    if (!c->shards) {
        status = fail_memory(err);
        goto failed;
    }
    for (size_t s = 0; s < nshards; s++)
        c->shards[s].file.fd = -1;
    for (size_t s = 0; s < nshards; s++) {
        if ((status = open_shard(c, s, err))) goto failed;
        count += c->shards[s].header.count;
    }
    c->entries = calloc(count + 1, sizeof *c->entries);
    c->starts = calloc(count + 1, sizeof *c->starts);
    if (!c->entries || !c->starts) {
        status = fail_memory(err);
        goto failed;
    }
    for (size_t s = 0; s < nshards; s++) {
        if ((status = add_entries(c, s, err))) goto failed;
    }
    if ((status = check_names(c, err))) goto failed;
    *out = c;
    return BINADE_OK;
failed:
    binade_close(c);
    return status;
}

binade_status binade_open(const char *path, const char *revision, binade_checkpoint **out,
                          binade_error *err) {
    char *dir;
    *out = NULL;
    if (!path) return fail(err, BINADE_E_USAGE, "no path to open is given");
    binade_status status = hub_resolve(path, revision, &dir, err);
    if (status) return status;
    status = checkpoint_open_dir(dir, out, err);
    free(dir);
    return status;
}

void binade_close(binade_checkpoint *c) {
    if (!c) return;
    for (size_t i = 0; i < c->nentries; i++) {
        free(c->starts[i]);
        packed_entry_free(&c->entries[i]);
    }
    for (size_t s = 0; c->shards && s < c->dir.shards.count; s++) {
        st_free_header(&c->shards[s].header);
        file_close(&c->shards[s].file);
    }
    name_index_free(&c->names);
    free(c->starts);
    free(c->entries);
    free(c->shards);
    checkpoint_dir_free(&c->dir);
    manifest_free(&c->manifest);
    pthread_mutex_destroy(&c->starts_lock);
    free(c);
}

/* ---- Asking -------------------------------------------------------------------------------- */

const char *binade_path(const binade_checkpoint *c) {
    return c->dir.path;
}
int binade_format(const binade_checkpoint *c) {
    return c->manifest.format;
}
int binade_has_records(const binade_checkpoint *c) {
    return c->manifest.has_records;
}
size_t binade_count(const binade_checkpoint *c) {
    return c->nentries;
}

void binade_get(const binade_checkpoint *c, size_t i, binade_tensor *out) {
    const struct entry *e = &c->entries[i];
    struct st_tensor original = *e->tensor;
    original.name = e->name;
    original.name_nbytes = e->name_nbytes;
    if (e->parts) original.dtype = "BF16";
    *out = (binade_tensor){
        .name = e->name,
        .name_nbytes = e->name_nbytes,
        .dtype = original.dtype,
        .ndim = original.ndim,
        .shape = original.shape,
        .nbytes = entry_nbytes(e),
        .stored_nbytes = entry_stored_nbytes(e),
        .packed = e->parts != NULL,
        .cls = classify(&original),
        .file = c->shards[e->shard].name,
    };
    shape_rows_cols(&original, &out->rows, &out->cols);
}

size_t binade_find(const binade_checkpoint *c, const char *name, size_t name_nbytes) {
    return name_index_find(&c->names, name_of_entry, c->entries, (struct name){name, name_nbytes});
}

binade_status checkpoint_locate(const binade_checkpoint *c, size_t i, struct packed_tensor *t,
                                binade_error *err) {
    const struct entry *e = &c->entries[i];
    const struct shard *shard = &c->shards[e->shard];
    *t = (struct packed_tensor){
        .file = shard->file.path,
        .name = e->name,
        .name_nbytes = e->name_nbytes,
        .format = c->manifest.format,
    };
    shape_rows_cols(e->tensor, &t->rows, &t->cols);
    for (int p = 0; p < NPARTS; p++) {
        const struct st_tensor *part = e->parts[p];
        t->parts[p] = (struct part_range){{.file = &shard->file},
                                          8 + shard->header.header_nbytes + part->begin,
                                          part->end - part->begin};
    }
    return packed_tensor_open(t, err);
}

binade_status checkpoint_describe(const binade_checkpoint *c, size_t i, struct packed_tensor *t,
                                  binade_error *err) {
    /* The starts are a cache: filling it does not change what the checkpoint is. */
    binade_checkpoint *cache = (binade_checkpoint *)c;
    binade_status status = checkpoint_locate(c, i, t, err);
    if (status || t->format != 1) return status;

    pthread_mutex_lock(&cache->starts_lock);
    t->starts = c->starts[i];
    pthread_mutex_unlock(&cache->starts_lock);
    if (t->starts) return BINADE_OK;
    if ((status = packed_tensor_scan(t, err))) return status;
    pthread_mutex_lock(&cache->starts_lock);
    if (c->starts[i]) { /* another thread was faster */
        free(t->starts);
        t->starts = c->starts[i];
    }
    c->starts[i] = t->starts;
    pthread_mutex_unlock(&cache->starts_lock);
    return BINADE_OK;
}
