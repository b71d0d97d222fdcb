/* rice.h - format 2, Rice codes in bit planes: the definition in plain C.
 *
 * A tile of n (1..TILE) ranks is coded with k (0..3) low bits and a quotient q = rank >> k, at
 * most qmax:
 *   meta   k | qmax << 2
 *   bits   bit b of weight i at i * k + b; then planes j = 0 .. qmax - 1, each with one bit for
 *          every weight whose q >= j, in weight order: 1 if q > j
 * The encoder takes the k of the fewest bits, the smaller one on ties.
 */
#ifndef BINADE_FORMAT_RICE_H
#define BINADE_FORMAT_RICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/bit_stream.h"
#include "format/tile.h"

/* The k of the fewest bits for a tile of n ranks, the largest of which is `biggest`:
 * sum[k] is the sum of rank >> k, and at_top[k] counts the ranks whose quotient is the largest.
 * All of these weights cost q + 1 bits but those at the top, which need no closing zero. */
static inline unsigned rice_choose_k(unsigned n, unsigned biggest, const unsigned sum[4],
                                     const unsigned at_top[4]) {
    unsigned best = RICE_K_MAX, best_nbits = ~0u;

    for (unsigned k = 0; k <= RICE_K_MAX; k++) {
        unsigned nbits = n * k + sum[k] + n - at_top[k];
        if (biggest >> k <= RICE_Q_MAX && nbits < best_nbits) {
            best = k;
            best_nbits = nbits;
        }
    }
    return best;
}

/* False if no rank could have given this meta: q = 63 with k = 3 would be rank 504. */
static inline bool rice_meta_is_valid(uint8_t meta) {
    unsigned k = meta & 3, qmax = meta >> 2;
    return qmax << k <= 255;
}

/* One tile; n 1..TILE. Decoding may read STREAM_SLACK bytes past source->end. */
void rice_put_tile(const uint8_t *ranks, unsigned n, uint8_t *meta, struct bit_sink *sink);
enum stream_fault rice_get_tile(uint8_t meta, unsigned n, struct bit_source *source,
                                uint8_t *ranks);

/* Kernels of cpu/kernels.h, which says what they do. */
void rice_encode_plain(const uint8_t *bf16, size_t n, const uint8_t rank_of[256], uint8_t *raw,
                       uint8_t *meta, struct bit_sink *sink);
enum stream_fault rice_decode_plain(const uint8_t *raw, const uint8_t *meta, size_t n,
                                    const uint8_t table[256], struct bit_source *source,
                                    uint8_t *bf16);

#endif
