/* pack.c - binade_pack: a checkpoint becomes a packed checkpoint. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/json_writer.h"
#include "pack/call.h"
#include "pack/choose.h"
#include "pack/classes.h"
#include "pack/manifest_write.h"

/* Hashes one source shard beside the packing. */
struct hash_job {
    const struct file *file;
    struct shard_job *result;
    struct progress *progress;
};

struct packing {
    binade_pack_options options;
    unsigned classes;
    binade_checkpoint *source;
    struct shard_job *shards; /* [nshards] */
    struct side_file *others; /* [nothers] */
    struct hash_job *hashes;  /* [nshards] */
    struct staging staging;
    struct progress progress;
    struct pack_context x;
    struct choice choice;
    struct side_reading reading;
    uint64_t index_xxh3;
    binade_pack_report report;
};

static size_t nshards(const struct packing *p) {
    return p->source->dir.shards.count;
}

/* ---- Before anything is written ----------------------------------------------------------- */

static binade_status refuse_pack(const binade_checkpoint *c, binade_error *err) {
    if (c->manifest.format)
        return fail(err, BINADE_E_USAGE, "%s: is a Binade checkpoint already",
                    quote_path(c->dir.path).text);
    for (size_t i = 0; i < c->dir.others.count; i++) {
        if (!strcmp(c->dir.others.paths[i], MANIFEST_NAME))
            return fail(err, BINADE_E_USAGE,
                        "%s: holds a file named %s, which a packed checkpoint needs for itself",
                        quote_path(c->dir.path).text, MANIFEST_NAME);
    }
    return BINADE_OK;
}

/* Whether a file called `name` at the top of the output would be in the way of `path`. */
static bool is_in_the_way(const char *name, const char *path) {
    size_t length = strlen(name);
    return !strncmp(name, path, length) && (path[length] == 0 || path[length] == '/');
}

/* Packed shards stand at the top of the output under their own names, as the published package puts
 * them; where another file has that place, in the same folder as the original. */
static void choose_out_names(struct packing *p) {
    const struct checkpoint_dir *d = &p->source->dir;
    for (size_t s = 0; s < nshards(p); s++) {
        const char *path = d->shards.paths[s], *base = path_base(path);
        bool taken = false;
        for (size_t i = 0; i < d->others.count && !taken; i++)
            taken = is_in_the_way(base, d->others.paths[i]);
        for (size_t i = 0; i < nshards(p) && !taken; i++) {
            const char *other = d->shards.paths[i];
            taken = i != s && (is_in_the_way(base, other) || !strcmp(base, path_base(other)));
        }
        p->shards[s].out_name = taken ? path : base;
    }
}

static void note_left_out(struct packing *p) {
    for (size_t i = 0; i < p->source->dir.left_out.count; i++)
        progress_text(&p->progress, BINADE_EVENT_NOTE, "left out: %s",
                      p->source->dir.left_out.paths[i]);
}

static binade_status prepare(struct packing *p, binade_error *err) {
    const struct checkpoint_dir *d = &p->source->dir;
    p->shards = calloc(nshards(p), sizeof *p->shards);
    p->hashes = calloc(nshards(p), sizeof *p->hashes);
    p->others = calloc(d->others.count + 1, sizeof *p->others);
    if (!p->shards || !p->hashes || !p->others) return fail_memory(err);
    for (size_t s = 0; s < nshards(p); s++) {
        struct shard_job *job = &p->shards[s];
        job->source = &p->source->shards[s];
        p->hashes[s] = (struct hash_job){&job->source->file, job, &p->progress};
        p->report.input_nbytes += job->source->file.nbytes;
    }
    for (size_t i = 0; i < d->others.count; i++)
        p->others[i].path = d->others.paths[i];
    choose_out_names(p);
    note_left_out(p);
    p->choice = (struct choice){
        .source = p->source,
        .options = &p->options,
        .classes = p->classes,
        .format = p->x.format,
        .progress = &p->progress,
    };
    binade_status status = note_other_shards(&p->choice, err);
    return status ? status : choose_tensors(&p->choice, p->shards, err);
}

