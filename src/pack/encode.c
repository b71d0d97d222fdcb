/* encode.c - see encode.h. */
#include "pack/encode.h"

#include <stdlib.h>
#include <xxhash.h>

#include "format/rank_table.h"
#include "pack/count.h"
#include "pack/encode_piece.h"
#include "pack/spool.h"

struct ranks {
    uint8_t table[256], rank_of[256];
};

/* Rows [begin, end) of a packed item, or bytes [begin, end) of the source, of which the first is in
 * `item` and the others in it and the carried items behind it. */
struct encode_task {
    size_t item;
    uint64_t begin, end;
};

struct place {
    struct byte_sink sink;
    uint64_t pos;
};

/* Owned by whoever has the turn. */
struct turn {
    struct place places[NPARTS]; /* where the next bytes of each part of the tensor go */
    uint64_t codes_nbytes;
    XXH3_state_t *hashes[NPARTS];
    struct spool tail;
};

struct encoding {
    struct encoder *e;
    struct encode_item *items;
    struct ranks *ranks; /* [packed items] */
    size_t *ranks_of;    /* [nitems] which of them */
    struct encode_task *tasks;
    size_t ntasks;
    struct piece_scratch *scratch; /* [nthreads] */
    struct turn turn;
};

/* ---- Turns ------------------------------------------------------------------------------- */

static void begin_tensor(struct encoding *x, const struct encode_item *item) {
    struct encoder *e = x->e;
    uint64_t sizes[NPARTS] = {
        [PART_RAW] = item->rows * item->cols,
        [PART_TABLE] = 256,
        [PART_META] = item->rows * row_ntiles(item->cols),
    };
    uint64_t pos = e->pos;
    for (int p = 0; p < NPARTS; p++) {
        x->turn.places[p] = (struct place){e->sink, pos};
        pos += sizes[p];
        if (e->checksums) XXH3_64bits_reset(x->turn.hashes[p]);
    }
    if (e->parts) {
        uint8_t *memory[NPARTS] = {e->parts->raw, e->parts->table, e->parts->meta, e->parts->codes,
                                   e->parts->tail};
        for (int p = 0; p < NPARTS; p++)
            x->turn.places[p] = (struct place){{NULL, memory[p]}, 0};
    }
    x->turn.codes_nbytes = 0;
    spool_clear(&x->turn.tail);
}

/* Takes the next nbytes of a part and returns where they go. */
static struct place take_place(struct encoding *x, enum part part, const void *data,
                               size_t nbytes) {
    struct place place = x->turn.places[part];
    x->turn.places[part].pos += nbytes;
    if (x->e->checksums) XXH3_64bits_update(x->turn.hashes[part], data, nbytes);
    return place;
}

/* Row offsets are counted from the piece until the words before it are known. */
static void shift_row_offsets(const struct encoding *x, struct piece_scratch *s) {
    uint64_t base = x->turn.codes_nbytes / 4;
    for (uint8_t *p = s->tail; p < s->tail + s->tail_nbytes; p += 4) {
        store_le32(p, (uint32_t)(load_le32(p) + base));
    }
}

static binade_status put(const struct encoding *x, const struct place *place, const void *data,
                         size_t nbytes, binade_error *err) {
    return x->e->dry ? BINADE_OK : bytes_write(&place->sink, place->pos, data, nbytes, err);
}

static binade_status write_tail(struct encoding *x, binade_error *err) {
    enum { STEP_NBYTES = 1 << 16 };
    uint8_t step[STEP_NBYTES];
    const struct spool *tail = &x->turn.tail;
    for (uint64_t done = 0; done < tail->nbytes;) {
        uint64_t left = tail->nbytes - done;
        size_t n = left < STEP_NBYTES ? (size_t)left : STEP_NBYTES;
        binade_status status = spool_get(tail, done, step, n, err);
        if (status) return status;
        struct place place = take_place(x, PART_TAIL, step, n);
        if ((status = put(x, &place, step, n, err))) return status;
        done += n;
    }
    return BINADE_OK;
}

static binade_status end_tensor(struct encoding *x, struct encode_item *item, binade_error *err) {
    struct encoder *e = x->e;
    item->codes_nbytes = x->turn.codes_nbytes;
    item->tail_nbytes = x->turn.tail.nbytes;
    if (e->format == 2 && item->codes_nbytes / 4 > UINT32_MAX)
        return fail(err, BINADE_E_DATA,
                    "tensor %s: %llu words of bits, the format holds fewer than 2^32",
                    quote(item->name, item->name_nbytes).text,
                    (unsigned long long)(item->codes_nbytes / 4));
    const uint8_t *table = x->ranks[x->ranks_of[item - x->items]].table;
    struct place place = take_place(x, PART_TABLE, table, 256);
    binade_status status = put(x, &place, table, 256, err);
    if (status) return status;
    if (!e->parts) x->turn.places[PART_TAIL].pos = x->turn.places[PART_CODES].pos;
    if ((status = write_tail(x, err))) return status;
    e->pos = x->turn.places[PART_TAIL].pos;
    for (int p = 0; p < NPARTS && e->checksums; p++)
        item->checksums[p] = XXH3_64bits_digest(x->turn.hashes[p]);
    return BINADE_OK;
}

