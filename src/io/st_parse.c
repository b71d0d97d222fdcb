/* st_parse.c - a safetensors header's JSON text to tensors and metadata, everything checked. */
#include "io/st_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/size.h"
#include "io/arena.h"
#include "io/json_reader.h"
#include "io/sort.h"

struct parse {
    struct json_reader json;
    struct st_header *h;
    const char *file;
    binade_error *err;
    size_t tensors_capacity, metadata_capacity;
    uint64_t *dims; /* the shape being read */
    size_t dims_capacity;
};

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

static bool stop_for_memory(struct parse *p) {
    json_stop(&p->json, fail_memory(p->err));
    return false;
}

static bool read_dtype(struct parse *p, struct st_tensor *t) {
    struct json_string s;
    if (!json_read_string(&p->json, &s)) return false;
    if (memchr(s.text, '\0', s.nbytes)) {
        json_fail(&p->json, "the dtype %s holds a NUL", quote(s.text, s.nbytes).text);
        return false;
    }
    t->dtype = st_dtype_static(s.text);
    if (!t->dtype) t->dtype = arena_copy_text(p->h->arena, s.text, s.nbytes);
    return t->dtype || stop_for_memory(p);
}

static bool read_shape(struct parse *p, struct st_tensor *t) {
    size_t ndim = 0;
    if (!json_enter_array(&p->json)) return false;
    while (json_next_element(&p->json)) {
        uint64_t *dims = grow_array(p->dims, &p->dims_capacity, ndim, sizeof *dims);
        if (!dims) return stop_for_memory(p);
        p->dims = dims;
        if (!json_read_u64(&p->json, &dims[ndim])) return false;
        ndim++;
    }
    if (p->json.status) return false;
    uint64_t *shape = arena_take(p->h->arena, ndim * sizeof *shape, sizeof *shape);
    if (!shape) return stop_for_memory(p);
    if (ndim > 0) memcpy(shape, p->dims, ndim * sizeof *shape);
    t->shape = shape;
    t->ndim = (uint32_t)ndim;
    return true;
}

static bool read_offsets(struct parse *p, struct st_tensor *t) {
    struct json_reader *r = &p->json;
    if (!json_enter_array(r)) return false;
    size_t count = 0;
    while (json_next_element(r)) {
        uint64_t value;
        if (!json_read_u64(r, &value)) return false;
        if (count == 0) t->begin = value;
        if (count == 1) t->end = value;
        count++;
    }
    if (r->status || count == 2) return !r->status;
    json_fail(r, "data_offsets has %zu numbers, expected 2", count);
    return false;
}

/* Reads the fields of one tensor in whatever order. */
static bool read_fields(struct parse *p, struct st_tensor *t) {
    struct json_reader *r = &p->json;
    struct json_string key;
    unsigned seen = 0;
    if (!json_enter_object(r)) return false;
    while (json_next_key(r, &key)) {
        unsigned field = json_is(key, "dtype")          ? HAS_DTYPE
                         : json_is(key, "shape")        ? HAS_SHAPE
                         : json_is(key, "data_offsets") ? HAS_OFFSETS
                                                        : 0;
        if (!field || (seen & field)) {
            json_fail(r, field ? "key %s occurs twice" : "unknown key %s",
                      quote(key.text, key.nbytes).text);
            return false;
        }
        seen |= field;
        bool good = field == HAS_DTYPE   ? read_dtype(p, t)
                    : field == HAS_SHAPE ? read_shape(p, t)
                                         : read_offsets(p, t);
        if (!good) return false;
    }
    if (seen != HAS_ALL && !r->status)
        json_fail(r, "there is no %s, expected dtype, shape and data_offsets",
                  !(seen & HAS_DTYPE)   ? "dtype"
                  : !(seen & HAS_SHAPE) ? "shape"
                                        : "data_offsets");
    return !r->status;
}