/* What the output will hold if nothing is saved, as the published package counts. */
static binade_status sum_sizes(struct packing *p, uint64_t *nbytes, binade_error *err) {
    const struct checkpoint_dir *d = &p->source->dir;
    *nbytes = p->report.input_nbytes;
    for (size_t i = 0; i < d->others.count; i++) {
        uint64_t size;
        binade_status status = side_file_size(d->path, d->others.paths[i], &size, err);
        if (status) return status;
        *nbytes += size;
    }
    return BINADE_OK;
}

/* ---- Writing -------------------------------------------------------------------------------- */

static binade_status hash_shard(void *user, binade_error *err) {
    struct hash_job *job = user;
    return sha256_file(job->file, job->progress, job->result->sha256, err);
}

static binade_status pack_shards(struct packing *p, binade_error *err) {
    for (size_t s = 0; s < nshards(p); s++) {
        binade_status status = BINADE_OK;
        if (p->x.records) status = pool_submit(p->x.pool, hash_shard, &p->hashes[s], err);
        if (!status) status = staging_make_parents(&p->staging, p->shards[s].out_name, err);
        if (!status) status = pack_shard(&p->x, &p->shards[s], err);
        if (status) return status;
    }
    return pool_drain(p->x.pool, err);
}

static binade_status read_other(void *user, size_t i, unsigned worker, binade_error *err) {
    struct packing *p = user;
    struct side_reading reading = p->reading;
    (void)worker;
    if (!strcmp(p->others[i].path, INDEX_NAME)) reading.out = NULL; /* the pack has its own */
    return side_file_read(&reading, &p->others[i], err);
}

static binade_status put_weight_map(struct packing *p, struct text_file *t, binade_error *err) {
    const char *separator = "\n  ";
    binade_status status = BINADE_OK;
    for (size_t s = 0; s < nshards(p); s++) {
        const struct st_header *h = &p->source->shards[s].header;
        const struct shard_job *job = &p->shards[s];
        for (size_t i = 0; i < h->count; i++) {
            int nparts = job->sizes[i].packed ? NPARTS : 1;
            for (int part = 0; part < nparts; part++) {
                if ((status = buffer_put_text(&t->text, err, "%s", separator))) return status;
                if ((status = json_put_string(&t->text, h->tensors[i].name,
                                              h->tensors[i].name_nbytes, err)))
                    return status;
                t->text.nbytes--; /* the suffix goes before the closing quote */
                const char *suffix = job->sizes[i].packed ? part_suffix(p->x.format, part) : "";
                if ((status = buffer_put_text(&t->text, err, "%s\": ", suffix))) return status;
                if ((status = json_put_string(&t->text, job->out_name, strlen(job->out_name), err)))
                    return status;
                if ((status = text_file_flush(t, err))) return status;
                separator = ",\n  ";
            }
        }
    }
    return buffer_put_text(&t->text, err, separator[0] == ',' ? "\n }\n}\n" : "}\n}\n");
}

static binade_status write_index(struct packing *p, binade_error *err) {
    struct text_file t;
    uint64_t total = 0;
    for (size_t s = 0; s < nshards(p); s++) {
        if (p->source->shards[s].header.count) total += p->shards[s].out_nbytes;
        p->report.output_nbytes += p->shards[s].out_nbytes;
    }
    binade_status status = text_file_open(&t, p->x.out_dir, INDEX_NAME, err);
    if (!status)
        status = buffer_put_text(
            &t.text, err,
            "{\n \"metadata\": {\n  \"total_size\": %" PRIu64 "\n },\n \"weight_map\": {", total);
    if (!status) status = put_weight_map(p, &t, err);
    if (!status) status = text_file_checksum(&t, &p->index_xxh3, err);
    if (!status) status = text_file_finish(&t, err);
    text_file_close(&t);
    return status;
}

static void count_results(struct packing *p, const struct timespec *start) {
    binade_pack_report *r = &p->report;
    for (size_t s = 0; s < nshards(p); s++) {
        const struct st_header *h = &p->source->shards[s].header;
        r->ntensors += h->count;
        for (size_t i = 0; i < h->count; i++) {
            const struct packed_size *size = &p->shards[s].sizes[i];
            uint64_t rows, cols;
            if (!size->packed) continue;
            shape_rows_cols(&h->tensors[i], &rows, &cols);
            r->npacked++;
            r->nweights += rows * cols;
            r->nbits += 8 * packed_nbytes(&h->tensors[i], size);
        }
    }
    r->nfiles = nshards(p) + p->source->dir.others.count;
    r->seconds = seconds_since(start);
}

