/* fuzz_round_trip.c - any weights, coded in either format and decoded, are the same weights; one
 * thread and two write the same parts, within the promised sizes.
 *
 * Input: threads and a shape as in parts.h (5 bytes; bit 6 of the first means format 1, else 2);
 * byte 5, how fast exponents drift from row to row; then the weights, repeated as often as the
 * shape needs. */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes);

static uint8_t *make_weights(const uint8_t *input, size_t nbytes, uint64_t rows, uint64_t cols) {
    struct pattern source = {input + 6, nbytes - 6};
    uint8_t *bf16 = exact((size_t)(2 * rows * cols));
    for (uint64_t i = 0; i < rows * cols; i++) {
        unsigned weight = pattern_at(source, 2 * i) | (unsigned)pattern_at(source, 2 * i + 1) << 8;
        weight ^= (unsigned)(i / cols * input[5] << 5 & 0x7f80);
        bf16[2 * i] = (uint8_t)weight;
        bf16[2 * i + 1] = (uint8_t)(weight >> 8);
    }
    return bf16;
}

/* Encodes into buffers of exactly the promised sizes. */
static binade_parts encode(int format, const uint8_t *bf16, uint64_t rows, uint64_t cols,
                           unsigned nthreads) {
    binade_error err = {""};
    binade_parts p = {0};
    REQUIRE(binade_encode_bound(format, rows, cols, &p, &err) == BINADE_OK);
    binade_parts bound = p;
    p.raw = exact(p.raw_nbytes);
    p.table = exact(p.table_nbytes);
    p.meta = exact(p.meta_nbytes);
    p.codes = exact(p.codes_nbytes);
    p.tail = exact(p.tail_nbytes);
    REQUIRE(binade_encode(format, bf16, rows, cols, &p, nthreads, &err) == BINADE_OK);
    REQUIRE(p.raw_nbytes == rows * cols && p.table_nbytes == 256);
    REQUIRE(p.meta_nbytes == bound.meta_nbytes && p.codes_nbytes <= bound.codes_nbytes &&
            p.tail_nbytes <= bound.tail_nbytes);
    /* Decoding must not lean on the room behind the parts. */
    p.codes = realloc(p.codes, p.codes_nbytes ? p.codes_nbytes : 1);
    p.tail = realloc(p.tail, p.tail_nbytes ? p.tail_nbytes : 1);
    return p;
}

static void free_parts(binade_parts *p) {
    free(p->raw);
    free(p->table);
    free(p->meta);
    free(p->codes);
    free(p->tail);
}

static bool same(const uint8_t *a, size_t a_nbytes, const uint8_t *b, size_t b_nbytes) {
    return a_nbytes == b_nbytes && (a_nbytes == 0 || memcmp(a, b, a_nbytes) == 0);
}

static void check_format(int format, const uint8_t *bf16, uint64_t rows, uint64_t cols,
                         unsigned nthreads) {
    binade_error err = {""};
    binade_parts p = encode(format, bf16, rows, cols, 1), q = encode(format, bf16, rows, cols, 2);
    REQUIRE(same(p.raw, p.raw_nbytes, q.raw, q.raw_nbytes));
    REQUIRE(same(p.table, p.table_nbytes, q.table, q.table_nbytes));
    REQUIRE(same(p.meta, p.meta_nbytes, q.meta, q.meta_nbytes));
    REQUIRE(same(p.codes, p.codes_nbytes, q.codes, q.codes_nbytes));
    REQUIRE(same(p.tail, p.tail_nbytes, q.tail, q.tail_nbytes));
    uint8_t *back = exact((size_t)(2 * rows * cols));
    memset(back, 0xa5, (size_t)(2 * rows * cols));
    REQUIRE(binade_decode(format, &p, rows, cols, back, nthreads, &err) == BINADE_OK);
    REQUIRE(memcmp(back, bf16, (size_t)(2 * rows * cols)) == 0);
    free(back);
    free_parts(&q);
    free_parts(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes) {
    uint64_t rows, cols;
    if (nbytes < 6) return 0;
    weight_shape(input, &rows, &cols);
    uint8_t *bf16 = make_weights(input, nbytes, rows, cols);
    check_format(input[0] & 64 ? 1 : 2, bf16, rows, cols, input[0] & FLAG_TWO_THREADS ? 2 : 1);
    free(bf16);
    return 0;
}
