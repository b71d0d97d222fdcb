/* fuzz_format1.c - decoding any parts of format 1: a slow decoder beside ours accepts the same and
 * gives the same weights, and neither reads outside of the parts. The input is that of parts.h. */
#include "parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes);

enum { TILE_NWEIGHTS = 128 };

static bool is_valid(uint8_t meta) {
    unsigned b = meta & 15;
    return meta & 16 ? meta < 32 && b >= 1 && b <= 4 : meta <= 8;
}

static uint8_t repair_meta(uint8_t meta) {
    static const uint8_t valid[13] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 17, 18, 19, 20};
    return is_valid(meta) ? meta : valid[meta % 13];
}

/* Code i of a tile whose codes of b bits begin at `idx`, first bit lowest. */
static unsigned get_code(const uint8_t *idx, unsigned i, unsigned b) {
    unsigned code = 0;
    for (unsigned bit = 0; bit < b; bit++) {
        unsigned at = i * b + bit;
        code |= (idx[at / 8] >> at % 8 & 1u) << bit;
    }
    return code;
}

static bool make_streams(struct weight *w, struct pattern source) {
    binade_parts *p = &w->parts;
    uint64_t ncodes = 0, nescapes = 0;
    for (size_t t = 0; t < p->meta_nbytes; t++)
        ncodes += is_valid(p->meta[t]) ? 16 * (p->meta[t] & 15u) : 0;
    p->codes = exact(p->codes_nbytes = (size_t)ncodes);
    for (size_t i = 0; i < p->codes_nbytes; i++)
        p->codes[i] = pattern_at(source, i);
    const uint8_t *idx = p->codes;
    for (size_t t = 0; t < p->meta_nbytes; t++) {
        unsigned b = p->meta[t] & 15u;
        if (!is_valid(p->meta[t])) continue;
        for (unsigned i = 0; i < TILE_NWEIGHTS && p->meta[t] & 16; i++)
            nescapes += get_code(idx, i, b) == (1u << b) - 1;
        idx += 16 * b;
    }
    p->tail = exact(p->tail_nbytes = (size_t)nescapes);
    for (size_t i = 0; i < p->tail_nbytes; i++)
        p->tail[i] = (uint8_t)(pattern_at(source, i) ^ i);
    return true;
}

static bool decode(const struct weight *w, uint8_t *bf16) {
    const binade_parts *p = &w->parts;
    uint64_t ntiles = (w->cols + TILE_NWEIGHTS - 1) / TILE_NWEIGHTS;
    size_t at = 0, nescapes = 0;
    if (p->raw_nbytes != w->rows * w->cols || p->table_nbytes != 256 ||
        p->meta_nbytes != w->rows * ntiles)
        return false;
    for (uint64_t t = 0; t < w->rows * ntiles; t++) {
        uint8_t meta = p->meta[t];
        unsigned b = meta & 15;
        if (!is_valid(meta) || 16 * b > p->codes_nbytes - at) return false;
        for (unsigned i = 0; i < TILE_NWEIGHTS; i++) {
            uint64_t col = t % ntiles * TILE_NWEIGHTS + i, n = t / ntiles * w->cols + col;
            unsigned code = get_code(p->codes + at, i, b), exponent = p->table[code];
            if (meta & 16 && code == (1u << b) - 1) {
                if (nescapes == p->tail_nbytes) return false;
                exponent = p->tail[nescapes++];
            }
            if (col >= w->cols) continue;
            unsigned raw = p->raw[n], weight = (raw & 0x80) << 8 | exponent << 7 | (raw & 0x7f);
            bf16[2 * n] = (uint8_t)weight;
            bf16[2 * n + 1] = (uint8_t)(weight >> 8);
        }
        at += 16 * b;
    }
    return at == p->codes_nbytes && nescapes == p->tail_nbytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes) {
    static const struct part_format format = {1, repair_meta, make_streams, decode};
    check_weight(&format, input, nbytes);
    return 0;
}
