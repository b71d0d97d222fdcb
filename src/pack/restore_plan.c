/* restore_plan.c - what an original shard is made of; see restore.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/json_writer.h"
#include "pack/restore.h"

static const struct shard *find_shard(const binade_checkpoint *c, const char *name) {
    for (size_t s = 0; s < c->dir.shards.count; s++) {
        if (!strcmp(c->shards[s].name, name)) return &c->shards[s];
    }
    return NULL;
}

/* Finds the entry's place in the original header `h`. */
static binade_status place_entry(const struct restore_plan *plan, const struct st_header *h,
                                 const struct entry *e, uint64_t *offset, binade_error *err) {
    size_t i = st_find(h, e->name, e->name_nbytes);
    const char *path = plan->shard->file.path;
    if (i == SIZE_MAX)
        return fail(err, BINADE_E_DATA, "%s: tensor %s: the recorded original has no such tensor",
                    quote_path(path).text, quote(e->name, e->name_nbytes).text);
    const struct st_tensor *t = &h->tensors[i];
    bool same = !strcmp(t->dtype, e->parts ? "BF16" : e->tensor->dtype) &&
                t->ndim == e->tensor->ndim && t->end - t->begin == entry_nbytes(e);
    for (uint32_t d = 0; same && d < t->ndim; d++)
        same = t->shape[d] == e->tensor->shape[d];
    if (!same)
        return fail(err, BINADE_E_DATA,
                    "%s: tensor %s: dtype, shape or size are not those of the recorded original",
                    quote_path(path).text, quote(e->name, e->name_nbytes).text);
    *offset = 8 + h->header_nbytes + t->begin;
    return BINADE_OK;
}

/* The recorded gaps must be exactly what no tensor covers. */
static binade_status check_gaps(const struct restore_plan *plan, const struct st_header *h,
                                binade_error *err) {
    const struct record *rec = plan->record;
    uint64_t at = 8 + h->header_nbytes, data = at;
    size_t g = 0;
    for (size_t i = 0; i <= h->count; i++) {
        const struct st_tensor *t = i < h->count ? &h->tensors[i] : NULL;
        if (t && t->begin == t->end) continue;
        uint64_t next = t ? data + t->begin : plan->nbytes;
        for (; g < rec->ngaps && at < next && rec->gaps[g].offset == at; g++) {
            uint64_t nbytes = rec->gaps[g].nbytes;
            if (nbytes == 0 || nbytes > next - at) break;
            at += nbytes;
        }
        if (at != next) break;
        if (t) at = data + t->end;
    }
    if (at == plan->nbytes && g == rec->ngaps) return BINADE_OK;
    return fail(err, BINADE_E_DATA, "%s: the record does not say what is at byte %" PRIu64,
                quote_path(plan->path).text, at);
}

binade_status restore_plan_recorded(const binade_checkpoint *c, const struct record *record,
                                    struct restore_plan *plan, binade_error *err) {
    struct st_header h = {0};
    *plan = (struct restore_plan){.path = record->path, .record = record, .nbytes = record->nbytes};
    plan->shard = find_shard(c, record->shard);
    if (!plan->shard)
        return fail(err, BINADE_E_DATA, "%s: the shard %s that %s was packed into is absent",
                    quote_path(c->dir.path).text, quote_path(record->shard).text,
                    quote_path(record->path).text);
    if (record->nparts != plan->shard->header.count)
        return fail(err, BINADE_E_DATA, "%s: has %zu tensors, %zu are recorded",
                    quote_path(plan->shard->file.path).text, plan->shard->header.count,
                    record->nparts);
    binade_status status = escaped_text_length(&record->text, &plan->header_nbytes, err);
    if (!status)
        status = escaped_text_expand(&record->text, plan->header_nbytes, record->path,
                                     &plan->header, err);
    if (!status)
        status =
            st_parse_header(plan->header, plan->header_nbytes, plan->nbytes, record->path, &h, err);
    if (!status) status = st_build_lookup(&h, err);
    plan->offsets = malloc((plan->shard->nentries + 1) * sizeof *plan->offsets);
    if (!status && !plan->offsets) status = fail_memory(err);
    if (!status && h.count != plan->shard->nentries)
        status = fail(err, BINADE_E_DATA, "%s: holds %zu tensors, the recorded original has %zu",
                      quote_path(plan->shard->file.path).text, plan->shard->nentries, h.count);
    const struct entry *entries = c->entries + plan->shard->entry0;
    for (size_t i = 0; i < plan->shard->nentries && !status; i++)
        status = place_entry(plan, &h, &entries[i], &plan->offsets[i], err);
    if (!status) status = check_gaps(plan, &h, err);
    st_free_header(&h);
    return status;
}

static binade_status put_new_entry(struct buffer *b, const struct entry *e, uint64_t begin,
                                   uint64_t end, binade_error *err) {
    binade_status status = json_put_string(b, e->name, e->name_nbytes, err);
    if (!status) status = buffer_put_text(b, err, ":{\"dtype\":");
    const char *dtype = e->parts ? "BF16" : e->tensor->dtype;
    if (!status) status = json_put_string(b, dtype, strlen(dtype), err);
    if (!status) status = buffer_put_text(b, err, ",\"shape\":[");
    for (uint32_t d = 0; d < e->tensor->ndim && !status; d++)
        status = buffer_put_text(b, err, "%s%" PRIu64, d ? "," : "", e->tensor->shape[d]);
    if (status) return status;
    return buffer_put_text(b, err, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

binade_status restore_plan_new(const binade_checkpoint *c, const struct shard *shard,
                               struct restore_plan *plan, binade_error *err) {
    struct buffer b = {0};
    uint64_t at = 0;
    const struct entry *entries = c->entries + shard->entry0;
    *plan = (struct restore_plan){.path = shard->name, .shard = shard};
    plan->offsets = malloc((shard->nentries + 1) * sizeof *plan->offsets);
    if (!plan->offsets) return fail_memory(err);
    /* Transformers refuses files whose metadata names no framework. */
    binade_status status = buffer_put_text(&b, err, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < shard->nentries && !status; i++) {
        uint64_t end = at + entry_nbytes(&entries[i]);
        plan->offsets[i] = at;
        status = buffer_put(&b, ",", 1, err);
        if (!status) status = put_new_entry(&b, &entries[i], at, end, err);
        at = end;
    }
    if (!status) status = buffer_put(&b, "}", 1, err);
    while (!status && b.nbytes % 8) /* the writers of the format align the data */
        status = buffer_put(&b, " ", 1, err);
    if (status) {
        buffer_free(&b);
        return status;
    }
    plan->header = b.data;
    plan->header_nbytes = b.nbytes;
    plan->nbytes = 8 + b.nbytes + at;
    for (size_t i = 0; i < shard->nentries; i++)
        plan->offsets[i] += 8 + b.nbytes;
    return BINADE_OK;
}

void restore_plan_free(struct restore_plan *plan) {
    free(plan->header);
    free(plan->offsets);
    *plan = (struct restore_plan){0};
}