/* --force replaces packs only: a slip of the finger must not remove somebody's home. */
static binade_status check_force(const char *out, binade_error *err) {
    struct manifest m;
    if (!path_is_dir(out) || path_is_empty_dir(out)) return BINADE_OK;
    binade_status status = manifest_read(&m, out, err);
    if (status) return status;
    if (!m.format)
        status = fail(err, BINADE_E_USAGE,
                      "%s: is not a Binade checkpoint, and only such a directory is replaced",
                      quote_path(out).text);
    manifest_free(&m);
    return status;
}

static binade_status write_all(struct packing *p, const struct timespec *start, binade_error *err) {
    const struct checkpoint_dir *d = &p->source->dir;
    binade_status status = pack_shards(p, err);
    if (status) return status;
    p->reading = (struct side_reading){
        .from_dir = d->path,
        .out = &p->staging,
        .digests = p->x.records ? SIDE_XXH3 | SIDE_SHA256 : 0,
        .progress = &p->progress,
    };
    if ((status = pool_run(p->x.pool, d->others.count, read_other, p, err))) return status;
    if ((status = write_index(p, err))) return status;
    count_results(p, start);
    note_growth(&p->choice, p->shards);
    struct manifest_facts facts = {
        .source = p->source,
        .x = &p->x,
        .report = &p->report,
        .classes = p->classes,
        .shards = p->shards,
        .others = p->others,
        .index_xxh3 = p->index_xxh3,
    };
    if ((status = manifest_write(&facts, err))) return status;
    for (size_t s = 0; s < nshards(p); s++) {
        if ((status = file_check_unchanged(&p->source->shards[s].file, err))) return status;
    }
    /* The last chance to cancel: an event may have come after the last bytes. */
    if ((status = progress_add(&p->progress, 0, err))) return status;
    /* Again: somebody may have put something of theirs there in the meantime. */
    if (p->options.force && (status = check_force(p->staging.final, err))) return status;
    return staging_commit(&p->staging, err);
}

static binade_status run(struct packing *p, const char *model, const char *out, binade_error *err) {
    struct timespec start;
    uint64_t nbytes;
    clock_gettime(CLOCK_MONOTONIC, &start);
    binade_status status = binade_open(model, p->options.revision, &p->source, err);
    if (status) return status;
    if ((status = refuse_pack(p->source, err))) return status;
    if ((status = prepare(p, err))) return status;
    if (p->options.force && (status = check_force(out, err))) return status;
    if ((status = staging_open(&p->staging, out, p->source->dir.path, p->options.force, err)))
        return status;
    if ((status = sum_sizes(p, &nbytes, err))) return status;
    if ((status = staging_require(&p->staging, nbytes, err))) return status;
    progress_set_total(&p->progress, nbytes);
    if ((status = pool_open(&p->x.pool, p->options.nthreads, err))) return status;
    p->x.out_dir = p->staging.path;
    return write_all(p, &start, err);
}

binade_status binade_pack(const char *model, const char *out, const binade_pack_options *options,
                          binade_pack_report *report, binade_error *err) {
    struct packing p = {.staging = {.lock = -1}};
    if (!out) return fail(err, BINADE_E_USAGE, "no directory to pack into is given");
    binade_status status = copy_options(&p.options, sizeof p.options, options, err);
    if (status) return status;
    p.x.format = p.options.format ? p.options.format : 2;
    if (p.x.format != 1 && p.x.format != 2)
        return fail(err, BINADE_E_USAGE, "format %d: only 1 and 2 exist", p.x.format);
    if ((status = classes_parse(p.options.classes, &p.classes, err))) return status;
    p.x.records = !p.options.no_hash;
    p.x.progress = &p.progress;
    progress_open(&p.progress, p.options.event, p.options.user);
    status = run(&p, model, out, err);

    progress_cancel(&p.progress); /* hash jobs that still run */
    pool_close(p.x.pool);
    staging_discard(&p.staging);
    for (size_t s = 0; p.shards && s < nshards(&p); s++)
        shard_job_free(&p.shards[s]);
    free(p.shards);
    free(p.hashes);
    free(p.others);
    binade_close(p.source);
    progress_close(&p.progress);
    if (!status && report) *report = p.report;
    return status;
}