/* ---- Tasks --------------------------------------------------------------------------------- */

static binade_status encode_rows(struct encoding *x, size_t i, unsigned worker, binade_error *err) {
    const struct encode_task *task = &x->tasks[i];
    struct encode_item *item = &x->items[task->item];
    struct piece_scratch *s = &x->scratch[worker];
    const uint8_t *rank_of = x->ranks[x->ranks_of[task->item]].rank_of;
    uint64_t nrows = task->end - task->begin;
    binade_status status;

    for (uint64_t col = 0; col < item->cols; col += PIECE_NWEIGHTS) {
        uint64_t left = item->cols - col;
        size_t ncols = left < PIECE_NWEIGHTS ? (size_t)left : PIECE_NWEIGHTS;
        bool starts_row = col == 0, ends_row = ncols == left;
        size_t nbytes = 2 * (size_t)nrows * ncols;
        const uint8_t *weights;
        status = bytes_view(&x->e->source, item->src_offset + 2 * (task->begin * item->cols + col),
                            nbytes, s->weights, &weights, err);
        if (status) return status;
        encode_piece(s, rank_of, weights, nrows, ncols, starts_row, ends_row);

        if (starts_row) {
            if (!pool_wait_turn(x->e->pool, i)) return BINADE_E_CANCELLED;
            if (task->begin == 0) begin_tensor(x, item);
        }
        if (x->e->format == 2) shift_row_offsets(x, s);
        struct place raw = take_place(x, PART_RAW, s->raw, s->raw_nbytes);
        struct place meta = take_place(x, PART_META, s->meta, s->meta_nbytes);
        struct place codes = take_place(x, PART_CODES, s->codes, s->codes_nbytes);
        x->turn.codes_nbytes += s->codes_nbytes;
        if ((status = spool_put(&x->turn.tail, s->tail, s->tail_nbytes, err))) return status;
        if (ends_row) {
            if (task->end == item->rows && (status = end_tensor(x, item, err))) return status;
            pool_end_turn(x->e->pool, i);
        }
        if ((status = put(x, &raw, s->raw, s->raw_nbytes, err))) return status;
        if ((status = put(x, &meta, s->meta, s->meta_nbytes, err))) return status;
        if ((status = put(x, &codes, s->codes, s->codes_nbytes, err))) return status;
        if ((status = progress_add(x->e->progress, nbytes, err))) return status;
    }
    return BINADE_OK;
}

/* Hashes carried bytes, which may end one tensor, hold several and begin another. */
static void hash_carried(struct encoding *x, const struct encode_task *task, const uint8_t *data) {
    XXH3_state_t *hash = x->turn.hashes[0];
    uint64_t at = task->begin;
    for (size_t t = task->item; at < task->end; t++) {
        struct encode_item *item = &x->items[t];
        uint64_t item_end = item->src_offset + item->src_nbytes;
        uint64_t end = item_end < task->end ? item_end : task->end;
        if (item->src_nbytes == 0) continue;
        if (at == item->src_offset) XXH3_64bits_reset(hash);
        XXH3_64bits_update(hash, data + (at - task->begin), (size_t)(end - at));
        if (end == item_end) item->checksums[0] = XXH3_64bits_digest(hash);
        at = end;
    }
}

static binade_status carry_bytes(struct encoding *x, size_t i, unsigned worker, binade_error *err) {
    const struct encode_task *task = &x->tasks[i];
    struct encoder *e = x->e;
    size_t nbytes = (size_t)(task->end - task->begin);
    const uint8_t *data;
    binade_status status =
        bytes_view(&e->source, task->begin, nbytes, x->scratch[worker].weights, &data, err);
    if (status) return status;
    if (!pool_wait_turn(e->pool, i)) return BINADE_E_CANCELLED;
    struct place place = {e->sink, e->pos};
    e->pos += nbytes;
    if (e->checksums) hash_carried(x, task, data);
    pool_end_turn(e->pool, i);
    if ((status = put(x, &place, data, nbytes, err))) return status;
    return progress_add(e->progress, nbytes, err);
}

static binade_status run_task(void *user, size_t i, unsigned worker, binade_error *err) {
    struct encoding *x = user;
    return x->items[x->tasks[i].item].packed ? encode_rows(x, i, worker, err)
                                             : carry_bytes(x, i, worker, err);
}

/* ---- Setting up ---------------------------------------------------------------------------- */

/* Carried items from `first` on that lie one behind the other in the source. */
static size_t carried_run_end(const struct encode_item *items, size_t nitems, size_t first,
                              uint64_t *src_end) {
    size_t t = first;
    *src_end = items[first].src_offset;
    while (t < nitems && !items[t].packed && items[t].src_offset == *src_end)
        *src_end += items[t++].src_nbytes;
    return t;
}

