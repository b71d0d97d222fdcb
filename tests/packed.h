/* packed.h - a sample in both formats, made by the plain encoders. */
#ifndef BINADE_TESTS_PACKED_H
#define BINADE_TESTS_PACKED_H

#include <stdlib.h>

#include "format/fixed.h"
#include "format/rice.h"
#include "samples.h"

struct packed {
    size_t nweights, ntiles, nbits, nidx, nesc; /* nbits: bytes of the bit stream */
    uint8_t *raw, *rice_meta, *bits, *fixed_meta, *idx, *esc;
    uint64_t *row_start; /* nrows + 1 bytes in the bit stream, always whole words */
};

static inline size_t ntiles_of(const struct sample *s) {
    return s->nrows * ((s->ncols + TILE - 1) / TILE);
}

static inline void *must(void *memory) {
    if (!memory) exit(2);
    return memory;
}

/* Room for the worst case. */
static inline struct packed packed_open(const struct sample *s) {
    size_t nweights = s->nrows * s->ncols, ntiles = ntiles_of(s);
    size_t nbits = ntiles * RICE_TILE_MAX_NBITS / 8 + 4 * s->nrows;

    return (struct packed){
        .nweights = nweights,
        .ntiles = ntiles,
        .raw = must(malloc(nweights)),
        .rice_meta = must(malloc(ntiles)),
        .bits = must(malloc(nbits + STREAM_SLACK)),
        .fixed_meta = must(malloc(ntiles)),
        .idx = must(malloc(ntiles * TILE + STREAM_SLACK)),
        .esc = must(malloc(ntiles * TILE + STREAM_SLACK)),
        .row_start = must(malloc((s->nrows + 1) * sizeof(uint64_t))),
    };
}

static inline void packed_close(struct packed *p) {
    free(p->raw);
    free(p->rice_meta);
    free(p->bits);
    free(p->fixed_meta);
    free(p->idx);
    free(p->esc);
    free(p->row_start);
}

static inline void pack_plain(const struct sample *s, struct packed *p) {
    struct bit_sink sink = {p->bits, 0, 0};
    uint8_t *idx = p->idx, *esc = p->esc;
    size_t tiles_per_row = s->nrows ? p->ntiles / s->nrows : 0;

    for (size_t r = 0; r < s->nrows; r++) {
        const uint8_t *bf16 = s->bf16 + 2 * r * s->ncols;
        uint8_t *raw = p->raw + r * s->ncols;
        p->row_start[r] = (uint64_t)(sink.next - p->bits);
        rice_encode_plain(bf16, s->ncols, s->rank_of, raw, p->rice_meta + r * tiles_per_row, &sink);
        bit_sink_end_row(&sink);
        fixed_encode_plain(bf16, s->ncols, s->rank_of, raw, p->fixed_meta + r * tiles_per_row, &idx,
                           &esc);
    }
    p->nbits = (size_t)(sink.next - p->bits);
    p->row_start[s->nrows] = p->nbits;
    p->nidx = (size_t)(idx - p->idx);
    p->nesc = (size_t)(esc - p->esc);
}

#endif
