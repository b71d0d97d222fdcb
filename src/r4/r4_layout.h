/* r4_layout.h - where R4 puts a weight, and what kernels on R4 do. docs/R4.md draws it.
 *
 * A block is 16 rows of a matrix, a group 4 columns of a block: 64 weights in 96 bytes. Position
 * p = row / 4 * 16 + column * 4 + row % 4 of a group has its raw byte (format/bf16.h) at p, its
 * code in byte 64 + p % 32: the low half if p < 32, the high half otherwise. So each quarter of
 * the raw bytes is 4 rows x 4 columns, and unpacking bytes to words to double words within
 * 16 bytes gives 4 neighbouring rows of one column: vector lanes are outputs.
 */
#ifndef BINADE_R4_LAYOUT_H
#define BINADE_R4_LAYOUT_H

#include "base/size.h"
#include "binade_r4.h"

enum {
    R4_NROWS = BINADE_R4_BLOCK_NROWS,
    R4_NCOLS = BINADE_R4_GROUP_NCOLS,
    R4_NWEIGHTS = R4_NROWS * R4_NCOLS,
    R4_NBYTES = BINADE_R4_GROUP_NBYTES,
    R4_ESCAPE = 15, /* the code of an exponent that has none */
};
_Static_assert(R4_NWEIGHTS * 3 / 2 == R4_NBYTES, "a byte and half a byte for each weight");

static inline unsigned r4_position(unsigned row, unsigned col) {
    return row / 4 * 16 + col * 4 + row % 4;
}

static inline unsigned r4_row(unsigned position) {
    return position / 16 * 4 + position % 4;
}

static inline unsigned r4_col(unsigned position) {
    return position % 16 / 4;
}

static inline unsigned r4_code(const uint8_t *group, unsigned position) {
    return group[R4_NWEIGHTS + position % 32] >> (position / 32 * 4) & 15;
}

static inline size_t r4_nblocks(const binade_r4 *w) {
    return (size_t)ceil_div(w->rows, R4_NROWS);
}

static inline size_t r4_block_nbytes(const binade_r4 *w) {
    return (size_t)ceil_div(w->cols, R4_NCOLS) * R4_NBYTES;
}

/* Asks for a group early. Products of several rows take a chunk of each block in turn, which the
 * CPU does not foresee; the address may lie behind the array. */
static inline void r4_prefetch(const uint8_t *group) {
    __builtin_prefetch(group, 0, 2);
    __builtin_prefetch(group + R4_NBYTES - 1, 0, 2);
}

/* The exponent of a code in two parts: the bits of it in either byte of a weight. */
struct r4_lookup {
    _Alignas(16) uint8_t high[16]; /* exponent >> 1 */
    _Alignas(16) uint8_t low[16];  /* exponent << 7 */
};

/* ---- Kernels --------------------------------------------------------------------------------
 * Each gives the bits of the plain one. None reads past its arrays. `groups` begins at a group;
 * *escapes is the first escape of that group and moves behind the last one used.
 */

/* w[c][16], c < 4 * ngroups, rows of w `stride` floats apart: a block's columns. */
typedef void r4_decode_kernel(const struct r4_lookup *lookup, const uint8_t *groups, size_t ngroups,
                              const uint8_t **escapes, float *w, size_t stride);

/* sums[b][r] goes on with columns 0..ncols-1 of blocks b < nblocks, block_nbytes apart, in order.
 * Columns of the last group from ncols on are not multiplied. */
typedef void r4_matvec_kernel(const struct r4_lookup *lookup, const uint8_t *groups,
                              size_t block_nbytes, const uint8_t **escapes, size_t nblocks,
                              const float *x, size_t ncols, float *sums);

/* sums[m][R4_PANEL] goes on with x[m][c] * w[c][R4_PANEL], c ascending; x `ldx` floats a row. Only
 * the first nblocks (1..4) of the blocks in a row of w and sums exist. */
enum { R4_PANEL_NBLOCKS = 4, R4_PANEL = R4_PANEL_NBLOCKS * R4_NROWS };
typedef void r4_gemm_kernel(const float *w, size_t nblocks, size_t ncols, const float *x,
                            size_t ldx, size_t nrows, float *sums);

typedef void r4_widen_kernel(const uint16_t *bf16, size_t n, float *out);

/* Makes the groups of one block from nrows (1..16) rows of ncols BF16, `stride` bytes apart, and
 * appends its escapes (at most 16 * ncols). code_of[e] is the code of exponent e. Missing rows and
 * columns become zero bytes. */
typedef void r4_encode_kernel(const uint8_t *bf16, size_t stride, size_t nrows, size_t ncols,
                              const uint8_t code_of[256], uint8_t *groups, uint8_t **escapes);

/* The set for one instruction set; the names are those of cpu/kernels.h. */
struct r4_kernels {
    const char *name;
    r4_decode_kernel *decode;
    r4_matvec_kernel *matvec;
    r4_gemm_kernel *gemm;
    r4_widen_kernel *widen;
    r4_encode_kernel *encode;
};

#endif
