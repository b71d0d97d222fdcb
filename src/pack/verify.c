/* verify.c - binade_verify: what a pack stands for, proven without the original or compared with
 * it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "pack/call.h"
#include "pack/pack_files.h"

struct verifying {
    binade_verify_options options;
    binade_checkpoint *c;
    char *against_dir;          /* what options.against stands for, and then points to */
    binade_checkpoint *against; /* without records: opened, to compare tensors */
    struct pool *pool;
    struct progress progress;
    struct restore_plan *plans;
    size_t nplans;
    struct copied_files copies;
    struct sha256 *sha;
    binade_verify_report report;
};

static binade_status check_sha256(const struct record *rec, const uint8_t found[SHA256_NBYTES],
                                  binade_error *err) {
    char have[2 * SHA256_NBYTES + 1], want[2 * SHA256_NBYTES + 1];
    if (!memcmp(found, rec->sha256, SHA256_NBYTES)) return BINADE_OK;
    hex_encode(found, SHA256_NBYTES, have);
    hex_encode(rec->sha256, SHA256_NBYTES, want);
    return fail(err, BINADE_E_DATA, "%s: restored with the SHA-256 %s, the original had %s",
                quote_path(rec->path).text, have, want);
}

/* Opens the file to compare with, which must have the original's size. */
static binade_status open_against(const struct verifying *v, const char *path, uint64_t nbytes,
                                  struct file *f, binade_error *err) {
    binade_status status = require_file(v->options.against, path, err);
    if (status) return status;
    char *whole = path_join(v->options.against, path);
    status = whole ? file_open(f, whole, err) : fail_memory(err);
    free(whole);
    if (!status && f->nbytes != nbytes)
        status = fail(err, BINADE_E_DATA, "%s: has %" PRIu64 " bytes, the original has %" PRIu64,
                      quote_path(f->path).text, f->nbytes, nbytes);
    return status;
}

/* ---- With records ---------------------------------------------------------------------------- */

static binade_status verify_shard(struct verifying *v, const struct restore_plan *plan,
                                  binade_error *err) {
    struct file against = {.fd = -1};
    struct restore_target target = {.sha = plan->record ? v->sha : NULL};
    uint8_t digest[SHA256_NBYTES];
    binade_status status = BINADE_OK;
    sha256_reset(v->sha);
    if (plan->record && v->options.against) {
        status = open_against(v, plan->path, plan->nbytes, &against, err);
        target.against = &against;
    }
    if (!status) status = restore_shard(v->c, plan, &target, v->pool, &v->progress, err);
    if (!status && plan->record) {
        sha256_final(v->sha, digest);
        status = check_sha256(plan->record, digest, err);
    }
    file_close(&against);
    return status;
}

static binade_status verify_copy(void *user, size_t i, unsigned worker, binade_error *err) {
    struct verifying *v = user;
    struct side_reading reading = {
        .from_dir = v->c->dir.path, .digests = SIDE_SHA256, .progress = &v->progress};
    (void)worker;
    if (v->options.against && v->copies.records) {
        reading.against_dir = v->options.against;
        binade_status status = require_file(reading.against_dir, v->copies.paths[i], err);
        if (status) return status;
    }
    return copied_file_read(&v->copies, i, &reading, err);
}

static binade_status verify_text(struct verifying *v, const struct record *rec, binade_error *err) {
    struct file against = {.fd = -1};
    uint8_t digest[SHA256_NBYTES];
    char *text, *other = NULL;
    binade_status status = escaped_text_expand(&rec->text, rec->nbytes, rec->path, &text, err);
    if (status) return status;
    sha256_reset(v->sha);
    sha256_update(v->sha, text, (size_t)rec->nbytes);
    sha256_final(v->sha, digest);
    status = check_sha256(rec, digest, err);
    if (!status && v->options.against) {
        status = open_against(v, rec->path, rec->nbytes, &against, err);
        if (!status && !(other = malloc((size_t)rec->nbytes + 1))) status = fail_memory(err);
        if (!status) status = file_read(&against, 0, other, (size_t)rec->nbytes, err);
        if (!status && memcmp(text, other, (size_t)rec->nbytes))
            status = fail(err, BINADE_E_DATA, "%s: differs from the original",
                          quote_path(against.path).text);
    }
    file_close(&against);
    free(other);
    free(text);
    return status ? status : progress_add(&v->progress, rec->nbytes, err);
}

/* The directory to compare with must not hold more than the original did. */
static binade_status check_no_more(const struct verifying *v, binade_error *err) {
    struct checkpoint_dir d;
    binade_status status = checkpoint_dir_scan(&d, v->options.against, err);
    if (status) return status;
    const struct path_list *lists[] = {&d.shards, &d.others};
    for (int l = 0; l < 2 && !status; l++) {
        for (size_t i = 0; i < lists[l]->count && !status; i++) {
            const char *path = lists[l]->paths[i];
            if (!is_recorded(&v->c->manifest, path))
                status = fail(err, BINADE_E_DATA, "%s/%s: the pack has no such file",
                              quote_path(v->options.against).text, quote_path(path).text);
        }
    }
    checkpoint_dir_free(&d);
    return status;
}

/* ---- Without records: tensor by tensor ------------------------------------------------------- */

static binade_status tensor_differs(const struct verifying *v, const binade_tensor *t,
                                    const char *how, binade_error *err) {
    return fail(err, BINADE_E_DATA, "%s: tensor %s: %s", quote_path(v->options.against).text,
                quote(t->name, t->name_nbytes).text, how);
}

