/* binade_r4.h - packed weights in memory and exact products with them, on CPUs.
 *
 * Experimental: may change between versions, unlike binade.h.
 *
 * R4 holds an exponent as a 4-bit code: 0..14 stand for the 15 most frequent exponents of the
 * tensor, 15 for any other, whose byte follows in a stream of escapes: 12 bits a weight and a
 * little. docs/R4.md shows the layout.
 *
 * Products add in the order of MLX's CPU backend: for each output one float32 accumulator from +0,
 * columns ascending, each product rounded and then added (on AArch64 fused, as MLX's build there),
 * one rounding to BF16 at the end. The bits do not depend on the number of threads, on the
 * instruction set, or on how many rows of x are given at once.
 *
 * Letters: a weight is R x K, of which there may be E (experts); x is [M, K], y = x W^T is [M, R].
 * BF16 values are little-endian uint16_t.
 */
#ifndef BINADE_R4_H
#define BINADE_R4_H

#include "binade.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    BINADE_R4_BLOCK_NROWS = 16,  /* rows that lie interleaved */
    BINADE_R4_GROUP_NCOLS = 4,   /* columns of a block that lie together */
    BINADE_R4_GROUP_NBYTES = 96, /* 64 bytes of sign and mantissa, then 64 codes */
};

/* A weight in memory that somebody owns. Blocks are numbered through all experts: block b of expert
 * e is e * ceil(R/16) + b. Missing rows and columns of the last block and group are zero bytes. */
typedef struct binade_r4 {
    uint64_t nexperts;     /* E, 1 for a matrix */
    uint64_t rows, cols;   /* R, K of one expert */
    const uint8_t *groups; /* [E * ceil(R/16)][ceil(K/4)][96], any alignment */
    const uint8_t
        *escapes; /* exponents of the escapes, block after block, in the order of the codes */
    const uint32_t *escape_starts; /* [E * ceil(R/16) + 1] of each block's first escape */
    const uint8_t *exponents;      /* [16] by code; [15] is 0 */
} binade_r4;

/* Bytes of `groups`. BINADE_E_USAGE if it passes SIZE_MAX. */
BINADE_API BINADE_CHECK binade_status binade_r4_groups_nbytes(uint64_t nexperts, uint64_t rows,
                                                              uint64_t cols, size_t *nbytes,
                                                              binade_error *err);

/* Loads rows [row0, row1) of tensor i, which must be packed, 2-D [R, K] or 3-D [E, R, K]: of each
 * expert those rows, so that halves of fused experts can be loaded by themselves. The four arrays
 * are malloc'd; free them with binade_r4_free. Peak memory is what is returned and for each thread
 * a few MB and 16 rows of BF16.
 * nthreads 0: one per CPU. */
BINADE_API BINADE_CHECK binade_status binade_r4_load(const binade_checkpoint *c, size_t i,
                                                     uint64_t row0, uint64_t row1,
                                                     unsigned nthreads, binade_r4 *out,
                                                     binade_error *err);
/* Makes R4 of nexperts * rows * cols BF16 weights in memory. */
BINADE_API BINADE_CHECK binade_status binade_r4_make(const uint16_t *bf16, uint64_t nexperts,
                                                     uint64_t rows, uint64_t cols,
                                                     unsigned nthreads, binade_r4 *out,
                                                     binade_error *err);
/* Frees the arrays of a loaded or made weight; accepts a zeroed one. */
BINADE_API void binade_r4_free(binade_r4 *w);

/* A packed tensor as its file holds it, for a device that decodes it itself. docs/FORMAT.md tells
 * what the parts hold. */
enum {
    BINADE_PART_RAW,
    BINADE_PART_TABLE,
    BINADE_PART_META,
    BINADE_PART_CODES, /* bits, or idx in format 1 */
    BINADE_PART_TAIL,  /* roff, or esc in format 1 */
    BINADE_NPARTS
};
typedef struct binade_stored {
    int format;          /* 1 or 2 */
    uint64_t rows, cols; /* those of all experts; both at least 1 */
    uint64_t part_nbytes[BINADE_NPARTS];
} binade_stored;

/* Describes tensor i, which must be packed. The parts' sizes are checked to fit the shape and each
 * other, their contents are not. */
BINADE_API BINADE_CHECK binade_status binade_describe_stored(const binade_checkpoint *c, size_t i,
                                                             binade_stored *out, binade_error *err);
/* Copies a part, as long as binade_describe_stored says, to `out`. */
BINADE_API BINADE_CHECK binade_status binade_read_stored(const binade_checkpoint *c, size_t i,
                                                         unsigned part, void *out,
                                                         size_t out_nbytes, binade_error *err);

/* The functions below do not fail: shapes are the caller's to check, memory for scratch is taken
 * beforehand. They use BINADE_NUM_THREADS threads (environment, read once; default: one per CPU),
 * which they share: calls from several threads wait for each other. A forked child starts threads
 * of its own. Arithmetic rounds, and treats subnormals, as the calling thread is set to. */

/* y[m][r] = bf16(sum over k of x[m][k] * W[e][r][k] (+ bias[r])), m < M, r < R. ldx, ldy: elements
 * from one row to the next. bias: NULL or [R]; it is added in float32 before the rounding. */
BINADE_API void binade_r4_matmul(const binade_r4 *w, uint64_t expert, const uint16_t *x, size_t m,
                                 size_t ldx, const uint16_t *bias, uint16_t *y, size_t ldy);
/* y[i] = x[x_rows[i]] W[experts[i]]^T for i < n; x_rows NULL: i. Any order of experts. Ids must be
 * in range. */
BINADE_API void binade_r4_gather(const binade_r4 *w, const uint16_t *x, size_t ldx,
                                 const uint32_t *x_rows, const uint32_t *experts, size_t n,
                                 uint16_t *y, size_t ldy);
/* out[i] = row ids[i] of expert 0, decoded: an embedding. */
BINADE_API void binade_r4_rows(const binade_r4 *w, const uint32_t *ids, size_t n, uint16_t *out);
/* out = rows [row0, row1) of one expert, [row1 - row0, K] */
BINADE_API void binade_r4_rebuild(const binade_r4 *w, uint64_t expert, uint64_t row0, uint64_t row1,
                                  uint16_t *out);

#ifdef __cplusplus
}
#endif
#endif
