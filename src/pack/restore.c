/* restore.c - see restore.h. */
#include "pack/restore.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
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
    const struct restore_target *target;
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
    uint64_t sha_pos; /* original bytes hashed so far */
    size_t next_gap;
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

static void hash_zeros(struct sha256 *sha, uint64_t nbytes) {
    static const uint8_t zeros[4096];
    for (; nbytes > sizeof zeros; nbytes -= sizeof zeros)
        sha256_update(sha, zeros, sizeof zeros);
    sha256_update(sha, zeros, (size_t)nbytes);
}

/* Hashes the recorded gaps up to `offset` of the original file. */
static binade_status hash_gaps(struct restoring *x, uint64_t offset, binade_error *err) {
    const struct record *rec = x->plan->record;
    while (x->sha_pos < offset && rec && x->next_gap < rec->ngaps) {
        const struct gap *gap = &rec->gaps[x->next_gap++];
        uint8_t *data;
        binade_status status = gap_expand(gap, x->plan->path, &data, err);
        if (status) return status;
        if (data)
            sha256_update(x->target->sha, data, (size_t)gap->nbytes);
        else
            hash_zeros(x->target->sha, gap->nbytes);
        free(data);
        x->sha_pos += gap->nbytes;
    }
    return BINADE_OK;
}

static binade_status hash_original(struct restoring *x, uint64_t offset, const uint8_t *data,
                                   size_t nbytes, binade_error *err) {
    if (!x->target->sha) return BINADE_OK;
    binade_status status = hash_gaps(x, offset, err);
    if (status) return status;
    if (x->sha_pos != offset)
        return fail(err, BINADE_E_DATA, "%s: its tensors are not in the recorded original's order",
                    quote_path(x->plan->shard->file.path).text);
    sha256_update(x->target->sha, data, nbytes);
    x->sha_pos += nbytes;
    return BINADE_OK;
}

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

/* Writes and compares what does not depend on the order. */
static binade_status deliver(struct restoring *x, const struct entry *e, uint64_t offset,
                             const uint8_t *data, size_t nbytes, uint8_t *other,
                             binade_error *err) {
    const struct file *against = x->target->against;
    binade_status status = BINADE_OK;
    if (x->target->out) status = file_write(x->target->out, offset, data, nbytes, err);
    if (status || !against) return status;
    if ((status = file_read(against, offset, other, nbytes, err))) return status;
    if (!memcmp(data, other, nbytes)) return BINADE_OK;
    size_t i = 0;
    while (data[i] == other[i])
        i++;
    return fail(err, BINADE_E_DATA,
                "%s: tensor %s: byte %" PRIu64 " of the file is 0x%02x, the original has 0x%02x",
                quote_path(against->path).text, quote(e->name, e->name_nbytes).text, offset + i,
                other[i], data[i]);
}

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
    binade_status status =
        deliver(x, e, offset, piece->weights, piece->weights_nbytes, u->worker->other, err);
    if (status) return status;
    if (piece->col == 0 && !pool_wait_turn(x->pool, u->task)) return BINADE_E_CANCELLED;
    if ((status = hash_piece(x, e, t, piece, err))) return status;
    if ((status = hash_original(x, offset, piece->weights, piece->weights_nbytes, err)))
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
    if ((status = deliver(x, e, offset, data, nbytes, w->other, err))) return status;
    if (!pool_wait_turn(x->pool, i)) return BINADE_E_CANCELLED;
    if ((status = hash_carried(x, task, data, err))) return status;
    if ((status = hash_original(x, offset, data, nbytes, err))) return status;
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

/* ---- What is not a tensor ----------------------------------------------------------------------
 */

static binade_status compare_bytes(const struct restoring *x, uint64_t offset, const void *data,
                                   size_t nbytes, binade_error *err) {
    const struct file *against = x->target->against;
    uint8_t *other = malloc(nbytes + 1);
    binade_status status =
        other ? file_read(against, offset, other, nbytes, err) : fail_memory(err);
    if (!status && memcmp(data, other, nbytes))
        status = fail(err, BINADE_E_DATA,
                      "%s: differs from the original within bytes %" PRIu64 " to %" PRIu64
                      ", outside of its tensors",
                      quote_path(against->path).text, offset, offset + nbytes);
    free(other);
    return status;
}

