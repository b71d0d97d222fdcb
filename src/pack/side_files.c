/* side_files.c - see side_files.h. */
#include "pack/side_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { STEP_NBYTES = 1 << 18 };

struct side_state {
    struct file in, out, against;
    struct sha256 *sha;
    XXH3_state_t *xxh3;
    uint8_t *data, *other; /* [STEP_NBYTES] */
};

static binade_status open_below(struct file *f, const char *dir, const char *path,
                                binade_status (*open)(struct file *, const char *, binade_error *),
                                binade_error *err) {
    char *whole = path_join(dir, path);
    binade_status status = whole ? open(f, whole, err) : fail_memory(err);
    free(whole);
    return status;
}

static binade_status open_all(const struct side_reading *x, const struct side_file *f,
                              struct side_state *s, binade_error *err) {
    binade_status status = open_below(&s->in, x->from_dir, f->path, file_open, err);
    if (status) return status;
    if (x->out) {
        if ((status = staging_make_parents(x->out, f->path, err))) return status;
        if ((status = open_below(&s->out, x->out->path, f->path, file_create, err))) return status;
    }
    if (x->against_dir) {
        if ((status = open_below(&s->against, x->against_dir, f->path, file_open, err)))
            return status;
        if (s->against.nbytes != s->in.nbytes)
            return fail(err, BINADE_E_DATA, "%s: has %" PRIu64 " bytes, the original has %" PRIu64,
                        quote_path(s->against.path).text, s->against.nbytes, s->in.nbytes);
    }
    s->data = malloc(STEP_NBYTES);
    s->other = malloc(STEP_NBYTES);
    s->sha = sha256_new();
    s->xxh3 = XXH3_createState();
    return s->data && s->other && s->sha && s->xxh3 ? BINADE_OK : fail_memory(err);
}

static binade_status compare(const struct side_state *s, uint64_t at, size_t n, binade_error *err) {
    binade_status status = file_read(&s->against, at, s->other, n, err);
    if (status || !memcmp(s->data, s->other, n)) return status;
    size_t i = 0;
    while (s->data[i] == s->other[i])
        i++;
    return fail(err, BINADE_E_DATA, "%s: byte %" PRIu64 " is 0x%02x, the original has 0x%02x",
                quote_path(s->against.path).text, at + i, s->other[i], s->data[i]);
}

static binade_status read_steps(const struct side_reading *x, struct side_state *s,
                                binade_error *err) {
    if (x->digests & SIDE_XXH3) XXH3_64bits_reset(s->xxh3);
    for (uint64_t at = 0; at < s->in.nbytes;) {
        uint64_t left = s->in.nbytes - at;
        size_t n = left < STEP_NBYTES ? (size_t)left : STEP_NBYTES;
        binade_status status = file_read(&s->in, at, s->data, n, err);
        if (status) return status;
        if (x->digests & SIDE_SHA256) sha256_update(s->sha, s->data, n);
        if (x->digests & SIDE_XXH3) XXH3_64bits_update(s->xxh3, s->data, n);
        if (x->out && (status = file_write(&s->out, at, s->data, n, err))) return status;
        if (x->against_dir && (status = compare(s, at, n, err))) return status;
        if ((status = progress_add(x->progress, n, err))) return status;
        at += n;
    }
    return BINADE_OK;
}

binade_status side_file_read(const struct side_reading *x, struct side_file *f, binade_error *err) {
    struct side_state s = {.in = {.fd = -1}, .out = {.fd = -1}, .against = {.fd = -1}};
    binade_status status = open_all(x, f, &s, err);
    if (status) goto done;
    if ((status = read_steps(x, &s, err))) goto done;
    f->nbytes = s.in.nbytes;
    if (x->digests & SIDE_SHA256) sha256_final(s.sha, f->sha256);
    if (x->digests & SIDE_XXH3) f->xxh3 = XXH3_64bits_digest(s.xxh3);
    if (x->out) status = file_sync_close(&s.out, err);
done:
    XXH3_freeState(s.xxh3);
    sha256_free(s.sha);
    free(s.other);
    free(s.data);
    file_close(&s.against);
    file_close(&s.out);
    file_close(&s.in);
    return status;
}

binade_status side_file_size(const char *dir, const char *path, uint64_t *nbytes,
                             binade_error *err) {
    struct file f;
    binade_status status = open_below(&f, dir, path, file_open, err);
    if (status) return status;
    *nbytes = f.nbytes;
    file_close(&f);
    return BINADE_OK;
}

binade_status sha256_file(const struct file *f, struct progress *progress,
                          uint8_t digest[SHA256_NBYTES], binade_error *err) {
    struct sha256 *sha = sha256_new();
    uint8_t *data = malloc(STEP_NBYTES);
    binade_status status = sha && data ? BINADE_OK : fail_memory(err);
    for (uint64_t at = 0; at < f->nbytes && !status;) {
        uint64_t left = f->nbytes - at;
        size_t n = left < STEP_NBYTES ? (size_t)left : STEP_NBYTES;
        status = file_read(f, at, data, n, err);
        if (!status) sha256_update(sha, data, n);
        if (!status) status = progress_add(progress, 0, err);
        at += n;
    }
    if (!status) sha256_final(sha, digest);
    free(data);
    sha256_free(sha);
    return status;
}
