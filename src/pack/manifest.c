/* manifest.c - see manifest.h. */
#include "pack/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/hex.h"
#include "base/size.h"
#include "format/tile.h"
#include "io/checkpoint_dir.h"
#include "pack/manifest_names.h"

/* Header texts and indexes of 512 MiB each may be quoted in it. */
#define MANIFEST_MAX_NBYTES ((uint64_t)8 << 30)

static bool is(struct json_string s, const char *text) {
    return s.nbytes == strlen(text) && !memcmp(s.text, text, s.nbytes);
}

/* ---- Reading members ----------------------------------------------------------------------- */

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

/* Makes room for one more of an array that has `count`; capacities are powers of two. */
static bool grow(struct json_reader *r, void **array, size_t count, size_t item_nbytes) {
    if (count & (count - 1)) return true;
    size_t capacity = count ? 2 * count : 1;
    void *bigger =
        capacity <= SIZE_MAX / 2 / item_nbytes ? realloc(*array, capacity * item_nbytes) : NULL;
    if (!bigger) {
        json_stop(r, fail_memory(r->err));
        return false;
    }
    *array = bigger;
    return true;
}

static void read_parts(struct json_reader *r, struct record *rec) {
    json_enter_array(r);
    while (json_next_element(r)) {
        void *array = rec->parts_xxh3;
        if (!grow(r, &array, rec->nparts, sizeof *rec->parts_xxh3)) return;
        rec->parts_xxh3 = array;
        if (!read_xxh3(r, &rec->parts_xxh3[rec->nparts])) return;
        rec->nparts++;
    }
}

