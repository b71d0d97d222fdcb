/* fuzz_format2.c - decoding any parts of format 2: a slow decoder beside ours accepts the same and
 * gives the same weights, and neither reads outside of the parts. The input is that of parts.h. */
#include <stdlib.h>

#include "parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes);

enum { TILE_NWEIGHTS = 128 };

/* Bits [pos, end) of `bytes`, or with `bytes` NULL bits from `pos` on of a pattern. */
struct bits {
    const uint8_t *bytes;
    struct pattern pattern;
    uint64_t pos, end;
    bool passed_end;
};

static unsigned get_bit(struct bits *s) {
    uint64_t at = s->pos++;
    if (!s->bytes) return pattern_at(s->pattern, at / 8) >> at % 8 & 1;
    if (at >= s->end) s->passed_end = true;
    return s->passed_end ? 0 : s->bytes[at / 8] >> at % 8 & 1;
}

static bool is_valid(uint8_t meta) {
    return (unsigned)(meta >> 2) << (meta & 3) <= 255;
}

static uint8_t repair_meta(uint8_t meta) {
    return is_valid(meta) ? meta : meta & 0x7f;
}

/* Reads n ranks of a tile. */
static void get_tile(struct bits *s, uint8_t meta, unsigned n, unsigned ranks[TILE_NWEIGHTS]) {
    unsigned k = meta & 3, qmax = meta >> 2;
    bool ended[TILE_NWEIGHTS] = {false};
    for (unsigned i = 0; i < n; i++) {
        ranks[i] = 0;
        for (unsigned b = 0; b < k; b++)
            ranks[i] |= get_bit(s) << b;
    }
    for (unsigned j = 0; j < qmax && !s->passed_end; j++) {
        for (unsigned i = 0; i < n; i++) {
            if (ended[i]) continue;
            ended[i] = get_bit(s) == 0;
            if (!ended[i]) ranks[i] += 1u << k;
        }
    }
}

static uint32_t get_word(const uint8_t *bytes, uint64_t i) {
    const uint8_t *b = bytes + 4 * i;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void put_word(uint8_t *bytes, uint64_t i, uint32_t word) {
    for (unsigned b = 0; b < 4; b++)
        bytes[4 * i + b] = (uint8_t)(word >> 8 * b);
}

/* Steps over a row; ranks of a valid tile are left alone. */
static void skip_row(struct bits *s, const struct weight *w, const uint8_t *meta) {
    unsigned ranks[TILE_NWEIGHTS];
    for (uint64_t col = 0; col < w->cols; col += TILE_NWEIGHTS, meta++) {
        uint64_t left = w->cols - col;
        get_tile(s, *meta, left < TILE_NWEIGHTS ? (unsigned)left : TILE_NWEIGHTS, ranks);
    }
}

/* Every row's bits begin where the pattern does, plus the row's number of bytes. */
static bool make_streams(struct weight *w, struct pattern source) {
    binade_parts *p = &w->parts;
    uint64_t ntiles = (w->cols + TILE_NWEIGHTS - 1) / TILE_NWEIGHTS, nwords = 0;
    uint64_t *nbits = exact((size_t)(w->rows * sizeof *nbits));
    p->tail = exact(p->tail_nbytes = (size_t)(4 * w->rows));
    for (uint64_t r = 0; r < w->rows; r++) {
        struct bits s = {.pattern = source, .pos = 8 * r};
        skip_row(&s, w, p->meta + r * ntiles);
        nbits[r] = s.pos - 8 * r;
        put_word(p->tail, r, (uint32_t)nwords);
        nwords += (nbits[r] + 31) / 32;
    }
    p->codes = exact(p->codes_nbytes = (size_t)(4 * nwords));
    for (uint64_t r = 0; r < w->rows; r++) {
        uint64_t first = 4 * (uint64_t)get_word(p->tail, r), n = (nbits[r] + 31) / 32 * 4;
        for (uint64_t i = 0; i < n; i++) {
            uint8_t byte = pattern_at(source, r + i);
            uint64_t left = 8 * i < nbits[r] ? nbits[r] - 8 * i : 0;
            p->codes[first + i] = left < 8 ? byte & ((1u << left) - 1) : byte;
        }
    }
    free(nbits);
    return true;
}

static bool decode_row(const struct weight *w, uint64_t row, struct bits *s, uint8_t *bf16) {
    const binade_parts *p = &w->parts;
    uint64_t ntiles = (w->cols + TILE_NWEIGHTS - 1) / TILE_NWEIGHTS;
    for (uint64_t t = 0; t < ntiles; t++) {
        uint64_t col = t * TILE_NWEIGHTS, left = w->cols - col;
        unsigned n = left < TILE_NWEIGHTS ? (unsigned)left : TILE_NWEIGHTS;
        unsigned ranks[TILE_NWEIGHTS];
        uint8_t meta = p->meta[row * ntiles + t];
        if (!is_valid(meta)) return false;
        get_tile(s, meta, n, ranks);
        if (s->passed_end) return false;
        for (unsigned i = 0; i < n; i++) {
            uint64_t at = row * w->cols + col + i;
            unsigned raw = p->raw[at], exponent = p->table[ranks[i]];
            unsigned weight = (raw & 0x80) << 8 | exponent << 7 | (raw & 0x7f);
            bf16[2 * at] = (uint8_t)weight;
            bf16[2 * at + 1] = (uint8_t)(weight >> 8);
        }
    }
    if (s->end - s->pos >= 32) return false;
    while (s->pos < s->end)
        if (get_bit(s)) return false;
    return true;
}

static bool decode(const struct weight *w, uint8_t *bf16) {
    const binade_parts *p = &w->parts;
    uint64_t ntiles = (w->cols + TILE_NWEIGHTS - 1) / TILE_NWEIGHTS;
    uint64_t total = p->codes_nbytes / 4;
    if (p->raw_nbytes != w->rows * w->cols || p->table_nbytes != 256 ||
        p->meta_nbytes != w->rows * ntiles || p->codes_nbytes % 4 || p->tail_nbytes != 4 * w->rows)
        return false;
    if (get_word(p->tail, 0) != 0) return false;
    static const uint8_t nothing;
    for (uint64_t r = 0; r < w->rows; r++) {
        uint64_t word = get_word(p->tail, r), next = total;
        if (r + 1 < w->rows) next = get_word(p->tail, r + 1);
        if (next < word || next > total) return false;
        struct bits s = {.bytes = p->codes ? p->codes : &nothing, .pos = 32 * word};
        s.end = 32 * next;
        if (!decode_row(w, r, &s, bf16)) return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes) {
    static const struct part_format format = {2, repair_meta, make_streams, decode};
    check_weight(&format, input, nbytes);
    return 0;
}
