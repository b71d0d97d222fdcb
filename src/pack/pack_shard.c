/* pack_shard.c - see pack_shard.h. */
#include "pack/pack_shard.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "pack/encode.h"
#include "pack/encode_piece.h"

/* Tensors are counted and then coded batch by batch, so that the second reading finds the data in
 * memory still, and that a batch has work for every thread. */
enum { BATCH_NBYTES = 64 << 20, BATCH_NITEMS = 4096 };

struct shard_packing {
    const struct pack_context *x;
    struct shard_job *job;
    struct shard_layout layout;
    struct encoder encoder;
    struct encode_item *items; /* [BATCH_NITEMS] */
    struct file out;
};

static void fill_item(const struct shard_packing *p, size_t t, struct encode_item *item) {
    const struct st_header *h = &p->job->source->header;
    const struct st_tensor *tensor = &h->tensors[t];
    *item = (struct encode_item){
        .name = tensor->name,
        .name_nbytes = tensor->name_nbytes,
        .src_offset = 8 + h->header_nbytes + tensor->begin,
        .src_nbytes = tensor->end - tensor->begin,
        .packed = p->job->sizes[t].packed,
    };
    if (item->packed) shape_rows_cols(tensor, &item->rows, &item->cols);
}

static void keep_result(struct shard_packing *p, size_t t, const struct encode_item *item) {
    struct shard_job *job = p->job;
    const struct st_tensor *tensor = &job->source->header.tensors[t];
    int nparts = item->packed ? NPARTS : 1;
    job->sizes[t].codes_nbytes = item->codes_nbytes;
    job->sizes[t].tail_nbytes = item->tail_nbytes;
    job->sizes[t].ndistinct = item->ndistinct;
    if (p->encoder.dry) return;
    for (int i = 0; i < nparts && p->x->records; i++)
        job->parts_xxh3[job->nparts++] = item->checksums[i];
    if (!item->packed) return;
    progress_text(p->x->progress, BINADE_EVENT_TENSOR, "%s: %llu x %llu, %.3f bits a weight",
                  quote(tensor->name, tensor->name_nbytes).text, (unsigned long long)item->rows,
                  (unsigned long long)item->cols,
                  8.0 * (double)packed_nbytes(tensor, &job->sizes[t]) /
                      ((double)item->rows * (double)item->cols));
}

/* Codes every tensor, batch by batch. */
static binade_status encode_all(struct shard_packing *p, binade_error *err) {
    const struct st_header *h = &p->job->source->header;
    for (size_t t = 0; t < h->count;) {
        uint64_t nbytes = 0;
        size_t n = 0;
        while (t + n < h->count && n < BATCH_NITEMS && nbytes < BATCH_NBYTES) {
            fill_item(p, t + n, &p->items[n]);
            nbytes += p->items[n++].src_nbytes;
        }
        binade_status status = encode_items(&p->encoder, p->items, n, err);
        if (status) return status;
        for (size_t i = 0; i < n; i++)
            keep_result(p, t + i, &p->items[i]);
        t += n;
    }
    return BINADE_OK;
}

/* Finds the sizes without writing. */
static binade_status measure_all(struct shard_packing *p, binade_error *err) {
    struct progress uncounted;
    progress_open(&uncounted, NULL, NULL);
    p->encoder.dry = true;
    p->encoder.progress = &uncounted;
    binade_status status = encode_all(p, err);
    p->encoder.dry = false;
    p->encoder.progress = p->x->progress;
    progress_close(&uncounted);
    return status;
}

/* An upper bound of the header's length: no offset or size can need more digits. */
static binade_status bound_header(struct shard_packing *p, uint64_t *nbytes, binade_error *err) {
    const struct st_header *h = &p->job->source->header;
    struct buffer text = {0};
    binade_status status = BINADE_OK;
    for (size_t t = 0; t < h->count && !status; t++) {
        struct packed_size *size = &p->job->sizes[t];
        uint64_t rows, cols;
        if (!size->packed) continue;
        shape_rows_cols(&h->tensors[t], &rows, &cols);
        status =
            encode_bound(p->x->format, rows, cols, &size->codes_nbytes, &size->tail_nbytes, err);
    }
    if (!status) status = layout_put_header(&p->layout, &text, err);
    *nbytes = text.nbytes;
    buffer_free(&text);
    return status;
}