/* "[2, 3]", cut short if it is long. */
struct shape_text {
    char text[128];
};
static struct shape_text print_shape(const struct st_tensor *t) {
    struct shape_text s = {"["};
    size_t filled = 1;
    for (uint32_t i = 0; i < t->ndim; i++) {
        if (filled > sizeof s.text - 32) {
            filled += (size_t)snprintf(s.text + filled, sizeof s.text - filled, ", ...");
            break;
        }
        filled += (size_t)snprintf(s.text + filled, sizeof s.text - filled, "%s%llu", i ? ", " : "",
                                   (unsigned long long)t->shape[i]);
    }
    snprintf(s.text + filled, sizeof s.text - filled, "]");
    return s;
}

static bool check_tensor(struct parse *p, const struct st_tensor *t) {
    struct json_reader *r = &p->json;
    uint64_t numel = 1, nbits;
    unsigned long long begin = t->begin, end = t->end;
    if (t->begin > t->end || t->end > p->h->data_nbytes) {
        json_fail(r, "data_offsets are %llu..%llu, expected a range within the %llu bytes of data",
                  begin, end, (unsigned long long)p->h->data_nbytes);
        return false;
    }
    unsigned each = st_dtype_nbits(t->dtype);
    bool overflows = false;
    for (uint32_t i = 0; i < t->ndim && !overflows; i++)
        overflows = mul_overflows(numel, t->shape[i], &numel);
    if (overflows || mul_overflows(numel, each, &nbits)) {
        json_fail(r, "shape %s is too large, expected less than 2^64 bits", print_shape(t).text);
        return false;
    }
    if (each == 0 || (nbits % 8 == 0 && nbits / 8 == t->end - t->begin)) return true;
    json_fail(r, "data_offsets %llu..%llu hold %llu bytes, expected %llu%s for %s %s", begin, end,
              end - begin, (unsigned long long)(nbits / 8), nbits % 8 ? " and a fraction" : "",
              t->dtype, print_shape(t).text);
    return false;
}

static bool read_tensor(struct parse *p, struct json_string name) {
    struct st_header *h = p->h;
    struct st_tensor *tensors =
        grow_array(h->tensors, &p->tensors_capacity, h->count, sizeof *tensors);
    if (!tensors) return stop_for_memory(p);
    h->tensors = tensors;
    struct st_tensor *t = &tensors[h->count];
    *t = (struct st_tensor){.name_nbytes = (uint32_t)name.nbytes};
    t->name = arena_copy_text(h->arena, name.text, name.nbytes);
    if (!t->name) return stop_for_memory(p);
    p->json.noun = "tensor";
    p->json.subject = t->name;
    p->json.subject_nbytes = name.nbytes;
    if (!read_fields(p, t) || !check_tensor(p, t)) return false;
    p->json.noun = NULL;
    h->count++;
    return true;
}

static struct name name_of_member(const void *header, size_t item) {
    const struct st_metadata *m = &((const struct st_header *)header)->metadata[item];
    return (struct name){m->key, m->key_nbytes};
}

static bool read_member(struct parse *p, struct json_string key) {
    struct st_header *h = p->h;
    struct st_metadata *metadata =
        grow_array(h->metadata, &p->metadata_capacity, h->nmetadata, sizeof *metadata);
    if (!metadata) return stop_for_memory(p);
    h->metadata = metadata;
    struct st_metadata *m = &metadata[h->nmetadata];
    m->key_nbytes = key.nbytes;
    m->key = arena_copy_text(h->arena, key.text, key.nbytes);
    if (!m->key) return stop_for_memory(p);
    p->json.noun = "__metadata__ key";
    p->json.subject = m->key;
    p->json.subject_nbytes = m->key_nbytes;
    struct json_string value;
    if (!json_read_string(&p->json, &value)) return false;
    p->json.noun = NULL;
    m->value_nbytes = value.nbytes;
    m->value = arena_copy_text(h->arena, value.text, value.nbytes);
    if (!m->value) return stop_for_memory(p);
    h->nmetadata++;
    return true;
}