static binade_status compare_zeros(const struct restoring *x, uint64_t offset, uint64_t nbytes,
                                   binade_error *err) {
    static const uint8_t zeros[4096];
    binade_status status = BINADE_OK;
    for (uint64_t done = 0; done < nbytes && !status; done += sizeof zeros) {
        uint64_t left = nbytes - done;
        status = compare_bytes(x, offset + done, zeros,
                               left < sizeof zeros ? (size_t)left : sizeof zeros, err);
    }
    return status;
}

static binade_status deliver_header(struct restoring *x, binade_error *err) {
    const struct restore_plan *plan = x->plan;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(plan->header_nbytes >> 8 * i);
    const struct {
        uint64_t offset;
        const void *data;
        size_t nbytes;
    } pieces[] = {{0, length, 8}, {8, plan->header, (size_t)plan->header_nbytes}};
    for (int i = 0; i < 2; i++) {
        binade_status status = BINADE_OK;
        if (x->target->out)
            status =
                file_write(x->target->out, pieces[i].offset, pieces[i].data, pieces[i].nbytes, err);
        if (!status && x->target->against)
            status = compare_bytes(x, pieces[i].offset, pieces[i].data, pieces[i].nbytes, err);
        if (!status)
            status = hash_original(x, pieces[i].offset, pieces[i].data, pieces[i].nbytes, err);
        if (status) return status;
    }
    return BINADE_OK;
}

/* Gaps of zeros need no writing: the file is given its length and holds zeros where nothing is. */
static binade_status deliver_gaps(struct restoring *x, binade_error *err) {
    const struct record *rec = x->plan->record;
    for (size_t g = 0; rec && g < rec->ngaps; g++) {
        const struct gap *gap = &rec->gaps[g];
        uint8_t *data;
        binade_status status = gap_expand(gap, x->plan->path, &data, err);
        if (!status && data && x->target->out)
            status = file_write(x->target->out, gap->offset, data, (size_t)gap->nbytes, err);
        if (!status && data && x->target->against)
            status = compare_bytes(x, gap->offset, data, (size_t)gap->nbytes, err);
        if (!status && !data && x->target->against)
            status = compare_zeros(x, gap->offset, gap->nbytes, err);
        free(data);
        if (status) return status;
    }
    if (x->target->out && ftruncate(x->target->out->fd, (off_t)x->plan->nbytes))
        return fail_errno(err, errno, "%s: cannot be given its length",
                          quote_path(x->target->out->path).text);
    return BINADE_OK;
}

binade_status restore_shard(const binade_checkpoint *c, const struct restore_plan *plan,
                            const struct restore_target *target, struct pool *pool,
                            struct progress *progress, binade_error *err) {
    struct restoring x = {
        .c = c, .plan = plan, .target = target, .pool = pool, .progress = progress};
    size_t nentries = plan->shard->nentries;
    binade_status status = BINADE_OK;
    x.tensors = calloc(nentries + 1, sizeof *x.tensors);
    if (!x.tensors) {
        status = fail_memory(err);
        goto done;
    }
    if ((status = open_workers(&x, err))) goto done;
    if (plan->record && (status = check_header(&x, err))) goto done;
    if ((status = deliver_header(&x, err))) goto done;
    if ((status = deliver_gaps(&x, err))) goto done;
    if ((status = pool_run(pool, nentries, describe_tensor, &x, err))) goto done;
    if ((status = make_tasks(&x, err))) goto done;
    if ((status = pool_run(pool, x.ntasks, run_task, &x, err))) goto done;
    if (target->sha) status = hash_gaps(&x, plan->nbytes, err);
done:
    for (size_t i = 0; x.tensors && i < nentries; i++)
        free(x.tensors[i]);
    free(x.tensors);
    free(x.tasks);
    close_workers(&x);
    return status;
}
