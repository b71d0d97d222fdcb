/* packed_names.c - see packed_names.h. */
#include "pack/packed_names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "io/json_reader.h"

struct matching {
    const char *file;
    struct st_header *h;
    int format;
    struct entry *packed; /* [npacked], in the metadata's order */
    size_t npacked;
    size_t *owner; /* [h->count]: 1 + packed index for a raw part */
    bool *is_part; /* [h->count] */
    struct buffer name;
    binade_error *err;
};

static binade_status bad_part(const struct matching *m, const struct json_string *name,
                              enum part part, const char *what) {
    return fail(m->err, BINADE_E_DATA, "%s: tensor %s: its part %s %s", quote_path(m->file).text,
                quote(name->text, name->nbytes).text, part_suffix(m->format, part), what);
}

static binade_status find_part(struct matching *m, const struct json_string *name, enum part part,
                               size_t *index) {
    const char *suffix = part_suffix(m->format, part);
    m->name.nbytes = 0;
    binade_status status = buffer_put(&m->name, name->text, name->nbytes, m->err);
    if (!status) status = buffer_put(&m->name, suffix, strlen(suffix), m->err);
    if (status) return status;
    *index = st_find(m->h, m->name.data, m->name.nbytes);
    if (*index == SIZE_MAX) return bad_part(m, name, part, "is absent");
    const struct st_tensor *t = &m->h->tensors[*index];
    if (strcmp(t->dtype, part_dtype(m->format, part)))
        return bad_part(m, name, part, "has the wrong dtype");
    if (part != PART_RAW && t->ndim != 1) return bad_part(m, name, part, "is not 1-D");
    if (m->is_part[*index]) return bad_part(m, name, part, "belongs to another tensor too");
    m->is_part[*index] = true;
    return BINADE_OK;
}

/* Reads [r, k] or [e, r, k] and compares it with the raw part's shape. */
static void read_shape(struct json_reader *r, const struct st_tensor *raw) {
    uint32_t ndim = 0;
    bool same = true;
    uint64_t dim;
    json_enter_array(r);
    while (json_next_element(r) && json_read_u64(r, &dim)) {
        same = same && ndim < raw->ndim && raw->shape[ndim] == dim;
        ndim++;
    }
    if (!same || ndim != raw->ndim)
        json_fail(r, "binade_tensors gives tensor %s another shape than its raw part has",
                  quote(raw->name, raw->name_nbytes).text);
}

static binade_status add_packed(struct matching *m, const struct json_string *name) {
    struct entry *e = &m->packed[m->npacked];
    size_t index[NPARTS];
    for (int p = 0; p < NPARTS; p++) {
        binade_status status = find_part(m, name, p, &index[p]);
        if (status) return status;
    }
    char *copy = malloc(name->nbytes + 1);
    e->parts = malloc(NPARTS * sizeof *e->parts);
    if (!copy || !e->parts) {
        free(copy);
        free(e->parts);
        e->parts = NULL;
        return fail_memory(m->err);
    }
    memcpy(copy, name->text, name->nbytes + 1);
    e->name = copy;
    e->name_nbytes = (uint32_t)name->nbytes;
    for (int p = 0; p < NPARTS; p++)
        e->parts[p] = &m->h->tensors[index[p]];
    e->tensor = e->parts[PART_RAW];
    m->owner[index[PART_RAW]] = ++m->npacked;
    return BINADE_OK;
}

static binade_status read_packed(struct matching *m) {
    const struct st_metadata *list = NULL;
    for (size_t i = 0; i < m->h->nmetadata; i++) {
        if (!strcmp(m->h->metadata[i].key, "binade_tensors")) list = &m->h->metadata[i];
    }
    if (!list)
        return fail(m->err, BINADE_E_DATA,
                    "%s: its metadata has no binade_tensors, although the directory is a pack",
                    quote_path(m->file).text);
    struct json_reader r;
    struct json_string name;
    json_open(&r, list->value, list->value_nbytes, m->file, m->err);
    json_enter_object(&r);
    while (json_next_key(&r, &name)) {
        if (m->npacked == m->h->count / NPARTS) {
            json_fail(&r, "binade_tensors names more tensors than the shard has parts for");
            break;
        }
        binade_status status = add_packed(m, &name);
        if (status) {
            json_stop(&r, status);
            break;
        }
        read_shape(&r, m->packed[m->npacked - 1].tensor);
    }
    json_end(&r);
    return json_close(&r);
}

binade_status packed_entries(const char *file, struct st_header *h, uint32_t shard, int format,
                             struct entry *entries, size_t *nentries, binade_error *err) {
    struct matching m = {.file = file, .h = h, .format = format, .err = err};
    size_t count = 0;
    *nentries = 0;
    binade_status status = st_build_lookup(h, err);
    if (status) return status;
    m.packed = calloc(h->count / NPARTS + 1, sizeof *m.packed);
    m.owner = calloc(h->count + 1, sizeof *m.owner);
    m.is_part = calloc(h->count + 1, sizeof *m.is_part);
    status = m.packed && m.owner && m.is_part ? read_packed(&m) : fail_memory(err);
    for (size_t i = 0; i < h->count && !status; i++) {
        const struct st_tensor *t = &h->tensors[i];
        if (m.owner[i])
            entries[count] = m.packed[m.owner[i] - 1];
        else if (!m.is_part[i])
            entries[count] = (struct entry){t->name, t->name_nbytes, 0, t, NULL};
        else
            continue;
        entries[count++].shard = shard;
    }
    for (size_t i = 0; i < m.npacked && status; i++)
        packed_entry_free(&m.packed[i]);
    *nentries = count;
    buffer_free(&m.name);
    free(m.is_part);
    free(m.owner);
    free(m.packed);
    return status;
}

void packed_entry_free(struct entry *e) {
    if (!e->parts) return;
    free((char *)e->name);
    free(e->parts);
    e->parts = NULL;
}
