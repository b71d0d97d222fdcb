/* fixed.h - format 1, codes of a fixed width with escapes: the definition in plain C.
 *
 * A tile is always TILE codes of b bits, code i at bits i * b, LSB first; the last tile of a row is
 * filled up with rank 0.
 *   meta       b, plus FIXED_ESCAPE in escape mode; the other bits are 0
 *   fixed      b 0..8, the bit length of the largest rank; the code is the rank
 *   escape     b 1..4; ranks below 2^b - 1 are codes, code 2^b - 1 means that the exponent itself
 *              is the next byte of the escape stream
 * The encoder takes the fewest bits (an escape counts 8); on ties fixed, then the smaller b.
 */
#ifndef BINADE_FORMAT_FIXED_H
#define BINADE_FORMAT_FIXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/bit_stream.h"
#include "format/tile.h"

enum { FIXED_B_MAX = 8, FIXED_ESCAPE_B_MAX = 4, FIXED_ESCAPE = 16 };

/* The meta of the fewest bits for a tile of TILE ranks, the largest of which is `biggest`;
 * nescapes[b] counts the ranks >= 2^b - 1, b 1..4. */
static inline uint8_t fixed_choose_meta(unsigned biggest,
                                        const unsigned nescapes[FIXED_ESCAPE_B_MAX + 1]) {
    unsigned best = 0;

    while (biggest >> best)
        best++;
    unsigned best_nbits = TILE * best;
    for (unsigned b = 1; b <= FIXED_ESCAPE_B_MAX; b++) {
        unsigned nbits = TILE * b + 8 * nescapes[b];
        if (nbits < best_nbits) {
            best = b | FIXED_ESCAPE;
            best_nbits = nbits;
        }
    }
    return (uint8_t)best;
}

static inline bool fixed_meta_is_valid(uint8_t meta) {
    unsigned b = meta & 15;
    if (meta & FIXED_ESCAPE) return meta < 32 && b >= 1 && b <= FIXED_ESCAPE_B_MAX;
    return meta <= FIXED_B_MAX;
}

static inline unsigned fixed_tile_nbytes(uint8_t meta) {
    return TILE / 8 * (meta & 15u);
}

/* Reads TILE codes of a valid meta. Returns how many of them are escapes. */
unsigned fixed_get_codes(uint8_t meta, const uint8_t *idx, uint8_t codes[TILE]);
/* Writes TILE codes of `b` (0..8) bits. */
void fixed_put_codes(unsigned b, const uint8_t codes[TILE], uint8_t *idx);

/* Kernels of cpu/kernels.h, which says what they do. */
void fixed_encode_plain(const uint8_t *bf16, size_t n, const uint8_t rank_of[256], uint8_t *raw,
                        uint8_t *meta, uint8_t **idx, uint8_t **esc);
enum stream_fault fixed_decode_plain(const uint8_t *raw, const uint8_t *meta, size_t n,
                                     const uint8_t table[256], const uint8_t **idx,
                                     const uint8_t *idx_end, const uint8_t **esc,
                                     const uint8_t *esc_end, uint8_t *bf16);
enum stream_fault fixed_count_escapes_plain(const uint8_t *meta, size_t ntiles, const uint8_t **idx,
                                            const uint8_t *idx_end, uint64_t *nescapes);

#endif
