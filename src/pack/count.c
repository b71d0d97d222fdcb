/* count.c - see count.h. */
#include "pack/count.h"

#include <pthread.h>
#include <stdlib.h>

#include "cpu/kernels.h"
#include "pack/piece.h"

struct counting {
    const struct byte_source *source;
    struct count_item *items;
    struct piece_of_item {
        size_t item;
        uint64_t first; /* weight */
    } * pieces;
    uint8_t *scratch;     /* [nthreads][PIECE_NBYTES] */
    pthread_mutex_t lock; /* of the counts */
};

static binade_status count_piece(void *user, size_t i, unsigned worker, binade_error *err) {
    struct counting *c = user;
    struct count_item *item = &c->items[c->pieces[i].item];
    uint64_t first = c->pieces[i].first, left = item->nweights - first;
    size_t n = left < PIECE_NWEIGHTS ? (size_t)left : PIECE_NWEIGHTS;
    uint64_t counts[256] = {0};
    const uint8_t *weights;

    binade_status status = bytes_view(c->source, item->src_offset + 2 * first, 2 * n,
                                      c->scratch + (size_t)worker * PIECE_NBYTES, &weights, err);
    if (status) return status;
    cpu_kernels()->count_exponents(weights, n, counts);
    pthread_mutex_lock(&c->lock);
    for (unsigned e = 0; e < 256; e++)
        item->counts[e] += counts[e];
    pthread_mutex_unlock(&c->lock);
    return BINADE_OK;
}

binade_status count_items(struct pool *pool, const struct byte_source *source,
                          struct count_item *items, size_t nitems, binade_error *err) {
    struct counting c = {source, items, NULL, NULL, PTHREAD_MUTEX_INITIALIZER};
    binade_status status = BINADE_OK;
    size_t npieces = 0;

    for (size_t i = 0; i < nitems; i++)
        npieces += (size_t)ceil_div(items[i].nweights, PIECE_NWEIGHTS);
    if (!npieces) return BINADE_OK;
    c.pieces = malloc(npieces * sizeof *c.pieces);
    c.scratch = malloc((size_t)pool_nthreads(pool) * PIECE_NBYTES);
    if (!c.pieces || !c.scratch) {
        status = fail_memory(err);
        goto done;
    }
    npieces = 0;
    for (size_t i = 0; i < nitems; i++) {
        for (uint64_t first = 0; first < items[i].nweights; first += PIECE_NWEIGHTS)
            c.pieces[npieces++] = (struct piece_of_item){i, first};
    }
    status = pool_run(pool, npieces, count_piece, &c, err);
done:
    free(c.scratch);
    free(c.pieces);
    return status;
}
