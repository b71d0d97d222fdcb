/* unpack.c - binade_unpack: a packed checkpoint becomes the original again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_file.h"
#include "io/json_writer.h"
#include "pack/call.h"
#include "pack/pack_files.h"
#include "pack/restore.h"
#include "pack/side_files.h"

struct unpacking {
    binade_unpack_options options;
    binade_checkpoint *c;
    struct staging staging;
    struct pool *pool;
    struct progress progress;
    struct restore_plan *plans; /* [nplans] */
    size_t nplans;
    struct copied_files copies;
    binade_unpack_report report;
};

static binade_status create_below(struct unpacking *u, const char *name, struct file *f,
                                  binade_error *err) {
    binade_status status = staging_make_parents(&u->staging, name, err);
    if (status) return status;
    char *path = path_join(u->staging.path, name);
    status = path ? file_create(f, path, err) : fail_memory(err);
    free(path);
    return status;
}

static binade_status unpack_shard(struct unpacking *u, const struct restore_plan *plan,
                                  binade_error *err) {
    struct file out = {.fd = -1};
    struct restore_target target = {.out = &out};
    binade_status status = create_below(u, plan->path, &out, err);
    if (!status) status = restore_shard(u->c, plan, &target, u->pool, &u->progress, err);
    if (!status) status = file_sync_close(&out, err);
    file_close(&out);
    return status;
}

static binade_status copy_file(void *user, size_t i, unsigned worker, binade_error *err) {
    struct unpacking *u = user;
    struct side_reading reading = {
        .from_dir = u->c->dir.path, .out = &u->staging, .progress = &u->progress};
    (void)worker;
    return copied_file_read(&u->copies, i, &reading, err);
}

static binade_status write_text(struct unpacking *u, const struct record *rec, binade_error *err) {
    struct file out = {.fd = -1};
    char *text;
    binade_status status = escaped_text_expand(&rec->text, rec->nbytes, rec->path, &text, err);
    if (status) return status;
    status = create_below(u, rec->path, &out, err);
    if (!status) status = file_write(&out, 0, text, (size_t)rec->nbytes, err);
    if (!status) status = file_sync_close(&out, err);
    file_close(&out);
    free(text);
    return status ? status : progress_add(&u->progress, rec->nbytes, err);
}

/* ---- Without records ----------------------------------------------------------------------- */

static binade_status put_weight_map(const binade_checkpoint *c, struct text_file *t,
                                    binade_error *err) {
    for (size_t i = 0; i < c->nentries; i++) {
        const struct entry *e = &c->entries[i];
        const char *shard = c->shards[e->shard].name;
        binade_status status = buffer_put_text(&t->text, err, "%s    ", i ? ",\n" : "");
        if (!status) status = json_put_string(&t->text, e->name, e->name_nbytes, err);
        if (!status) status = buffer_put_text(&t->text, err, ": ");
        if (!status) status = json_put_string(&t->text, shard, strlen(shard), err);
        if (!status) status = text_file_flush(t, err);
        if (status) return status;
    }
    return buffer_put_text(&t->text, err, "\n  }\n}\n");
}

/* Loaders need an index to find the tensors of several shards, or to pass over a file that looks
 * like a shard and is none. */
static bool needs_index(const struct unpacking *u) {
    bool needed = u->nplans > 1;
    for (size_t i = 0; i < u->copies.count; i++) {
        const char *path = u->copies.paths[i];
        needed |= !strchr(path, '/') && st_is_file_name(path, strlen(path));
    }
    return needed && u->c->nentries > 0;
}

static binade_status write_index(struct unpacking *u, binade_error *err) {
    struct text_file t;
    uint64_t total = 0;
    for (size_t i = 0; i < u->c->nentries; i++)
        total += entry_nbytes(&u->c->entries[i]);
    binade_status status = text_file_open(&t, u->staging.path, INDEX_NAME, err);
    if (!status)
        status = buffer_put_text(&t.text, err,
                                 "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64
                                 "\n  },\n  \"weight_map\": {\n",
                                 total);
    if (!status) status = put_weight_map(u->c, &t, err);
    if (!status) status = text_file_finish(&t, err);
    text_file_close(&t);
    return status;
}

