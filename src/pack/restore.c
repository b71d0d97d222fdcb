/* restore.c - see restore.h. */
#include "pack/restore_output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

/* Rows [begin, end) of a packed entry; or bytes [begin, end) of the packed file, of which the first
 * is in `entry` and the others in it and the carried entries behind it. */
struct restore_task {
    size_t entry;
    uint64_t begin, end;
};

struct restoring {
    const binade_checkpoint *c;
    const struct restore_plan *plan;
    struct restore_output output;
    struct pool *pool;
    struct progress *progress;
    struct packed_tensor **tensors; /* [nentries], NULL: carried */
    struct restore_task *tasks;
    size_t ntasks;
    struct worker {
        struct decode_scratch scratch;
        uint8_t *other; /* [PIECE_NBYTES] of the file to compare with */
    } * workers;        /* [nthreads] */

    /* Owned by whoever has the turn. */
    XXH3_state_t *hashes[NPARTS];
};

static const struct entry *entry_at(const struct restoring *x, size_t i) {
    return &x->c->entries[x->plan->shard->entry0 + i];
}

/* Where the data of a part or carried tensor begins in the packed file. */
static uint64_t file_offset(const struct restoring *x, const struct st_tensor *t) {
    return 8 + x->plan->shard->header.header_nbytes + t->begin;
}

/* ---- Checksums ----------------------------------------------------------------------------- */

static binade_status check_part(const struct restoring *x, const struct st_tensor *part,
                                uint64_t found, binade_error *err) {
    const struct st_header *h = &x->plan->shard->header;
    uint64_t recorded = x->plan->record->parts_xxh3[part - h->tensors];
    if (found == recorded) return BINADE_OK;
    return fail(err, BINADE_E_DATA,
                "%s: tensor %s: its checksum is %016" PRIx64 ", recorded is %016" PRIx64,
                quote_path(x->plan->shard->file.path).text,
                quote(part->name, part->name_nbytes).text, found, recorded);
}

/* The packed header's checksum, and that nothing but tensors follows it. */
static binade_status check_header(const struct restoring *x, binade_error *err) {
    const struct shard *shard = x->plan->shard;
    const struct st_header *h = &shard->header;
    size_t nbytes = 8 + (size_t)h->header_nbytes;
    uint64_t at = 0;
    char *text = malloc(nbytes);
    binade_status status = text ? file_read(&shard->file, 0, text, nbytes, err) : fail_memory(err);
    uint64_t found = status ? 0 : XXH3_64bits(text, nbytes);
    free(text);
    if (status) return status;
    if (found != x->plan->record->xxh3)
        return fail(err, BINADE_E_DATA,
                    "%s: its header's checksum is %016" PRIx64 ", recorded is %016" PRIx64,
                    quote_path(shard->file.path).text, found, x->plan->record->xxh3);
    for (size_t i = 0; i < h->count; i++) {
        if (h->tensors[i].begin != at) break;
        at = h->tensors[i].end;
    }
    if (at != h->data_nbytes)
        return fail(err, BINADE_E_DATA,
                    "%s: bytes that belong to no tensor at byte %" PRIu64 " of its data",
                    quote_path(shard->file.path).text, at);
    return BINADE_OK;
}

/* ---- Turns: what must happen in order ----------------------------------------------------- */