/* Adds the tasks of item `t` and returns the item behind them; with `tasks` NULL only counts. */
static size_t add_tasks(const struct encode_item *items, size_t nitems, size_t t,
                        struct encode_task *tasks, size_t *ntasks) {
    const struct encode_item *item = &items[t];
    if (item->packed) {
        uint64_t step = piece_nrows(item->cols);
        for (uint64_t row = 0; row < item->rows; row += step, ++*ntasks) {
            uint64_t end = item->rows - row < step ? item->rows : row + step;
            if (tasks) tasks[*ntasks] = (struct encode_task){t, row, end};
        }
        return t + 1;
    }
    uint64_t src_end, at = item->src_offset;
    size_t behind = carried_run_end(items, nitems, t, &src_end);
    for (; at < src_end; ++*ntasks) {
        uint64_t end = src_end - at < PIECE_NBYTES ? src_end : at + PIECE_NBYTES;
        while (items[t].src_offset + items[t].src_nbytes <= at)
            t++;
        if (tasks) tasks[*ntasks] = (struct encode_task){t, at, end};
        at = end;
    }
    return behind;
}

static binade_status make_tasks(struct encoding *x, size_t nitems, binade_error *err) {
    for (int pass = 0; pass < 2; pass++) {
        x->ntasks = 0;
        for (size_t t = 0; t < nitems;) {
            if (x->e->dry && !x->items[t].packed)
                t++;
            else
                t = add_tasks(x->items, nitems, t, x->tasks, &x->ntasks);
        }
        if (pass == 0 && x->ntasks) {
            x->tasks = malloc(x->ntasks * sizeof *x->tasks);
            if (!x->tasks) return fail_memory(err);
        }
    }
    return BINADE_OK;
}

static binade_status rank_tensors(struct encoding *x, size_t nitems, binade_error *err) {
    size_t npacked = 0;
    for (size_t t = 0; t < nitems; t++)
        npacked += x->items[t].packed;
    struct count_item *counts = calloc(npacked + 1, sizeof *counts);
    x->ranks = malloc((npacked + 1) * sizeof *x->ranks);
    x->ranks_of = malloc((nitems + 1) * sizeof *x->ranks_of);
    if (!counts || !x->ranks || !x->ranks_of) {
        free(counts);
        return fail_memory(err);
    }
    npacked = 0;
    for (size_t t = 0; t < nitems; t++) {
        x->ranks_of[t] = npacked;
        if (!x->items[t].packed) continue;
        counts[npacked].src_offset = x->items[t].src_offset;
        counts[npacked++].nweights = x->items[t].src_nbytes / 2;
    }
    binade_status status = count_items(x->e->pool, &x->e->source, counts, npacked, err);
    for (size_t t = 0; t < nitems && !status; t++) {
        if (!x->items[t].packed) continue;
        const uint64_t *c = counts[x->ranks_of[t]].counts;
        struct ranks *ranks = &x->ranks[x->ranks_of[t]];
        rank_table_build(c, ranks->table, ranks->rank_of);
        for (unsigned e = 0; e < 256; e++)
            x->items[t].ndistinct += c[e] > 0;
    }
    free(counts);
    return status;
}

static binade_status make_scratch(struct encoding *x, binade_error *err) {
    unsigned nthreads = pool_nthreads(x->e->pool);
    x->scratch = calloc(nthreads, sizeof *x->scratch);
    binade_status status = x->scratch ? BINADE_OK : fail_memory(err);
    for (unsigned w = 0; w < nthreads && !status; w++)
        status = piece_scratch_open(&x->scratch[w], x->e->format, err);
    return status;
}

static void free_scratch(struct encoding *x) {
    for (unsigned w = 0; x->scratch && w < pool_nthreads(x->e->pool); w++)
        piece_scratch_close(&x->scratch[w]);
    free(x->scratch);
}

static binade_status open_turn(struct encoding *x, binade_error *err) {
    spool_open(&x->turn.tail, x->e->spool_dir);
    for (int p = 0; p < NPARTS; p++) {
        x->turn.hashes[p] = XXH3_createState();
        if (!x->turn.hashes[p]) return fail_memory(err);
    }
    return BINADE_OK;
}

binade_status encode_items(struct encoder *e, struct encode_item *items, size_t nitems,
                           binade_error *err) {
    struct encoding x = {.e = e, .items = items};
    binade_status status;

    for (size_t t = 0; t < nitems; t++) {
        if (!items[t].packed) items[t].checksums[0] = XXH3_64bits(NULL, 0); /* if it is empty */
    }
    if ((status = open_turn(&x, err))) goto done;
    if ((status = make_scratch(&x, err))) goto done;
    if ((status = rank_tensors(&x, nitems, err))) goto done;
    if ((status = make_tasks(&x, nitems, err))) goto done;
    status = pool_run(e->pool, x.ntasks, run_task, &x, err);
done:
    for (int p = 0; p < NPARTS; p++)
        XXH3_freeState(x.turn.hashes[p]);
    spool_close(&x.turn.tail);
    free_scratch(&x);
    free(x.tasks);
    free(x.ranks_of);
    free(x.ranks);
    return status;
}
