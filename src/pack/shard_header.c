/* shard_header.c - see shard_header.h. */
#include "pack/shard_header.h"

#include <inttypes.h>
#include <string.h>

#include "format/tile.h"
#include "io/json_writer.h"
#include "pack/checkpoint.h"

uint64_t packed_nbytes(const struct st_tensor *t, const struct packed_size *size) {
    uint64_t rows, cols;
    shape_rows_cols(t, &rows, &cols);
    return rows * cols + 256 + rows * row_ntiles(cols) + size->codes_nbytes + size->tail_nbytes;
}

static binade_status put(struct buffer *b, const char *text, binade_error *err) {
    return buffer_put(b, text, strlen(text), err);
}

/* [1, 2] or [1,2] */
static binade_status put_shape(struct buffer *b, const uint64_t *shape, uint32_t ndim,
                               const char *separator, binade_error *err) {
    binade_status status = put(b, "[", err);
    for (uint32_t d = 0; d < ndim && !status; d++)
        status = buffer_put_text(b, err, "%s%" PRIu64, d ? separator : "", shape[d]);
    return status ? status : put(b, "]", err);
}

/* {"NAME": [R, K], ...} of the packed tensors. */
static binade_status put_packed_list(const struct shard_layout *l, struct buffer *b,
                                     binade_error *err) {
    const char *separator = "";
    binade_status status = put(b, "{", err);
    for (size_t i = 0; i < l->source->count && !status; i++) {
        const struct st_tensor *t = &l->source->tensors[i];
        if (!l->sizes[i].packed) continue;
        if ((status = put(b, separator, err))) break;
        if ((status = json_put_string(b, t->name, t->name_nbytes, err))) break;
        if ((status = put(b, ": ", err))) break;
        status = put_shape(b, t->shape, t->ndim, ", ", err);
        separator = ", ";
    }
    return status ? status : put(b, "}", err);
}

static binade_status put_metadata(const struct shard_layout *l, struct buffer *b,
                                  binade_error *err) {
    struct buffer list = {0};
    binade_status status = put_packed_list(l, &list, err);
    if (!status)
        status = buffer_put_text(b, err,
                                 "{\"format\":\"binade\",\"binade_version\":\"%d\","
                                 "\"binade_tile\":\"%d\",\"binade_tensors\":",
                                 l->format, TILE);
    if (!status) status = json_put_string(b, list.data, list.nbytes, err);
    if (!status) status = put(b, "}", err);
    buffer_free(&list);
    return status;
}

struct written {
    const struct st_tensor *tensor;
    const char *suffix;
    const char *dtype;
    const uint64_t *shape;
    uint32_t ndim;
    uint64_t nbytes;
};

static binade_status put_entry(struct shard_layout *l, struct buffer *b, const struct written *w,
                               binade_error *err) {
    uint64_t begin = l->data_nbytes;
    binade_status status = put(b, b->data[b->nbytes - 1] == '{' ? "" : ",", err);
    if (status) return status;
    if ((status = json_put_string(b, w->tensor->name, w->tensor->name_nbytes, err))) return status;
    b->nbytes--; /* the suffix goes before the closing quote */
    if ((status = buffer_put_text(b, err, "%s\":{\"dtype\":", w->suffix))) return status;
    if ((status = json_put_string(b, w->dtype, strlen(w->dtype), err))) return status;
    if ((status = put(b, ",\"shape\":", err))) return status;
    if ((status = put_shape(b, w->shape, w->ndim, ",", err))) return status;
    l->data_nbytes += w->nbytes;
    return buffer_put_text(b, err, ",\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                           l->data_nbytes);
}

static binade_status put_packed_entries(struct shard_layout *l, struct buffer *b, size_t i,
                                        binade_error *err) {
    const struct st_tensor *t = &l->source->tensors[i];
    const struct packed_size *size = &l->sizes[i];
    uint64_t rows, cols;
    shape_rows_cols(t, &rows, &cols);
    const uint64_t nbytes[NPARTS] = {rows * cols, 256, rows * row_ntiles(cols), size->codes_nbytes,
                                     size->tail_nbytes};
    for (int p = 0; p < NPARTS; p++) {
        const char *dtype = part_dtype(l->format, p);
        uint64_t length = nbytes[p] / (st_dtype_nbits(dtype) / 8);
        struct written w = {t, part_suffix(l->format, p), dtype, &length, 1, nbytes[p]};
        if (p == PART_RAW) {
            w.shape = t->shape;
            w.ndim = t->ndim;
        }
        binade_status status = put_entry(l, b, &w, err);
        if (status) return status;
    }
    return BINADE_OK;
}

binade_status layout_put_header(struct shard_layout *l, struct buffer *b, binade_error *err) {
    binade_status status = put(b, "{", err);
    l->data_nbytes = 0;
    for (size_t i = 0; i < l->source->count && !status; i++) {
        const struct st_tensor *t = &l->source->tensors[i];
        struct written w = {t, "", t->dtype, t->shape, t->ndim, t->end - t->begin};
        status = l->sizes[i].packed ? put_packed_entries(l, b, i, err) : put_entry(l, b, &w, err);
    }
    if (status) return status;
    if ((status = put(b, l->source->count ? ",\"__metadata__\":" : "\"__metadata__\":", err)))
        return status;
    if ((status = put_metadata(l, b, err))) return status;
    return put(b, "}", err);
}

binade_status layout_reserve(const struct shard_layout *l, uint64_t *nbytes, binade_error *err) {
    /* The published package reserves by the metadata in Python's default separators, which has a
     * space after each of its 4 colons and 3 commas. */
    enum { ENTRY_NBYTES = 160, HEADER_NBYTES = 4096, SEPARATOR_NBYTES = 7 };
    struct buffer metadata = {0};
    binade_status status = put_metadata(l, &metadata, err);
    uint64_t n = metadata.nbytes + SEPARATOR_NBYTES + HEADER_NBYTES;
    buffer_free(&metadata);
    for (size_t i = 0; i < l->source->count; i++) {
        const struct st_tensor *t = &l->source->tensors[i];
        uint64_t entry = utf8_length(t->name, t->name_nbytes) + ENTRY_NBYTES;
        n += l->sizes[i].packed ? NPARTS * entry : entry;
    }
    *nbytes = ceil_div(n, 8) * 8;
    return status;
}