/* The header normally gets the length that the published package reserves; where it would not fit
 * in that, or other readers would refuse that, exactly its own. */
static binade_status choose_header_nbytes(struct shard_packing *p, binade_error *err) {
    uint64_t reserve, bound;
    struct buffer text = {0};
    binade_status status = layout_reserve(&p->layout, &reserve, err);
    if (status) return status;
    if ((status = bound_header(p, &bound, err))) return status;
    p->layout.header_nbytes = reserve;
    if (bound <= reserve && reserve <= ST_HEADER_PORTABLE_NBYTES) return BINADE_OK;
    if ((status = measure_all(p, err))) return status;
    status = layout_put_header(&p->layout, &text, err);
    if (text.nbytes > reserve || reserve > ST_HEADER_PORTABLE_NBYTES)
        p->layout.header_nbytes = text.nbytes;
    buffer_free(&text);
    return status;
}

static binade_status write_header(struct shard_packing *p, binade_error *err) {
    struct buffer text = {0};
    uint64_t header_nbytes = p->layout.header_nbytes;
    uint8_t length[8];
    st_put_length(header_nbytes, length);
    binade_status status = buffer_put(&text, length, 8, err);
    if (!status) status = layout_put_header(&p->layout, &text, err);
    /* Never, unless the data is not what it was when the length was chosen. */
    if (!status && text.nbytes > 8 + header_nbytes)
        status = fail(err, BINADE_E_IO, "%s: changed while it was read",
                      quote_path(p->job->source->file.path).text);
    static const char spaces[] = "                                                                ";
    while (!status && text.nbytes < 8 + header_nbytes) {
        uint64_t left = 8 + header_nbytes - text.nbytes;
        status = buffer_put(&text, spaces,
                            left < sizeof spaces - 1 ? (size_t)left : sizeof spaces - 1, err);
    }
    if (!status) status = file_write(&p->out, 0, text.data, text.nbytes, err);
    p->job->header_xxh3 = status ? 0 : XXH3_64bits(text.data, text.nbytes);
    p->job->out_nbytes = 8 + header_nbytes + p->layout.data_nbytes;
    buffer_free(&text);
    return status;
}

/* The source's bytes that are no tensor's: header and gaps. */
static uint64_t count_rest(const struct shard *source) {
    uint64_t nbytes = source->file.nbytes;
    for (size_t i = 0; i < source->header.count; i++)
        nbytes -= source->header.tensors[i].end - source->header.tensors[i].begin;
    return nbytes;
}

binade_status pack_shard(const struct pack_context *x, struct shard_job *job, binade_error *err) {
    const struct shard *source = job->source;
    struct shard_packing p = {
        .x = x,
        .job = job,
        .layout = {.format = x->format, .source = &source->header, .sizes = job->sizes},
        .encoder = {.format = x->format,
                    .source = {.file = &source->file},
                    .spool_dir = x->out_dir,
                    .checksums = x->records,
                    .pool = x->pool,
                    .progress = x->progress},
        .out = {.fd = -1},
    };
    binade_status status = BINADE_OK;
    char *path = path_join(x->out_dir, job->out_name);
    p.items = malloc(BATCH_NITEMS * sizeof *p.items);
    job->parts_xxh3 = malloc((NPARTS * source->header.count + 1) * sizeof *job->parts_xxh3);
    if (!path || !p.items || !job->parts_xxh3) {
        status = fail_memory(err);
        goto done;
    }
    if ((status = choose_header_nbytes(&p, err))) goto done;
    if ((status = file_create(&p.out, path, err))) goto done;
    p.encoder.sink.file = &p.out;
    p.encoder.pos = 8 + p.layout.header_nbytes;
    if ((status = encode_all(&p, err))) goto done;
    if ((status = write_header(&p, err))) goto done;
    if ((status = progress_add(x->progress, count_rest(source), err))) goto done;
    status = file_sync_close(&p.out, err);
done:
    file_close(&p.out);
    free(p.items);
    free(path);
    return status;
}

void shard_job_free(struct shard_job *job) {
    free(job->sizes);
    free(job->parts_xxh3);
}
