/* manifest.c - see manifest.h. */
#include "pack/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/hex.h"
#include "format/tile.h"
#include "io/checkpoint_dir.h"
#include "pack/manifest_names.h"
#include "pack/records.h"

/* Header texts and indexes of 512 MiB each may be quoted in it. */
#define MANIFEST_MAX_NBYTES ((uint64_t)8 << 30)

/* ---- Marks ------------------------------------------------------------------------------- */

/* {"quant_method": "binade", "version": "2", "tile": 128}; 0 if it is another method's. */
static int read_mark(struct json_reader *r) {
    struct json_string s;
    bool is_binade = false;
    int format = 0;
    double tile = 0;
    if (json_peek(r) != JSON_OBJECT) {
        json_skip(r, NULL, NULL);
        return 0;
    }
    json_enter_object(r);
    while (json_next_key(r, &s)) {
        bool is_method = json_is(s, "quant_method"), is_version = json_is(s, "version");
        if (json_is(s, "tile") && json_peek(r) == JSON_NUMBER) {
            json_read_double(r, &tile);
        } else if ((is_method || is_version) && json_peek(r) == JSON_STRING) {
            if (!json_read_string(r, &s)) return 0;
            if (is_method) is_binade = json_is(s, "binade");
            if (is_version) format = json_is(s, "1") ? 1 : json_is(s, "2") ? 2 : -1;
        } else {
            json_skip(r, NULL, NULL);
        }
    }
    if (!is_binade) return 0;
    if (format <= 0) json_fail(r, "a Binade version other than 1 and 2");
    if (tile != TILE) json_fail(r, "a Binade tile of %g weights, expected %d", tile, TILE);
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
        if (json_is(key, KEY_MARK) && m->format == 0)
            m->format = read_mark(&r);
        else if (json_is(key, KEY_RECORDS) && !m->has_records)
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
    bool first = true, first_is_mark = false;
    *begin = *end = 0;
    json_open(&r, text, nbytes, file, err);
    if (json_peek(&r) != JSON_OBJECT) return json_close(&r);
    json_enter_object(&r);
    for (size_t before = r.pos; json_next_key(&r, &key); before = r.pos, first = false) {
        int found = 0;
        if (json_is(key, "quantization_config"))
            found = read_mark(&r);
        else
            json_skip(&r, NULL, NULL);
        if (!found || *format) continue;
        *format = found;
        *begin = before; /* with the comma in front */
        *end = r.pos;
        first_is_mark = first;
    }
    json_end(&r);
    if (first_is_mark) { /* with the comma behind */
        size_t p = *end + strspn(text + *end, " \t\r\n");
        if (text[p] == ',') *end = p + 1;
    }
    return json_close(&r);
}

binade_status config_read_mark(const char *dir, int *format, binade_error *err) {
    char *path = path_join(dir, "config.json"), *text = NULL;
    size_t nbytes, begin, end;
    binade_status status = path ? BINADE_OK : fail_memory(err);
    *format = 0;
    if (!status && access(path, F_OK) == 0) {
        status = file_slurp(path, MANIFEST_MAX_NBYTES, &text, &nbytes, err);
        if (status) goto done;
        binade_status found = config_find_mark(text, nbytes, path, format, &begin, &end, NULL);
        if (found == BINADE_E_MEMORY) status = fail_memory(err);
        if (found) *format = 0;
    }
done:
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
    if (!status && m->format == 0) status = config_read_mark(dir, &m->format, err);
    if (status) manifest_free(m);
    return status;
}

void manifest_free(struct manifest *m) {
    records_free(m->records, m->nrecords);
    free(m->text);
    *m = (struct manifest){0};
}
