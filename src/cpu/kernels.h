/* kernels.h - the table of kernels that the running CPU can use.
 *
 * Every kernel gives the same bytes as the plain C definition in src/format. A *run* is n weights
 * of one row that starts at a tile boundary; n is a multiple of TILE unless the run ends the row.
 * Long rows may be cut into several runs, so that memory stays small; streams carry on.
 * BF16 weights are little-endian at any alignment. No kernel allocates, reads past raw, meta or
 * bf16, or writes past those it makes, by a single byte; bit streams, idx and esc have slack.
 */
#ifndef BINADE_CPU_KERNELS_H
#define BINADE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/bit_stream.h"
#include "format/tile.h"

/* counts[e] += how often exponent e occurs among the n weights. */
typedef void count_exponents_kernel(const uint8_t *bf16, size_t n, uint64_t counts[256]);

/* Format 2. Writes raw[n], meta[ceil(n/TILE)] and appends the tiles' bits to *sink.
 * rank_of[e] is the rank of exponent e; every exponent that occurs must have its own. */
typedef void rice_encode_kernel(const uint8_t *bf16, size_t n, const uint8_t rank_of[256],
                                uint8_t *raw, uint8_t *meta, struct bit_sink *sink);

/* Reads raw[n], meta[ceil(n/TILE)] and bits; writes 2*n bytes. On a fault bf16 and the source's
 * position are undefined. */
typedef enum stream_fault rice_decode_kernel(const uint8_t *raw, const uint8_t *meta, size_t n,
                                             const uint8_t table[256], struct bit_source *source,
                                             uint8_t *bf16);

/* Format 1. Advances *idx (16*b bytes a tile) and *esc; both may be written STREAM_SLACK past
 * what is produced. */
typedef void fixed_encode_kernel(const uint8_t *bf16, size_t n, const uint8_t rank_of[256],
                                 uint8_t *raw, uint8_t *meta, uint8_t **idx, uint8_t **esc);

/* Advances *idx and *esc up to their ends; idx_end and esc_end have STREAM_SLACK readable bytes
 * behind them. Escape codes in the padding of a row's last tile consume an escape too. On a fault
 * bf16, *idx and *esc are undefined. */
typedef enum stream_fault fixed_decode_kernel(const uint8_t *raw, const uint8_t *meta, size_t n,
                                              const uint8_t table[256], const uint8_t **idx,
                                              const uint8_t *idx_end, const uint8_t **esc,
                                              const uint8_t *esc_end, uint8_t *bf16);

/* *nescapes is the number of escapes in ntiles tiles whose codes start at *idx; advances *idx. */
typedef enum stream_fault fixed_count_escapes_kernel(const uint8_t *meta, size_t ntiles,
                                                     const uint8_t **idx, const uint8_t *idx_end,
                                                     uint64_t *nescapes);

struct cpu_kernels {
    const char *name; /* "avx512", "avx2", "neon", "plain" */
    count_exponents_kernel *count_exponents;
    rice_encode_kernel *rice_encode;
    rice_decode_kernel *rice_decode;
    fixed_encode_kernel *fixed_encode;
    fixed_decode_kernel *fixed_decode;
    fixed_count_escapes_kernel *fixed_count_escapes;
};

/* The best set this CPU supports, limited by BINADE_CPU in the environment (read once); never NULL.
 */
const struct cpu_kernels *cpu_kernels(void);

/* Set i of those compiled in, supported here and within BINADE_CPU, best first; NULL past the last.
 * For tests. */
const struct cpu_kernels *cpu_kernels_at(size_t i);

#endif