static binade_status hash_piece(struct restoring *x, const struct entry *e,
                                const struct packed_tensor *t, const struct decoded_piece *piece,
                                binade_error *err) {
    if (!x->plan->record) return BINADE_OK;
    bool begins = piece->row == 0 && piece->col == 0;
    bool ends = piece->row + piece->nrows == t->rows && piece->col + piece->ncols == t->cols;
    for (int p = 0; p < NPARTS; p++) {
        if (p == PART_TABLE) continue;
        if (begins) XXH3_64bits_reset(x->hashes[p]);
        XXH3_64bits_update(x->hashes[p], piece->parts[p], piece->parts_nbytes[p]);
        if (!ends) continue;
        binade_status status = check_part(x, e->parts[p], XXH3_64bits_digest(x->hashes[p]), err);
        if (status) return status;
    }
    return BINADE_OK;
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

struct rows_use {
    struct restoring *x;
    size_t task;
    struct worker *worker;
};

static binade_status use_rows(void *user, const struct decoded_piece *piece, binade_error *err) {
    const struct rows_use *u = user;
    struct restoring *x = u->x;
    size_t i = x->tasks[u->task].entry;
    const struct entry *e = entry_at(x, i);
    const struct packed_tensor *t = x->tensors[i];
    uint64_t offset = x->plan->offsets[i] + 2 * (piece->row * t->cols + piece->col);
    binade_status status = output_deliver(&x->output, i, offset, piece->weights,
                                          piece->weights_nbytes, u->worker->other, err);
    if (status) return status;
    if (piece->col == 0 && !pool_wait_turn(x->pool, u->task)) return BINADE_E_CANCELLED;
    if ((status = hash_piece(x, e, t, piece, err))) return status;
    if ((status = output_hash(&x->output, offset, piece->weights, piece->weights_nbytes, err)))
        return status;
    if (piece->last) pool_end_turn(x->pool, u->task);
    return progress_add(x->progress, piece->weights_nbytes, err);
}

/* Checks carried bytes, which may end one tensor, hold several and begin another. */
static binade_status hash_carried(struct restoring *x, const struct restore_task *task,
                                  const uint8_t *data, binade_error *err) {
    if (!x->plan->record) return BINADE_OK;
    uint64_t at = task->begin;
    for (size_t i = task->entry; at < task->end; i++) {
        const struct st_tensor *t = entry_at(x, i)->tensor;
        uint64_t begin = file_offset(x, t), end = begin + (t->end - t->begin);
        uint64_t stop = end < task->end ? end : task->end;
        if (t->begin == t->end) continue;
        if (at == begin) XXH3_64bits_reset(x->hashes[0]);
        XXH3_64bits_update(x->hashes[0], data + (at - task->begin), (size_t)(stop - at));
        at = stop;
        if (stop != end) continue;
        binade_status status = check_part(x, t, XXH3_64bits_digest(x->hashes[0]), err);
        if (status) return status;
    }
    return BINADE_OK;
}

static binade_status restore_carried(struct restoring *x, size_t i, struct worker *w,
                                     binade_error *err) {
    const struct restore_task *task = &x->tasks[i];
    const struct entry *e = entry_at(x, task->entry);
    size_t nbytes = (size_t)(task->end - task->begin);
    uint8_t *data = w->scratch.weights;
    uint64_t offset = x->plan->offsets[task->entry] + (task->begin - file_offset(x, e->tensor));
    binade_status status = file_read(&x->plan->shard->file, task->begin, data, nbytes, err);
    if (status) return status;
    if ((status = output_deliver(&x->output, task->entry, offset, data, nbytes, w->other, err)))
        return status;
    if (!pool_wait_turn(x->pool, i)) return BINADE_E_CANCELLED;
    if ((status = hash_carried(x, task, data, err))) return status;
    if ((status = output_hash(&x->output, offset, data, nbytes, err))) return status;
    pool_end_turn(x->pool, i);
    return progress_add(x->progress, nbytes, err);
}

static binade_status run_task(void *user, size_t i, unsigned worker, binade_error *err) {
    struct restoring *x = user;
    const struct restore_task *task = &x->tasks[i];
    struct worker *w = &x->workers[worker];
    if (!entry_at(x, task->entry)->parts) return restore_carried(x, i, w, err);
    struct rows_use use = {x, i, w};
    return decode_rows(x->tensors[task->entry], task->begin, task->end, &w->scratch, use_rows, &use,
                       err);
}

static binade_status describe_tensor(void *user, size_t i, unsigned worker, binade_error *err) {
    struct restoring *x = user;
    const struct entry *e = entry_at(x, i);
    (void)worker;
    if (!e->parts) {
        /* The one checksum that no task will check. */
        bool empty = e->tensor->begin == e->tensor->end;
        return empty && x->plan->record ? check_part(x, e->tensor, XXH3_64bits(NULL, 0), err)
                                        : BINADE_OK;
    }
    struct packed_tensor *t = x->tensors[i] = malloc(sizeof *t);
    if (!t) return fail_memory(err);
    binade_status status = checkpoint_describe(x->c, x->plan->shard->entry0 + i, t, err);
    if (status || !x->plan->record) return status;
    return check_part(x, e->parts[PART_TABLE], XXH3_64bits(t->table, sizeof t->table), err);
}

/* ---- Setting up ------------------------------------------------------------------------------ */

/* Carried entries from `first` on that lie one behind the other in both files. */
static size_t carried_run_end(const struct restoring *x, size_t first, uint64_t *file_end) {
    uint64_t begin = file_offset(x, entry_at(x, first)->tensor);
    size_t i = first;
    *file_end = begin;
    for (; i < x->plan->shard->nentries; i++) {
        const struct entry *e = entry_at(x, i);
        uint64_t done = *file_end - begin;
        if (e->parts || file_offset(x, e->tensor) != *file_end ||
            x->plan->offsets[i] != x->plan->offsets[first] + done)
            break;
        *file_end += e->tensor->end - e->tensor->begin;
    }
    return i;
}

/* Adds the tasks of entry `i` and returns the entry behind them; without x->tasks only counts. */
static size_t add_tasks(struct restoring *x, size_t i) {
    if (entry_at(x, i)->parts) {
        const struct packed_tensor *t = x->tensors[i];
        uint64_t step = piece_nrows(t->cols);
        for (uint64_t row = 0; row < t->rows; row += step, x->ntasks++) {
            uint64_t end = t->rows - row < step ? t->rows : row + step;
            if (x->tasks) x->tasks[x->ntasks] = (struct restore_task){i, row, end};
        }
        return i + 1;
    }
    uint64_t file_end, at = file_offset(x, entry_at(x, i)->tensor);
    size_t behind = carried_run_end(x, i, &file_end);
    for (; at < file_end; x->ntasks++) {
        uint64_t end = file_end - at < PIECE_NBYTES ? file_end : at + PIECE_NBYTES;
        for (const struct st_tensor *t;
             t = entry_at(x, i)->tensor, file_offset(x, t) + (t->end - t->begin) <= at;)
            i++;
        if (x->tasks) x->tasks[x->ntasks] = (struct restore_task){i, at, end};
        at = end;
    }
    return behind;
}

static binade_status make_tasks(struct restoring *x, binade_error *err) {
    for (int pass = 0; pass < 2; pass++) {
        x->ntasks = 0;
        for (size_t i = 0; i < x->plan->shard->nentries;)
            i = add_tasks(x, i);
        if (pass == 0) x->tasks = malloc((x->ntasks + 1) * sizeof *x->tasks);
        if (!x->tasks) return fail_memory(err);
    }
    return BINADE_OK;
}

static binade_status open_workers(struct restoring *x, binade_error *err) {
    unsigned nthreads = pool_nthreads(x->pool);
    x->workers = calloc(nthreads, sizeof *x->workers);
    if (!x->workers) return fail_memory(err);
    for (unsigned w = 0; w < nthreads; w++) {
        binade_status status = decode_scratch_open(&x->workers[w].scratch, err);
        if (status) return status;
        if (!(x->workers[w].other = malloc(PIECE_NBYTES))) return fail_memory(err);
    }
    for (int p = 0; p < NPARTS; p++) {
        if (!(x->hashes[p] = XXH3_createState())) return fail_memory(err);
    }
    return BINADE_OK;
}

static void close_workers(struct restoring *x) {
    for (unsigned w = 0; x->workers && w < pool_nthreads(x->pool); w++) {
        decode_scratch_close(&x->workers[w].scratch);
        free(x->workers[w].other);
    }
    free(x->workers);
    for (int p = 0; p < NPARTS; p++)
        XXH3_freeState(x->hashes[p]);
}

binade_status restore_shard(const binade_checkpoint *c, const struct restore_plan *plan,
                            const struct restore_target *target, struct pool *pool,
                            struct progress *progress, binade_error *err) {
    struct restoring x = {.c = c,
                          .plan = plan,
                          .output = {.plan = plan,
                                     .target = target,
                                     .entries = c->entries + plan->shard->entry0,
                                     .progress = progress},
                          .pool = pool,
                          .progress = progress};
    size_t nentries = plan->shard->nentries;
    binade_status status = BINADE_OK;
    x.tensors = calloc(nentries + 1, sizeof *x.tensors);
    if (!x.tensors) {
        status = fail_memory(err);
        goto done;
    }
    if ((status = open_workers(&x, err))) goto done;
    if (plan->record && (status = check_header(&x, err))) goto done;
    if ((status = output_header(&x.output, err))) goto done;
    if ((status = output_gaps(&x.output, err))) goto done;
    if ((status = pool_run(pool, nentries, describe_tensor, &x, err))) goto done;
    if ((status = make_tasks(&x, err))) goto done;
    if ((status = pool_run(pool, x.ntasks, run_task, &x, err))) goto done;
    status = output_end(&x.output, err);
done:
    for (size_t i = 0; x.tensors && i < nentries; i++)
        free(x.tensors[i]);
    free(x.tensors);
    free(x.tasks);
    close_workers(&x);
    return status;
}