/* [[offset, nbytes, "base64" or null], ...] */
static void read_gaps(struct json_reader *r, struct record *rec) {
    json_enter_array(r);
    while (json_next_element(r)) {
        void *array = rec->gaps;
        if (!grow(r, &array, rec->ngaps, sizeof *rec->gaps)) return;
        rec->gaps = array;
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
        while (key < NKEYS && !is(name, record_keys[key]))
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

static void read_records(struct json_reader *r, struct manifest *m) {
    struct json_string key;
    uint64_t version = 0;
    bool has_index = false;
    json_enter_object(r);
    while (json_next_key(r, &key)) {
        if (is(key, KEY_VERSION)) {
            if (json_read_u64(r, &version) && version != RECORDS_VERSION)
                json_fail(r, "records of version %" PRIu64 ", this program knows version %d",
                          version, RECORDS_VERSION);
        } else if (is(key, KEY_INDEX_XXH3)) {
            has_index = read_xxh3(r, &m->index_xxh3);
        } else if (is(key, KEY_FILES)) {
            json_enter_array(r);
            while (json_next_element(r)) {
                void *array = m->records;
                if (!grow(r, &array, m->nrecords, sizeof *m->records)) return;
                m->records = array;
                struct record *rec = &m->records[m->nrecords++];
                *rec = (struct record){0};
                read_record(r, rec);
            }
        } else {
            json_skip(r, NULL, NULL);
        }
    }
    if (!version || !has_index) json_fail(r, "records without version or index checksum");
    m->has_records = true;
}

/* {"quant_method": "binade", "version": "2", "tile": 128}; 0 if it is another method's. */
static int read_mark(struct json_reader *r) {
    struct json_string s;
    bool is_binade = false;
    int format = 0;
    uint64_t tile = 0;
    if (json_peek(r) != JSON_OBJECT) {
        json_skip(r, NULL, NULL);
        return 0;
    }
    json_enter_object(r);
    while (json_next_key(r, &s)) {
        bool is_method = is(s, "quant_method"), is_version = is(s, "version");
        if (is(s, "tile") && json_peek(r) == JSON_NUMBER && is_binade) {
            json_read_u64(r, &tile);
        } else if ((is_method || is_version) && json_peek(r) == JSON_STRING) {
            if (!json_read_string(r, &s)) return 0;
            if (is_method) is_binade = is(s, "binade");
            if (is_version) format = is(s, "1") ? 1 : is(s, "2") ? 2 : -1;
        } else {
            json_skip(r, NULL, NULL);
        }
    }
    if (!is_binade) return 0;
    if (format <= 0) json_fail(r, "a Binade version other than 1 and 2");
    if (tile != TILE) json_fail(r, "a Binade tile of %" PRIu64 " weights, expected %d", tile, TILE);
    return format;
}

/* ---- The file ------------------------------------------------------------------------------ */

/* The manifest ends in its own checksum: of everything before that last line. */
static binade_status check_seal(const struct manifest *m, const char *path, bool *sealed,
                                binade_error *err) {
    static const char before[] = SEAL_BEFORE, behind[] = SEAL_BEHIND;
    size_t nbefore = sizeof before - 1, nbehind = sizeof behind - 1;
    size_t length = nbefore + 16 + nbehind;
    uint64_t expected;
    *sealed = false;
    if (m->nbytes < length) return BINADE_OK;
    const char *seal = m->text + m->nbytes - length;
    if (memcmp(seal, before, nbefore) || memcmp(seal + nbefore + 16, behind, nbehind) ||
        !hex_decode_u64(seal + nbefore, 16, &expected))
        return BINADE_OK;
    *sealed = true;
    uint64_t found = XXH3_64bits(m->text, m->nbytes - length);
    if (found != expected)
        return fail(err, BINADE_E_DATA,
                    "%s: its checksum is %016" PRIx64 ", recorded is %016" PRIx64
                    ": it was altered",
                    quote_path(path).text, found, expected);
    return BINADE_OK;
}

static binade_status parse_manifest(struct manifest *m, const char *path, binade_error *err) {
    struct json_reader r;
    struct json_string key;
    bool sealed;
    binade_status status = check_seal(m, path, &sealed, err);
    if (status) return status;
    json_open(&r, m->text, m->nbytes, path, err);
    json_enter_object(&r);
    while (json_next_key(&r, &key)) {
        if (is(key, KEY_MARK) && m->format == 0)
            m->format = read_mark(&r);
        else if (is(key, KEY_RECORDS) && !m->has_records)
            read_records(&r, m);
        else
            json_skip(&r, NULL, NULL);
    }
    json_end(&r);
    if (!r.status && m->has_records && !sealed)
        json_fail(&r, "records without the closing checksum");
    if (!r.status && m->has_records && m->format == 0)
        json_fail(&r, "records without the mark of a pack");
    return json_close(&r);
}

binade_status config_find_mark(const char *text, size_t nbytes, const char *file, int *format,
                               size_t *begin, size_t *end, binade_error *err) {
    struct json_reader r;
    struct json_string key;
    bool first = true;
    *begin = *end = 0;
    json_open(&r, text, nbytes, file, err);
    if (json_peek(&r) != JSON_OBJECT) return json_close(&r);
    json_enter_object(&r);
    for (size_t before = r.pos; json_next_key(&r, &key); before = r.pos, first = false) {
        int found = 0;
        if (is(key, "quantization_config"))
            found = read_mark(&r);
        else
            json_skip(&r, NULL, NULL);
        if (!found || *format) continue;
        *format = found;
        *begin = before; /* with the comma in front, or for the first member the one behind */
        *end = r.pos;
        if (first && json_peek(&r) == JSON_ERROR) continue;
    }
    json_end(&r);
    if (*begin < *end && text[*begin] != ',') {
        size_t p = *end;
        while (p < nbytes &&
               (text[p] == ' ' || text[p] == '\n' || text[p] == '\r' || text[p] == '\t'))
            p++;
        if (p < nbytes && text[p] == ',') *end = p + 1;
    }
    return json_close(&r);
}

/* Packs from before 0.1.1 are marked in config.json. A config that is no JSON marks nothing. */
static binade_status read_config_mark(struct manifest *m, const char *dir, binade_error *err) {
    char *path = path_join(dir, "config.json"), *text = NULL;
    size_t nbytes, begin, end;
    binade_status status = path ? BINADE_OK : fail_memory(err);
    if (!status && access(path, F_OK) == 0) {
        binade_error ignored;
        status = file_slurp(path, MANIFEST_MAX_NBYTES, &text, &nbytes, err);
        if (!status && config_find_mark(text, nbytes, path, &m->format, &begin, &end, &ignored))
            m->format = 0;
    }
    free(text);
    free(path);
    return status;
}

binade_status manifest_read(struct manifest *m, const char *dir, binade_error *err) {
    *m = (struct manifest){0};
    char *path = path_join(dir, MANIFEST_NAME);
    binade_status status = path ? BINADE_OK : fail_memory(err);
    if (!status && access(path, F_OK) == 0) {
        status = file_slurp(path, MANIFEST_MAX_NBYTES, &m->text, &m->nbytes, err);
        if (!status) status = parse_manifest(m, path, err);
    }
    free(path);
    if (!status && m->format == 0) status = read_config_mark(m, dir, err);
    if (status) manifest_free(m);
    return status;
}

void manifest_free(struct manifest *m) {
    for (size_t i = 0; i < m->nrecords; i++) {
        free(m->records[i].path);
        free(m->records[i].shard);
        free(m->records[i].parts_xxh3);
        free(m->records[i].gaps);
    }
    free(m->records);
    free(m->text);
    *m = (struct manifest){0};
}

/* ---- Quoted contents ------------------------------------------------------------------------- */

struct expansion {
    char *text;
    uint64_t nbytes, capacity;
};

static binade_status count(void *user, const char *text, size_t nbytes, binade_error *err) {
    uint64_t *total = user;
    (void)text, (void)err;
    *total += nbytes;
    return BINADE_OK;
}

binade_status escaped_text_length(const struct escaped_text *t, uint64_t *nbytes,
                                  binade_error *err) {
    *nbytes = 0;
    return json_unescape(t->text, t->nbytes, count, nbytes, err);
}

static binade_status append(void *user, const char *text, size_t nbytes, binade_error *err) {
    struct expansion *x = user;
    if (nbytes > x->capacity - x->nbytes)
        return fail(err, BINADE_E_DATA, "longer than the recorded %" PRIu64 " bytes", x->capacity);
    memcpy(x->text + x->nbytes, text, nbytes);
    x->nbytes += nbytes;
    return BINADE_OK;
}

binade_status escaped_text_expand(const struct escaped_text *t, uint64_t nbytes, const char *what,
                                  char **text, binade_error *err) {
    /* Unescaping never makes text longer, so a lying size is found before memory is taken for it.
     */
    *text = NULL;
    if (nbytes > t->nbytes)
        return fail(err, BINADE_E_DATA,
                    "%s: recorded with %" PRIu64 " bytes, its text has at most %zu",
                    quote_path(what).text, nbytes, t->nbytes);
    struct expansion x = {malloc((size_t)nbytes + 1), 0, nbytes};
    if (!x.text) return fail_memory(err);
    binade_status status = json_unescape(t->text, t->nbytes, append, &x, err);
    if (!status && x.nbytes != nbytes)
        status =
            fail(err, BINADE_E_DATA, "%s: recorded with %" PRIu64 " bytes, its text has %" PRIu64,
                 quote_path(what).text, nbytes, x.nbytes);
    if (status) {
        free(x.text);
        return status;
    }
    x.text[nbytes] = 0;
    *text = x.text;
    return BINADE_OK;
}

binade_status gap_expand(const struct gap *gap, const char *what, uint8_t **data,
                         binade_error *err) {
    *data = NULL;
    if (!gap->base64.text) return BINADE_OK;
    size_t length = gap->base64.nbytes;
    if (length > INT32_MAX || length % 4 || ceil_div(gap->nbytes, 3) != length / 4)
        return fail(err, BINADE_E_DATA, "%s: a gap of %" PRIu64 " bytes is recorded by %zu digits",
                    quote_path(what).text, gap->nbytes, length);
    uint8_t *out = malloc(length / 4 * 3 + 1);
    if (!out) return fail_memory(err);
    if (EVP_DecodeBlock(out, (const uint8_t *)gap->base64.text, (int)length) < 0) {
        free(out);
        return fail(err, BINADE_E_DATA, "%s: a gap is recorded by invalid base64",
                    quote_path(what).text);
    }
    *data = out;
    return BINADE_OK;
}
