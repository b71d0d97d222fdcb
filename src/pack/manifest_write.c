/* manifest_write.c - see manifest_write.h. */
#include "pack/manifest_write.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "io/json_writer.h"
#include "pack/manifest_names.h"

/* A longer gap is recorded in several pieces; a multiple of 3, so that no piece needs padding. */
enum { GAP_PIECE_NBYTES = 3 << 18 };

static binade_status put(struct text_file *t, binade_error *err, const char *text) {
    return buffer_put(&t->text, text, strlen(text), err);
}

static binade_status put_string(struct text_file *t, const char *text, binade_error *err) {
    return json_put_string(&t->text, text, strlen(text), err);
}

/* ---- Where the model came from ----------------------------------------------------------- */

/* A path below the home directory is written ~/..., so that manifests do not name users. */
static binade_status put_path(struct text_file *t, const char *path, binade_error *err) {
    const char *home = getenv("HOME");
    size_t n = home ? strlen(home) : 0;
    struct buffer shown = {0};
    bool below = n > 1 && !strncmp(path, home, n) && path[n] == '/';
    binade_status status =
        buffer_put_text(&shown, err, "%s%s", below ? "~" : "", below ? path + n : path);
    if (!status && utf8_valid(shown.data, shown.nbytes))
        status = json_put_string(&t->text, shown.data, shown.nbytes, err);
    else if (!status)
        status = put_string(t, quote_path(path).text, err);
    buffer_free(&shown);
    return status;
}

/* .../models--ORG--NAME/snapshots/COMMIT -> repo_id and revision */
static binade_status put_hub_id(struct text_file *t, const char *path, binade_error *err) {
    const char *commit = path_base(path);
    const char *mark = strstr(path, "models--");
    const char *end = mark ? strstr(mark, "/snapshots/") : NULL;
    if (!end || end + strlen("/snapshots/") != commit || strlen(commit) != 40) return BINADE_OK;
    const char *org = mark + strlen("models--"), *dashes = strstr(org, "--");
    if (!dashes || dashes > end || memchr(org, '/', (size_t)(end - org))) return BINADE_OK;
    char id[256];
    snprintf(id, sizeof id, "%.*s/%.*s", (int)(dashes - org), org, (int)(end - dashes - 2),
             dashes + 2);
    binade_status status = put(t, err, ",\n  \"repo_id\": ");
    if (!status) status = put_string(t, id, err);
    if (!status) status = put(t, err, ",\n  \"revision\": ");
    return status ? status : put_string(t, commit, err);
}

static binade_status put_source(struct text_file *t, const char *path, binade_error *err) {
    binade_status status = put(t, err, "{\n \"source\": {\n  \"path\": ");
    if (!status) status = put_path(t, path, err);
    if (!status) status = put_hub_id(t, path, err);
    return status ? status : put(t, err, "\n },\n");
}

/* ---- The published package's fields ------------------------------------------------------- */

static binade_status put_classes(struct text_file *t, unsigned classes, binade_error *err) {
    const char *separator = "";
    binade_status status = put(t, err, " \"classes\": [");
    for (int c = 0; c < BINADE_NCLASSES && !status; c++) {
        if (!(classes & 1u << c)) continue;
        status = buffer_put_text(&t->text, err, "%s\n  \"%s\"", separator, binade_class_name(c));
        separator = ",";
    }
    return status ? status : put(t, err, "\n ],\n");
}

static binade_status put_tensor(struct text_file *t, int format, const struct st_tensor *tensor,
                                const struct packed_size *size, binade_error *err) {
    uint64_t rows, cols;
    shape_rows_cols(tensor, &rows, &cols);
    uint64_t numel = rows * cols, ntiles = rows * row_ntiles(cols);
    binade_status status = json_put_string(&t->text, tensor->name, tensor->name_nbytes, err);
    if (!status)
        status = buffer_put_text(&t->text, err,
                                 ": {\n   \"numel\": %" PRIu64
                                 ",\n   \"distinct\": %u,\n   \"ntiles\": %" PRIu64 ",\n",
                                 numel, size->ndistinct, ntiles);
    if (!status && format == 1)
        status =
            buffer_put_text(&t->text, err, "   \"escapes\": %" PRIu64 ",\n", size->tail_nbytes);
    if (!status)
        status = buffer_put_text(&t->text, err, "   \"bits\": %" PRIu64 "\n  }",
                                 8 * packed_nbytes(tensor, size));
    return status ? status : text_file_flush(t, err);
}

