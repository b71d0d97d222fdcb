/* pack_files.c - see pack_files.h. */
#include "pack/pack_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

binade_status pack_open(const char *path, const char *revision, binade_checkpoint **c,
                        binade_error *err) {
    binade_status status = binade_open(path, revision, c, err);
    if (status || (*c)->manifest.format) return status;
    status = fail(err, BINADE_E_USAGE, "%s: is not a Binade checkpoint",
                  quote_path((*c)->dir.path).text);
    binade_close(*c);
    *c = NULL;
    return status;
}

static binade_status checksum_differs(const char *dir, const char *path, uint64_t found,
                                      uint64_t recorded, binade_error *err) {
    return fail(err, BINADE_E_DATA,
                "%s/%s: its checksum is %016" PRIx64 ", recorded is %016" PRIx64,
                quote_path(dir).text, quote_path(path).text, found, recorded);
}

binade_status pack_check_index(const binade_checkpoint *c, binade_error *err) {
    if (!c->manifest.has_records) return BINADE_OK;
    struct progress uncounted;
    struct side_reading reading = {
        .from_dir = c->dir.path, .digests = SIDE_XXH3, .progress = &uncounted};
    struct side_file f = {.path = INDEX_NAME};
    binade_status status = require_file(c->dir.path, INDEX_NAME, err);
    if (status) return status;
    progress_open(&uncounted, NULL, NULL);
    status = side_file_read(&reading, &f, err);
    progress_close(&uncounted);
    if (!status && f.xxh3 != c->manifest.index_xxh3)
        status = checksum_differs(c->dir.path, f.path, f.xxh3, c->manifest.index_xxh3, err);
    return status;
}

static binade_status sum_records(const struct manifest *m, uint64_t *total, binade_error *err) {
    *total = 0;
    for (size_t i = 0; i < m->nrecords; i++) {
        if (add_overflows(*total, m->records[i].nbytes, total))
            return fail(err, BINADE_E_DATA, "%s: the recorded sizes overflow", MANIFEST_NAME);
    }
    return BINADE_OK;
}

bool is_recorded(const struct manifest *m, const char *path) {
    for (size_t i = 0; i < m->nrecords; i++) {
        if (!strcmp(m->records[i].path, path)) return true;
    }
    return false;
}

static void note_unrecorded(const binade_checkpoint *c, struct progress *progress) {
    for (size_t i = 0; i < c->dir.others.count; i++) {
        const char *path = c->dir.others.paths[i];
        bool own = !strcmp(path, MANIFEST_NAME) || !strcmp(path, INDEX_NAME);
        if (!own && !is_recorded(&c->manifest, path))
            progress_text(progress, BINADE_EVENT_NOTE,
                          "left out: %s, which is not part of the original", quote_path(path).text);
    }
}

static binade_status plan_recorded(const binade_checkpoint *c, struct restore_plan *plans,
                                   size_t *nplans, struct copied_files *copies, binade_error *err) {
    for (size_t i = 0; i < c->manifest.nrecords; i++) {
        const struct record *rec = &c->manifest.records[i];
        if (rec->kind == RECORD_COPY) {
            copies->paths[copies->count] = rec->path;
            copies->records[copies->count++] = rec;
        }
        if (rec->kind != RECORD_SHARD) continue;
        binade_status status = restore_plan_recorded(c, rec, &plans[(*nplans)++], err);
        if (status) return status;
    }
    if (*nplans == c->dir.shards.count) return BINADE_OK;
    return fail(err, BINADE_E_DATA, "%s: has %zu shards, %zu are recorded",
                quote_path(c->dir.path).text, c->dir.shards.count, *nplans);
}

static binade_status plan_unrecorded(const binade_checkpoint *c, struct restore_plan *plans,
                                     size_t *nplans, struct copied_files *copies, uint64_t *total,
                                     binade_error *err) {
    *total = 0;
    for (size_t s = 0; s < c->dir.shards.count; s++) {
        binade_status status = restore_plan_new(c, &c->shards[s], &plans[(*nplans)++], err);
        if (status) return status;
        *total += plans[s].nbytes;
    }
    int format;
    binade_status status = config_read_mark(c->dir.path, &format, err);
    copies->marked_config = format != 0;
    for (size_t i = 0; i < c->dir.others.count && !status; i++) {
        const char *path = c->dir.others.paths[i];
        uint64_t nbytes;
        if (!strcmp(path, MANIFEST_NAME) || !strcmp(path, INDEX_NAME)) continue;
        if (copies->marked_config && !strcmp(path, "config.json")) continue;
        status = side_file_size(c->dir.path, path, &nbytes, err);
        if (status) break;
        copies->paths[copies->count++] = path;
        *total += nbytes;
    }
    return status;
}

binade_status pack_plan(const binade_checkpoint *c, struct restore_plan **plans, size_t *nplans,
                        struct copied_files *copies, struct progress *progress,
                        uint64_t *total_nbytes, binade_error *err) {
    const struct manifest *m = &c->manifest;
    size_t nplans_max = c->dir.shards.count + m->nrecords;
    size_t ncopies_max = c->dir.others.count + m->nrecords;
    *nplans = 0;
    *plans = calloc(nplans_max + 1, sizeof **plans);
    *copies = (struct copied_files){.paths = calloc(ncopies_max + 1, sizeof *copies->paths)};
    if (!*plans || !copies->paths) return fail_memory(err);
    if (!m->has_records) return plan_unrecorded(c, *plans, nplans, copies, total_nbytes, err);
    copies->records = calloc(ncopies_max + 1, sizeof *copies->records);
    if (!copies->records) return fail_memory(err);
    note_unrecorded(c, progress);
    binade_status status = sum_records(m, total_nbytes, err);
    return status ? status : plan_recorded(c, *plans, nplans, copies, err);
}

void copied_files_free(struct copied_files *copies) {
    free(copies->paths);
    free(copies->records);
    *copies = (struct copied_files){0};
}

binade_status require_file(const char *dir, const char *path, binade_error *err) {
    char *whole = path_join(dir, path);
    if (!whole) return fail_memory(err);
    /* Where it cannot be told, opening it will say why. */
    bool absent = access(whole, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
    free(whole);
    if (!absent) return BINADE_OK;
    return fail(err, BINADE_E_DATA, "%s/%s: is absent", quote_path(dir).text,
                quote_path(path).text);
}

binade_status copied_file_read(const struct copied_files *copies, size_t i,
                               const struct side_reading *reading, binade_error *err) {
    struct side_reading x = *reading;
    struct side_file f = {.path = copies->paths[i]};
    const struct record *rec = copies->records ? copies->records[i] : NULL;
    if (rec) x.digests |= SIDE_XXH3;
    binade_status absent = rec ? require_file(x.from_dir, f.path, err) : BINADE_OK;
    if (absent) return absent;
    binade_status status = side_file_read(&x, &f, err);
    if (status || !rec) return status;
    if (f.nbytes != rec->nbytes)
        return fail(err, BINADE_E_DATA, "%s/%s: has %" PRIu64 " bytes, recorded are %" PRIu64,
                    quote_path(x.from_dir).text, quote_path(f.path).text, f.nbytes, rec->nbytes);
    if (f.xxh3 != rec->xxh3) return checksum_differs(x.from_dir, f.path, f.xxh3, rec->xxh3, err);
    if (x.digests & SIDE_SHA256 && memcmp(f.sha256, rec->sha256, SHA256_NBYTES))
        return fail(err, BINADE_E_DATA, "%s/%s: its SHA-256 is not the recorded one",
                    quote_path(x.from_dir).text, quote_path(f.path).text);
    return BINADE_OK;
}
