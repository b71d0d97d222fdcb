/* choose.c - see choose.h. */
#include "pack/choose.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/classes.h"
#include "pack/side_files.h"

/* Matrices worth a note: of `other`, one whose last two dimensions are each as large as those of a
 * linear weight; then all that have as many weights as such a one. */
enum { LARGE_MIN_DIM = 256, LARGE_MIN_NWEIGHTS = LARGE_MIN_DIM * LARGE_MIN_DIM };

/* What is carried because of its class. */
struct carried {
    uint64_t ntensors, nbytes;
    unsigned classes; /* bits 1 << class */
    bool has_large_other;
};

static bool is_matrix(const struct st_tensor *t) {
    return !strcmp(t->dtype, "BF16") && (t->ndim == 2 || t->ndim == 3);
}

static void add_carried(struct carried *sum, const struct st_tensor *t) {
    uint64_t nbytes = t->end - t->begin;
    if (!is_matrix(t) || nbytes / 2 < LARGE_MIN_NWEIGHTS) return;
    binade_class class = classify(t);
    sum->ntensors++;
    sum->nbytes += nbytes;
    sum->classes |= 1u << class;
    sum->has_large_other |= class == BINADE_OTHER && t->shape[t->ndim - 1] >= LARGE_MIN_DIM &&
                            t->shape[t->ndim - 2] >= LARGE_MIN_DIM;
}

/* Writes "linear, other" to text. */
static void list_classes(unsigned classes, const char *separator, char *text, size_t capacity) {
    size_t at = 0;
    text[0] = 0;
    for (unsigned c = 0; c < BINADE_NCLASSES && at < capacity; c++) {
        if (!(classes & 1u << c)) continue;
        int n = snprintf(text + at, capacity - at, "%s%s", at ? separator : "",
                         binade_class_name((binade_class)c));
        at += (size_t)n;
    }
}

/* Norms, and parts for other modes than text, are what nobody expects to be packed; large matrices
 * under names that are not known are. */
static void note_carried(const struct choice *c, const struct carried *sum) {
    char found[64], wanted[64];
    if (!sum->has_large_other) return;
    list_classes(sum->classes, ", ", found, sizeof found);
    list_classes(sum->classes | c->classes, ",", wanted, sizeof wanted);
    progress_text(c->progress, BINADE_EVENT_NOTE,
                  "carried unpacked: %" PRIu64
                  " large BF16 matrices, %.1f MB, of class %s; --classes %s packs them",
                  sum->ntensors, (double)sum->nbytes / 1e6, found, wanted);
}

/* Sets used[k] for every pattern that matches. */
static bool is_excluded(const binade_pack_options *o, const char *name, bool *used) {
    bool excluded = false;
    for (size_t k = 0; k < o->nexclude; k++) {
        if (fnmatch(o->exclude[k], name, 0) == 0) used[k] = excluded = true;
    }
    return excluded;
}

static void note_unused(const struct choice *c, const bool *used) {
    for (size_t k = 0; k < c->options->nexclude; k++) {
        const char *pattern = c->options->exclude[k];
        if (!used[k])
            progress_text(c->progress, BINADE_EVENT_NOTE, "--exclude \"%s\" matches no tensor",
                          quote(pattern, strlen(pattern)).text);
    }
}

/* Would one of its parts have the name of another tensor? */
static binade_status has_collision(const struct choice *c, const struct st_tensor *t,
                                   struct buffer *name, bool *collides, binade_error *err) {
    *collides = false;
    for (int part = 0; part < NPARTS && !*collides; part++) {
        const char *suffix = part_suffix(c->format, part);
        name->nbytes = 0;
        binade_status status = buffer_put(name, t->name, t->name_nbytes, err);
        if (!status) status = buffer_put(name, suffix, strlen(suffix), err);
        if (status) return status;
        *collides = binade_find(c->source, name->data, name->nbytes) != SIZE_MAX;
    }
    return BINADE_OK;
}