/* Old packs mark themselves in config.json, which the original did not hold. */
static binade_status unmark_config(struct unpacking *u, binade_error *err) {
    char *path = path_join(u->c->dir.path, "config.json"), *text = NULL;
    size_t nbytes, begin, end;
    int format = 0;
    struct file out = {.fd = -1};
    binade_status status =
        path ? file_slurp(path, ST_HEADER_MAX_NBYTES, &text, &nbytes, err) : fail_memory(err);
    if (!status) status = config_find_mark(text, nbytes, path, &format, &begin, &end, err);
    if (!status) status = create_below(u, "config.json", &out, err);
    if (!status) status = file_write(&out, 0, text, begin, err);
    if (!status) status = file_write(&out, begin, text + end, nbytes - end, err);
    if (!status) status = file_sync_close(&out, err);
    file_close(&out);
    free(text);
    free(path);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------
 */

static binade_status prepare(struct unpacking *u, binade_error *err) {
    const binade_checkpoint *c = u->c;
    const struct manifest *m = &c->manifest;
    uint64_t total;
    binade_status status = pack_check_index(c, err);
    if (!status)
        status = pack_plan(c, &u->plans, &u->nplans, &u->copies, &u->progress, &total, err);
    if (status) return status;
    for (size_t i = 0; i < u->nplans; i++) {
        u->report.input_nbytes += u->plans[i].shard->file.nbytes;
        u->report.output_nbytes += u->plans[i].nbytes;
    }
    u->report.ntensors = c->nentries;
    u->report.whole_files = m->has_records;
    u->report.nfiles = m->has_records
                           ? m->nrecords
                           : u->nplans + u->copies.count + u->copies.marked_config + needs_index(u);
    if ((status = staging_require(&u->staging, total, err))) return status;
    progress_set_total(&u->progress, total);
    return BINADE_OK;
}

static binade_status write_all(struct unpacking *u, binade_error *err) {
    const struct manifest *m = &u->c->manifest;
    binade_status status = BINADE_OK;
    for (size_t i = 0; i < u->nplans && !status; i++)
        status = unpack_shard(u, &u->plans[i], err);
    if (!status) status = pool_run(u->pool, u->copies.count, copy_file, u, err);
    for (size_t i = 0; i < m->nrecords && !status; i++) {
        if (m->records[i].kind == RECORD_TEXT) status = write_text(u, &m->records[i], err);
    }
    if (!status && !m->has_records && needs_index(u)) status = write_index(u, err);
    if (!status && u->copies.marked_config) status = unmark_config(u, err);
    if (!status) status = progress_add(&u->progress, 0, err); /* the last chance to cancel */
    return status ? status : staging_commit(&u->staging, err);
}

static binade_status run(struct unpacking *u, const char *packed, const char *out,
                         binade_error *err) {
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    binade_status status = pack_open(packed, u->options.revision, &u->c, err);
    if (status) return status;
    if ((status = staging_open(&u->staging, out, u->c->dir.path, false, err))) return status;
    if ((status = pool_open(&u->pool, u->options.nthreads, err))) return status;
    if ((status = prepare(u, err))) return status;
    status = write_all(u, err);
    u->report.seconds = seconds_since(&start);
    return status;
}

binade_status binade_unpack(const char *packed, const char *out,
                            const binade_unpack_options *options, binade_unpack_report *report,
                            binade_error *err) {
    struct unpacking u = {.staging = {.lock = -1}};
    if (!out) return fail(err, BINADE_E_USAGE, "no directory to unpack into is given");
    binade_status status = copy_options(&u.options, sizeof u.options, options, err);
    if (status) return status;
    progress_open(&u.progress, u.options.event, u.options.user);
    status = run(&u, packed, out, err);
    pool_close(u.pool);
    staging_discard(&u.staging);
    for (size_t i = 0; i < u.nplans; i++)
        restore_plan_free(&u.plans[i]);
    free(u.plans);
    copied_files_free(&u.copies);
    binade_close(u.c);
    progress_close(&u.progress);
    if (!status && report) *report = u.report;
    return status;
}
