/* records.c - reads the records of a manifest; see manifest.h. */
#include "pack/records.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hex.h"
#include "pack/manifest_names.h"

static char *read_copy(struct json_reader *r) {
    struct json_string s;
    if (!json_read_string(r, &s)) return NULL;
    char *copy = malloc(s.nbytes + 1);
    if (copy)
        memcpy(copy, s.text, s.nbytes + 1);
    else
        json_stop(r, fail_memory(r->err));
    return copy;
}

/* A path that is safe to open below a directory. */
static bool read_path(struct json_reader *r, char **path) {
    struct json_string s;
    if (*path) {
        json_fail(r, "a path is given twice");
        return false;
    }
    size_t before = r->pos;
    if (!json_read_string(r, &s)) return false;
    if (!path_is_inside(s.text, s.nbytes)) {
        json_fail(r, "the path \"%s\" leaves the directory", quote(s.text, s.nbytes).text);
        return false;
    }
    r->pos = before;
    *path = read_copy(r);
    return *path != NULL;
}

static bool read_xxh3(struct json_reader *r, uint64_t *value) {
    struct json_string s;
    if (!json_read_string(r, &s)) return false;
    if (hex_decode_u64(s.text, s.nbytes, value)) return true;
    json_fail(r, "expected 16 hexadecimal digits");
    return false;
}

static bool read_sha256(struct json_reader *r, uint8_t digest[SHA256_NBYTES]) {
    struct json_string s;
    if (!json_read_string(r, &s)) return false;
    if (hex_decode(s.text, s.nbytes, digest, SHA256_NBYTES)) return true;
    json_fail(r, "expected 64 hexadecimal digits");
    return false;
}

static bool read_escaped(struct json_reader *r, struct escaped_text *t) {
    size_t begin, end;
    if (!json_skip_string(r, &begin, &end)) return false;
    *t = (struct escaped_text){r->text + begin, end - begin};
    return true;
}

static void *grow(struct json_reader *r, void *items, size_t *capacity, size_t count,
                  size_t item_nbytes) {
    void *bigger = grow_array(items, capacity, count, item_nbytes);
    if (!bigger) json_stop(r, fail_memory(r->err));
    return bigger;
}

static void read_parts(struct json_reader *r, struct record *rec) {
    size_t capacity = 0;
    json_enter_array(r);
    while (json_next_element(r)) {
        uint64_t *parts = grow(r, rec->parts_xxh3, &capacity, rec->nparts, sizeof *rec->parts_xxh3);
        if (!parts) return;
        rec->parts_xxh3 = parts;
        if (!read_xxh3(r, &rec->parts_xxh3[rec->nparts])) return;
        rec->nparts++;
    }
}

/* [[offset, nbytes, "base64" or null], ...] */
static void read_gaps(struct json_reader *r, struct record *rec) {
    size_t capacity = 0;
    json_enter_array(r);
    while (json_next_element(r)) {
        struct gap *gaps = grow(r, rec->gaps, &capacity, rec->ngaps, sizeof *rec->gaps);
        if (!gaps) return;
        rec->gaps = gaps;
        struct gap *gap = &rec->gaps[rec->ngaps++];
        *gap = (struct gap){0};
        json_enter_array(r);
        if (!json_next_element(r) || !json_read_u64(r, &gap->offset) || !json_next_element(r) ||
            !json_read_u64(r, &gap->nbytes) || !json_next_element(r) ||
            !(json_peek(r) == JSON_NULL ? json_read_null(r) : read_escaped(r, &gap->base64)) ||
            json_next_element(r)) {
            json_fail(r, "expected a gap [offset, size, text or null]");
            return;
        }
    }
}