/* An object, or null for none, which MLX writes. */
static bool read_metadata(struct parse *p) {
    struct json_string key;
    size_t twice;
    if (json_peek(&p->json) == JSON_NULL) return json_read_null(&p->json);
    if (!json_enter_object(&p->json)) return false;
    while (json_next_key(&p->json, &key))
        if (!read_member(p, key)) return false;
    if (p->json.status) return false;
    binade_status status = find_name_twice(p->h->nmetadata, name_of_member, p->h, &twice, p->err);
    if (status) {
        json_stop(&p->json, status);
        return false;
    }
    if (twice == SIZE_MAX) return true;
    const struct st_metadata *m = &p->h->metadata[twice];
    json_fail(&p->json, "key %s occurs twice in __metadata__", quote(m->key, m->key_nbytes).text);
    return false;
}

static bool read_all(struct parse *p) {
    struct json_reader *r = &p->json;
    struct json_string key;
    bool has_metadata = false;
    if (!json_enter_object(r)) return false;
    while (json_next_key(r, &key)) {
        if (!json_is(key, "__metadata__")) {
            if (!read_tensor(p, key)) return false;
            continue;
        }
        if (has_metadata) {
            json_fail(r, "__metadata__ occurs twice");
            return false;
        }
        has_metadata = true;
        if (!read_metadata(p)) return false;
    }
    return json_end(r);
}

static bool begins_before(const void *a, const void *b, const void *user) {
    (void)user;
    return ((const struct st_tensor *)a)->begin < ((const struct st_tensor *)b)->begin;
}

static binade_status check_names(const struct parse *p) {
    size_t twice;
    binade_status status = find_name_twice(p->h->count, st_name_of_tensor, p->h, &twice, p->err);
    if (status || twice == SIZE_MAX) return status;
    const struct st_tensor *t = &p->h->tensors[twice];
    return fail(p->err, BINADE_E_DATA, "%s: tensor %s occurs twice, expected once",
                quote_path(p->file).text, quote(t->name, t->name_nbytes).text);
}

/* Empty tensors share no byte with any other. */
static binade_status check_overlap(const struct parse *p) {
    const struct st_tensor *last = NULL;
    for (size_t i = 0; i < p->h->count; i++) {
        const struct st_tensor *t = &p->h->tensors[i];
        if (t->begin == t->end) continue;
        if (last && t->begin < last->end)
            return fail(p->err, BINADE_E_DATA,
                        "%s: tensor %s: data_offsets %llu..%llu overlap %llu..%llu of tensor %s, "
                        "expected each byte to belong to one",
                        quote_path(p->file).text, quote(t->name, t->name_nbytes).text,
                        (unsigned long long)t->begin, (unsigned long long)t->end,
                        (unsigned long long)last->begin, (unsigned long long)last->end,
                        quote(last->name, last->name_nbytes).text);
        last = t;
    }
    return BINADE_OK;
}

binade_status st_parse_header(const char *text, uint64_t header_nbytes, uint64_t file_nbytes,
                              const char *file, struct st_header *h, binade_error *err) {
    *h = (struct st_header){0};
    binade_status status = st_check_length(header_nbytes, file_nbytes, file, err);
    if (status) return status;
    h->header_nbytes = header_nbytes;
    h->data_nbytes = file_nbytes - 8 - header_nbytes;
    h->arena = arena_new();
    if (!h->arena) return fail_memory(err);
    struct parse p = {.h = h, .file = file, .err = err};
    json_open(&p.json, text, (size_t)header_nbytes, file, err);
    p.json.base = 8;
    read_all(&p);
    status = json_close(&p.json);
    free(p.dims);
    if (!status)
        status = merge_sort(h->tensors, h->count, sizeof *h->tensors, begins_before, NULL, err);
    if (!status) status = check_names(&p);
    if (!status) status = check_overlap(&p);
    if (status) st_free_header(h);
    return status;
}