/* Bytes [begin, end) of an entry: of a carried one any, of a packed one whole rows. */
static binade_status read_bytes(const binade_checkpoint *c, size_t i, uint64_t begin, uint64_t end,
                                uint8_t *out, binade_error *err) {
    const struct entry *e = &c->entries[i];
    const struct shard *shard = &c->shards[e->shard];
    if (!e->parts)
        return file_read(&shard->file, 8 + shard->header.header_nbytes + e->tensor->begin + begin,
                         out, (size_t)(end - begin), err);
    uint64_t row_nbytes = 2 * e->tensor->shape[e->tensor->ndim - 1];
    return binade_read_rows(c, i, begin / row_nbytes, end / row_nbytes, out, (size_t)(end - begin),
                            err);
}

/* Step by step, where either is packed in whole rows. */
static binade_status compare_bytes(struct verifying *v, size_t i, size_t j, const binade_tensor *t,
                                   bool by_rows, binade_error *err) {
    uint64_t row_nbytes = by_rows ? 2 * t->cols : 1;
    uint64_t step = (PIECE_NBYTES / row_nbytes + 1) * row_nbytes;
    uint8_t *a = malloc((size_t)step), *b = malloc((size_t)step);
    binade_status status = a && b ? BINADE_OK : fail_memory(err);
    for (uint64_t at = 0; at < t->nbytes && !status; at += step) {
        uint64_t end = t->nbytes - at < step ? t->nbytes : at + step;
        status = read_bytes(v->c, i, at, end, a, err);
        if (!status) status = read_bytes(v->against, j, at, end, b, err);
        if (!status && memcmp(a, b, (size_t)(end - at)))
            status = tensor_differs(v, t, "its values differ from the pack's", err);
        if (!status) status = progress_add(&v->progress, 0, err); /* may be cancelled */
    }
    free(a);
    free(b);
    return status;
}

static binade_status compare_tensor(void *user, size_t i, unsigned worker, binade_error *err) {
    struct verifying *v = user;
    binade_tensor t, u;
    (void)worker;
    binade_get(v->c, i, &t);
    size_t j = binade_find(v->against, t.name, t.name_nbytes);
    if (j == SIZE_MAX) return tensor_differs(v, &t, "is absent", err);
    binade_get(v->against, j, &u);
    bool same = !strcmp(t.dtype, u.dtype) && t.ndim == u.ndim && t.nbytes == u.nbytes;
    for (size_t d = 0; same && d < t.ndim; d++)
        same = t.shape[d] == u.shape[d];
    if (!same) return tensor_differs(v, &t, "its dtype or shape is not the pack's", err);
    return compare_bytes(v, i, j, &t, t.packed || u.packed, err);
}

static binade_status compare_tensors(struct verifying *v, binade_error *err) {
    binade_status status = binade_open(v->options.against, NULL, &v->against, err);
    if (status) return status;
    if (v->against->nentries != v->c->nentries)
        return fail(err, BINADE_E_DATA, "%s: has %zu tensors, the pack has %zu",
                    quote_path(v->options.against).text, v->against->nentries, v->c->nentries);
    return pool_run(v->pool, v->c->nentries, compare_tensor, v, err);
}

/* ---- All of it ----------------------------------------------------------------------------------
 */

static binade_status verify_all(struct verifying *v, binade_error *err) {
    const struct manifest *m = &v->c->manifest;
    binade_status status = BINADE_OK;
    for (size_t i = 0; i < v->nplans && !status; i++)
        status = verify_shard(v, &v->plans[i], err);
    if (!status) status = pool_run(v->pool, v->copies.count, verify_copy, v, err);
    for (size_t i = 0; i < m->nrecords && !status; i++) {
        if (m->records[i].kind == RECORD_TEXT) status = verify_text(v, &m->records[i], err);
    }
    if (status || !v->options.against) return status;
    return m->has_records ? check_no_more(v, err) : compare_tensors(v, err);
}

static binade_status run(struct verifying *v, const char *packed, binade_error *err) {
    struct timespec start;
    uint64_t total;
    clock_gettime(CLOCK_MONOTONIC, &start);
    binade_status status = pack_open(packed, v->options.revision, &v->c, err);
    if (status) return status;
    if (!(v->sha = sha256_new())) return fail_memory(err);
    if (v->options.against) {
        status = hub_resolve(v->options.against, NULL, &v->against_dir, err);
        if (status) return status;
        v->options.against = v->against_dir;
    }
    if ((status = pool_open(&v->pool, v->options.nthreads, err))) return status;
    if ((status = pack_check_index(v->c, err))) return status;
    status = pack_plan(v->c, &v->plans, &v->nplans, &v->copies, &v->progress, &total, err);
    if (status) return status;
    progress_set_total(&v->progress, total);
    if ((status = verify_all(v, err))) return status;
    v->report = (binade_verify_report){
        .nfiles =
            v->c->manifest.has_records ? v->c->manifest.nrecords : v->nplans + v->copies.count,
        .ntensors = v->c->nentries,
        .nbytes = total,
        .proven = v->c->manifest.has_records,
        .compared = v->options.against != NULL,
        .seconds = seconds_since(&start),
    };
    return BINADE_OK;
}

binade_status binade_verify(const char *packed, const binade_verify_options *options,
                            binade_verify_report *report, binade_error *err) {
    struct verifying v = {0};
    binade_status status = copy_options(&v.options, sizeof v.options, options, err);
    if (status) return status;
    progress_open(&v.progress, v.options.event, v.options.user);
    status = run(&v, packed, err);
    pool_close(v.pool);
    for (size_t i = 0; i < v.nplans; i++)
        restore_plan_free(&v.plans[i]);
    free(v.plans);
    copied_files_free(&v.copies);
    sha256_free(v.sha);
    binade_close(v.against);
    free(v.against_dir);
    binade_close(v.c);
    progress_close(&v.progress);
    if (!status && report) *report = v.report;
    return status;
}