static binade_status choose_tensor(const struct choice *c, const struct st_tensor *t,
                                   struct buffer *name, bool *packed, binade_error *err) {
    bool collides;
    binade_status status = has_collision(c, t, name, &collides, err);
    if (!status && collides)
        progress_text(c->progress, BINADE_EVENT_NOTE,
                      "%s is carried unpacked: its parts would have the names of other tensors",
                      quote(t->name, t->name_nbytes).text);
    *packed = !status && !collides;
    return status;
}

binade_status choose_tensors(const struct choice *c, struct shard_job *jobs, binade_error *err) {
    struct carried sum = {0};
    struct buffer name = {0};
    binade_status status = BINADE_OK;
    bool *used = calloc(c->options->nexclude + 1, sizeof *used);
    if (!used) return fail_memory(err);
    for (size_t s = 0; s < c->source->dir.shards.count && !status; s++) {
        const struct st_header *h = &c->source->shards[s].header;
        jobs[s].sizes = calloc(h->count + 1, sizeof *jobs[s].sizes);
        if (!jobs[s].sizes) status = fail_memory(err);
        for (size_t i = 0; i < h->count && !status; i++) {
            const struct st_tensor *t = &h->tensors[i];
            if (is_excluded(c->options, t->name, used)) continue;
            if (is_packable(t, c->classes))
                status = choose_tensor(c, t, &name, &jobs[s].sizes[i].packed, err);
            else
                add_carried(&sum, t);
        }
    }
    if (!status) note_unused(c, used);
    if (!status) note_carried(c, &sum);
    buffer_free(&name);
    free(used);
    return status;
}

void note_growth(const struct choice *c, const struct shard_job *jobs) {
    const struct st_tensor *first = NULL;
    uint64_t ntensors = 0, nbytes = 0;
    for (size_t s = 0; s < c->source->dir.shards.count; s++) {
        const struct st_header *h = &c->source->shards[s].header;
        for (size_t i = 0; i < h->count; i++) {
            const struct st_tensor *t = &h->tensors[i];
            uint64_t before = t->end - t->begin;
            if (!jobs[s].sizes[i].packed) continue;
            uint64_t after = packed_nbytes(t, &jobs[s].sizes[i]);
            if (after <= before) continue;
            if (!first) first = t;
            ntensors++;
            nbytes += after - before;
        }
    }
    if (first)
        progress_text(c->progress, BINADE_EVENT_NOTE,
                      "%" PRIu64 " packed %s more room than as BF16, together %" PRIu64
                      " bytes (%s%s); --exclude carries such tensors as they are",
                      ntensors, ntensors == 1 ? "tensor takes" : "tensors take", nbytes,
                      quote(first->name, first->name_nbytes).text,
                      ntensors == 1 ? "" : " and others");
}

static bool is_shard_name(const char *path) {
    return st_is_file_name(path, strlen(path)) && strncmp(path_base(path), "._", 2) != 0;
}

binade_status note_other_shards(const struct choice *c, binade_error *err) {
    const struct checkpoint_dir *d = &c->source->dir;
    const char *first = NULL;
    uint64_t nfiles = 0, nbytes = 0;
    for (size_t i = 0; i < d->others.count; i++) {
        const char *path = d->others.paths[i];
        uint64_t size;
        if (!is_shard_name(path)) continue;
        binade_status status = side_file_size(d->path, path, &size, err);
        if (status) return status;
        if (!first) first = path;
        nfiles++;
        nbytes += size;
    }
    if (first)
        progress_text(c->progress, BINADE_EVENT_NOTE,
                      "carried unpacked: %" PRIu64 " *.safetensors %s, %.1f MB, %s (%s%s)", nfiles,
                      nfiles == 1 ? "file" : "files", (double)nbytes / 1e6,
                      d->has_index ? "that the index does not list" : "in sub-directories",
                      quote_path(first).text, nfiles == 1 ? "" : " and others");
    return BINADE_OK;
}