/* What must be there for each kind of record; bits in the order of record_keys. */
enum {
    K_PATH,
    K_SIZE,
    K_SHA256,
    K_XXH3,
    K_TEXT,
    K_SHARD,
    K_HEADER_XXH3,
    K_HEADER,
    K_PARTS,
    K_GAPS,
    NKEYS
};
static const char *const record_keys[NKEYS] = {
    KEY_PATH,  KEY_SIZE,        KEY_SHA256, KEY_XXH3,       KEY_TEXT,
    KEY_SHARD, KEY_HEADER_XXH3, KEY_HEADER, KEY_PARTS_XXH3, KEY_GAPS,
};
enum {
    COMMON_KEYS = 1 << K_PATH | 1 << K_SIZE | 1 << K_SHA256,
    COPY_KEYS = COMMON_KEYS | 1 << K_XXH3,
    TEXT_KEYS = COMMON_KEYS | 1 << K_TEXT,
    SHARD_KEYS = COMMON_KEYS | 1 << K_SHARD | 1 << K_HEADER_XXH3 | 1 << K_HEADER | 1 << K_PARTS |
                 1 << K_GAPS,
};

static void read_record_member(struct json_reader *r, unsigned key, struct record *rec) {
    switch (key) {
    case K_PATH:
        read_path(r, &rec->path);
        break;
    case K_SIZE:
        json_read_u64(r, &rec->nbytes);
        break;
    case K_SHA256:
        read_sha256(r, rec->sha256);
        break;
    case K_XXH3:
    case K_HEADER_XXH3:
        read_xxh3(r, &rec->xxh3);
        break;
    case K_TEXT:
    case K_HEADER:
        read_escaped(r, &rec->text);
        break;
    case K_SHARD:
        read_path(r, &rec->shard);
        break;
    case K_PARTS:
        read_parts(r, rec);
        break;
    case K_GAPS:
        read_gaps(r, rec);
        break;
    default:
        json_skip(r, NULL, NULL);
    }
}

static void read_record(struct json_reader *r, struct record *rec) {
    struct json_string name;
    unsigned seen = 0;
    json_enter_object(r);
    while (json_next_key(r, &name)) {
        unsigned key = 0;
        while (key < NKEYS && !json_is(name, record_keys[key]))
            key++;
        if (key == NKEYS || (seen & 1u << key)) {
            json_fail(r, "a record with an unknown or repeated key \"%s\"",
                      quote(name.text, name.nbytes).text);
            return;
        }
        seen |= 1u << key;
        read_record_member(r, key, rec);
    }
    if (seen == COPY_KEYS)
        rec->kind = RECORD_COPY;
    else if (seen == TEXT_KEYS)
        rec->kind = RECORD_TEXT;
    else if (seen == SHARD_KEYS)
        rec->kind = RECORD_SHARD;
    else
        json_fail(r, "a record without all of its keys");
}

static void read_files(struct json_reader *r, struct manifest *m) {
    size_t capacity = 0;
    json_enter_array(r);
    while (json_next_element(r)) {
        struct record *records = grow(r, m->records, &capacity, m->nrecords, sizeof *m->records);
        if (!records) return;
        m->records = records;
        records[m->nrecords] = (struct record){0};
        read_record(r, &records[m->nrecords++]);
    }
}

void read_records(struct json_reader *r, struct manifest *m) {
    struct json_string key;
    uint64_t version = 0;
    bool has_index = false;
    json_enter_object(r);
    while (json_next_key(r, &key)) {
        if (json_is(key, KEY_VERSION)) {
            if (json_read_u64(r, &version) && version != RECORDS_VERSION)
                json_fail(r, "records of version %" PRIu64 ", this program knows version %d",
                          version, RECORDS_VERSION);
        } else if (json_is(key, KEY_INDEX_XXH3)) {
            has_index = read_xxh3(r, &m->index_xxh3);
        } else if (json_is(key, KEY_FILES) && !m->records) {
            read_files(r, m);
        } else {
            json_skip(r, NULL, NULL);
        }
    }
    if (!version || !has_index) json_fail(r, "records without version or index checksum");
    m->has_records = true;
}

void records_free(struct record *records, size_t nrecords) {
    for (size_t i = 0; i < nrecords; i++) {
        free(records[i].path);
        free(records[i].shard);
        free(records[i].parts_xxh3);
        free(records[i].gaps);
    }
    free(records);
}