static binade_status put_tensors(struct text_file *t, const struct manifest_facts *f,
                                 binade_error *err) {
    const char *separator = "\n  ";
    binade_status status = put(t, err, " \"tensors\": {");
    for (size_t s = 0; s < f->source->dir.shards.count && !status; s++) {
        const struct st_header *h = &f->source->shards[s].header;
        const struct shard_job *job = &f->shards[s];
        for (size_t i = 0; i < h->count && !status; i++) {
            if (!job->sizes[i].packed) continue;
            status = put(t, err, separator);
            if (!status) status = put_tensor(t, f->x->format, &h->tensors[i], &job->sizes[i], err);
            separator = ",\n  ";
        }
    }
    return status ? status : put(t, err, separator[0] == ',' ? "\n }" : "}");
}

static binade_status put_report(struct text_file *t, const struct manifest_facts *f,
                                binade_error *err) {
    const binade_pack_report *r = f->report;
    /* No %f: its point is whatever the locale of the program around the library has. */
    uint64_t microseconds = (uint64_t)(r->seconds * 1e6);
    binade_status status = buffer_put_text(
        &t->text, err,
        " \"" KEY_MARK
        "\": {\n  \"quant_method\": \"binade\",\n  \"version\": \"%d\",\n  \"tile\": %d\n },\n",
        f->x->format, TILE);
    if (!status) status = put_classes(t, f->classes, err);
    if (!status)
        status =
            buffer_put_text(&t->text, err,
                            " \"git\": \"\",\n \"seconds\": %" PRIu64 ".%06" PRIu64
                            ",\n \"input_bytes\": %" PRIu64 ",\n \"output_bytes\": %" PRIu64
                            ",\n \"packed_numel\": %" PRIu64 ",\n \"packed_bits\": %" PRIu64 ",\n",
                            microseconds / 1000000, microseconds % 1000000, r->input_nbytes,
                            r->output_nbytes, r->nweights, r->nbits);
    return status ? status : put_tensors(t, f, err);
}

/* ---- Records -------------------------------------------------------------------------------- */

static binade_status put_common(struct text_file *t, const char *path, uint64_t nbytes,
                                const uint8_t sha256[SHA256_NBYTES], binade_error *err) {
    char digits[2 * SHA256_NBYTES + 1];
    hex_encode(sha256, SHA256_NBYTES, digits);
    binade_status status = put(t, err, "   {\"" KEY_PATH "\": ");
    if (!status) status = put_string(t, path, err);
    if (status) return status;
    return buffer_put_text(&t->text, err,
                           ", \"" KEY_SIZE "\": %" PRIu64 ", \"" KEY_SHA256 "\": \"%s\"", nbytes,
                           digits);
}

static binade_status put_xxh3(struct text_file *t, const char *before, uint64_t value,
                              binade_error *err) {
    char digits[17];
    hex_encode_u64(value, digits);
    return buffer_put_text(&t->text, err, "%s\"%s\"", before, digits);
}

static binade_status put_gap(struct text_file *t, const char *separator, const struct file *file,
                             uint64_t offset, size_t nbytes, binade_error *err) {
    uint8_t *data = malloc(GAP_PIECE_NBYTES);
    char *digits = malloc(GAP_PIECE_NBYTES / 3 * 4 + 5);
    binade_status status =
        data && digits ? file_read(file, offset, data, nbytes, err) : fail_memory(err);
    if (!status)
        status = buffer_put_text(&t->text, err, "%s[%" PRIu64 ", %zu, ", separator, offset, nbytes);
    if (!status) {
        bool zeros = data[0] == 0 && !memcmp(data, data + 1, nbytes - 1);
        EVP_EncodeBlock((uint8_t *)digits, data, (int)nbytes);
        status = zeros ? put(t, err, "null]") : buffer_put_text(&t->text, err, "\"%s\"]", digits);
    }
    if (!status) status = text_file_flush(t, err);
    free(digits);
    free(data);
    return status;
}

/* What lies between the tensors and behind the last. */
static binade_status put_gaps(struct text_file *t, const struct shard *shard, binade_error *err) {
    const struct st_header *h = &shard->header;
    const char *separator = "";
    uint64_t at = 0;
    binade_status status = put(t, err, ", \"" KEY_GAPS "\": [");
    for (size_t i = 0; i <= h->count && !status; i++) {
        uint64_t next = i < h->count ? h->tensors[i].begin : h->data_nbytes;
        bool empty = i < h->count && h->tensors[i].begin == h->tensors[i].end;
        while (at < next && !empty && !status) {
            uint64_t n = next - at < GAP_PIECE_NBYTES ? next - at : GAP_PIECE_NBYTES;
            status = put_gap(t, separator, &shard->file, 8 + h->header_nbytes + at, (size_t)n, err);
            separator = ", ";
            at += n;
        }
        if (i < h->count && !empty) at = h->tensors[i].end;
    }
    return status ? status : put(t, err, "]");
}

