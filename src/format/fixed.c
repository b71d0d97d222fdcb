#include "format/fixed.h"

#include "format/bf16.h"

unsigned fixed_get_codes(uint8_t meta, const uint8_t *idx, uint8_t codes[TILE]) {
    unsigned b = meta & 15, mask = (1u << b) - 1, nescapes = 0;

    for (unsigned group = 0; group < TILE; group += 8) { /* 8 codes are b bytes */
        uint64_t bits = 0;
        for (unsigned i = 0; i < b; i++)
            bits |= (uint64_t)*idx++ << 8 * i;
        for (unsigned i = 0; i < 8; i++) {
            unsigned code = (unsigned)(bits >> i * b) & mask;
            codes[group + i] = (uint8_t)code;
            nescapes += code == mask;
        }
    }
    return meta & FIXED_ESCAPE ? nescapes : 0;
}

void fixed_put_codes(unsigned b, const uint8_t codes[TILE], uint8_t *idx) {
    for (unsigned group = 0; group < TILE; group += 8) {
        uint64_t bits = 0;
        for (unsigned i = 0; i < 8; i++)
            bits |= (uint64_t)codes[group + i] << i * b;
        for (unsigned i = 0; i < b; i++)
            *idx++ = (uint8_t)(bits >> 8 * i);
    }
}

static uint8_t choose_meta(const uint8_t ranks[TILE]) {
    unsigned biggest = 0, nescapes[FIXED_ESCAPE_B_MAX + 1] = {0};

    for (unsigned i = 0; i < TILE; i++)
        if (ranks[i] > biggest) biggest = ranks[i];
    for (unsigned b = 1; b <= FIXED_ESCAPE_B_MAX; b++)
        for (unsigned i = 0; i < TILE; i++)
            nescapes[b] += ranks[i] >= (1u << b) - 1;
    return fixed_choose_meta(biggest, nescapes);
}

void fixed_encode_plain(const uint8_t *bf16, size_t n, const uint8_t rank_of[256], uint8_t *raw,
                        uint8_t *meta, uint8_t **idx, uint8_t **esc) {
    for (size_t first = 0; first < n; first += TILE) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        uint8_t exponents[TILE], codes[TILE] = {0};

        for (unsigned i = 0; i < nhere; i++) {
            unsigned weight = bf16_load(bf16, first + i);
            raw[first + i] = bf16_raw(weight);
            exponents[i] = bf16_exponent(weight);
            codes[i] = rank_of[exponents[i]];
        }
        *meta = choose_meta(codes);
        unsigned b = *meta & 15, escape = (1u << b) - 1;
        if (*meta & FIXED_ESCAPE) {
            for (unsigned i = 0; i < nhere; i++) {
                if (codes[i] < escape) continue;
                codes[i] = (uint8_t)escape;
                *(*esc)++ = exponents[i];
            }
        }
        fixed_put_codes(b, codes, *idx);
        *idx += fixed_tile_nbytes(*meta++);
    }
}

enum stream_fault fixed_decode_plain(const uint8_t *raw, const uint8_t *meta, size_t n,
                                     const uint8_t table[256], const uint8_t **idx,
                                     const uint8_t *idx_end, const uint8_t **esc,
                                     const uint8_t *esc_end, uint8_t *bf16) {
    for (size_t first = 0; first < n; first += TILE, meta++) {
        unsigned nhere = n - first < TILE ? (unsigned)(n - first) : TILE;
        unsigned escape = *meta & FIXED_ESCAPE ? (1u << (*meta & 15)) - 1 : 256;
        uint8_t codes[TILE];

        if (!fixed_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (idx_end - *idx < fixed_tile_nbytes(*meta)) return STREAM_SHORT;
        unsigned nescapes = fixed_get_codes(*meta, *idx, codes);
        *idx += fixed_tile_nbytes(*meta);
        if (esc_end - *esc < nescapes) return STREAM_SHORT;

        const uint8_t *exponent = *esc;
        for (unsigned i = 0; i < nhere; i++) {
            uint8_t e = codes[i] == escape ? *exponent++ : table[codes[i]];
            bf16_store(bf16, first + i, bf16_join(e, raw[first + i]));
        }
        *esc += nescapes;
    }
    return STREAM_OK;
}

enum stream_fault fixed_count_escapes_plain(const uint8_t *meta, size_t ntiles, const uint8_t **idx,
                                            const uint8_t *idx_end, uint64_t *nescapes) {
    *nescapes = 0;
    for (; ntiles > 0; ntiles--, meta++) {
        uint8_t codes[TILE];

        if (!fixed_meta_is_valid(*meta)) return STREAM_BAD_META;
        if (idx_end - *idx < fixed_tile_nbytes(*meta)) return STREAM_SHORT;
        if (*meta & FIXED_ESCAPE) *nescapes += fixed_get_codes(*meta, *idx, codes);
        *idx += fixed_tile_nbytes(*meta);
    }
    return STREAM_OK;
}