static binade_status put_shard(struct text_file *t, const struct shard *shard,
                               const struct shard_job *job, binade_error *err) {
    binade_status status = put_common(t, shard->name, shard->file.nbytes, job->sha256, err);
    if (!status) status = put(t, err, ", \"" KEY_SHARD "\": ");
    if (!status) status = put_string(t, job->out_name, err);
    if (!status) status = put_xxh3(t, ", \"" KEY_HEADER_XXH3 "\": ", job->header_xxh3, err);
    if (!status) status = put(t, err, ", \"" KEY_PARTS_XXH3 "\": [");
    for (size_t i = 0; i < job->nparts && !status; i++) {
        status = put_xxh3(t, i ? ", " : "", job->parts_xxh3[i], err);
        if (!status) status = text_file_flush(t, err);
    }
    if (!status) status = put(t, err, "]");
    if (!status) status = put_gaps(t, shard, err);
    if (!status) status = put(t, err, ", \"" KEY_HEADER "\": ");
    if (status) return status;

    size_t nbytes = (size_t)shard->header.header_nbytes;
    char *text = malloc(nbytes);
    status = text ? file_read(&shard->file, 8, text, nbytes, err) : fail_memory(err);
    if (!status) status = json_put_string(&t->text, text, nbytes, err);
    free(text);
    return status ? status : put(t, err, "}");
}

/* The index is kept as text: the pack has one of its own in its place. */
static binade_status put_index_text(struct text_file *t, const char *dir, binade_error *err) {
    char *path = path_join(dir, INDEX_NAME), *text = NULL;
    size_t nbytes = 0;
    binade_status status =
        path ? file_slurp(path, ST_HEADER_MAX_NBYTES, &text, &nbytes, err) : fail_memory(err);
    if (!status) status = put(t, err, ", \"" KEY_TEXT "\": ");
    if (!status) status = json_put_string(&t->text, text, nbytes, err);
    free(text);
    free(path);
    return status ? status : put(t, err, "}");
}

static binade_status put_other(struct text_file *t, const char *dir, const struct side_file *f,
                               binade_error *err) {
    binade_status status = put_common(t, f->path, f->nbytes, f->sha256, err);
    if (status) return status;
    if (!strcmp(f->path, INDEX_NAME)) return put_index_text(t, dir, err);
    status = put_xxh3(t, ", \"" KEY_XXH3 "\": ", f->xxh3, err);
    return status ? status : put(t, err, "}");
}

static binade_status put_records(struct text_file *t, const struct manifest_facts *f,
                                 binade_error *err) {
    const struct checkpoint_dir *dir = &f->source->dir;
    binade_status status = buffer_put_text(
        &t->text, err, ",\n \"" KEY_RECORDS "\": {\n  \"" KEY_VERSION "\": %d,\n", RECORDS_VERSION);
    if (!status) status = put_xxh3(t, "  \"" KEY_INDEX_XXH3 "\": ", f->index_xxh3, err);
    if (!status) status = put(t, err, ",\n  \"" KEY_FILES "\": [\n");
    for (size_t i = 0; i < dir->others.count && !status; i++) {
        status = put_other(t, dir->path, &f->others[i], err);
        if (!status) status = put(t, err, ",\n");
        if (!status) status = text_file_flush(t, err);
    }
    for (size_t s = 0; s < dir->shards.count && !status; s++) {
        status = put_shard(t, &f->source->shards[s], &f->shards[s], err);
        if (!status) status = put(t, err, s + 1 < dir->shards.count ? ",\n" : "\n");
        if (!status) status = text_file_flush(t, err);
    }
    return status ? status : put(t, err, "  ]\n },\n");
}

static binade_status put_seal(struct text_file *t, binade_error *err) {
    uint64_t checksum;
    char digits[17];
    binade_status status = text_file_checksum(t, &checksum, err);
    if (status) return status;
    hex_encode_u64(checksum, digits);
    return buffer_put_text(&t->text, err, "%s%s%s", SEAL_BEFORE, digits, SEAL_BEHIND);
}

binade_status manifest_write(const struct manifest_facts *f, binade_error *err) {
    struct text_file t;
    binade_status status = text_file_open(&t, f->x->out_dir, MANIFEST_NAME, err);
    if (!status) status = put_source(&t, f->source->dir.path, err);
    if (!status) status = put_report(&t, f, err);
    if (!status && f->x->records) status = put_records(&t, f, err);
    if (!status) status = f->x->records ? put_seal(&t, err) : put(&t, err, "\n}\n");
    if (!status) status = text_file_finish(&t, err);
    text_file_close(&t);
    return status;
}
