/* parts.h - the five parts of one packed weight, made from a fuzzer's input, and a second opinion
 * on them.
 *
 * Input: 10 bytes, then the meta section, the tail section, and the rest:
 *   0     FLAG_... below
 *   1..2  rows, 3..4 cols, both stretched to the kind of shape that the flags name
 *   5     table[rank] is rank ^ this byte
 *   6..7  bytes of the meta section, 8..9 of the tail section
 * With FLAG_VERBATIM the three sections are meta, the last part and the codes as they are. Without
 * it meta and the rest are repeated as often as the shape needs, streams are made that fit them,
 * and the tail section lists what is then damaged: 4 bytes each, see damage() in parts.c.
 */
#ifndef BINADE_TESTS_FUZZ_PARTS_H
#define BINADE_TESTS_FUZZ_PARTS_H

#include <stdbool.h>

#include "binade.h"

enum {
    FLAG_TWO_THREADS = 1,
    FLAG_VERBATIM = 2,
    FLAG_ANY_META = 4, /* without it, meta bytes outside the format are replaced */
    FLAG_SHAPE_KIND = 8 | 16,
};

/* Bytes that never end: the same ones again and again. */
struct pattern {
    const uint8_t *bytes;
    size_t nbytes;
};
static inline uint8_t pattern_at(struct pattern p, uint64_t i) {
    return p.nbytes ? p.bytes[i % p.nbytes] : 0;
}

struct weight {
    uint64_t rows, cols;
    binade_parts parts; /* each of its own allocation, not a byte longer than it says */
};

/* What fuzz_format1.c and fuzz_format2.c know. */
struct part_format {
    int format;
    uint8_t (*repair_meta)(uint8_t meta);
    /* Allocates and fills codes and tail so that they fit meta, which may be invalid. */
    bool (*make_streams)(struct weight *w, struct pattern source);
    /* Decodes bit by bit, straight from the definition; false where the parts are not exactly those
     * of rows x cols weights. Reads nothing outside of them. */
    bool (*decode)(const struct weight *w, uint8_t *bf16);
};

/* The shape that five bytes of input stand for. */
void weight_shape(const uint8_t input[5], uint64_t *rows, uint64_t *cols);

/* Decodes with the library and with format->decode, which must agree. */
void check_weight(const struct part_format *format, const uint8_t *input, size_t nbytes);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) require_failed(__FILE__, __LINE__, #condition);                          \
    } while (0)
_Noreturn void require_failed(const char *file, int line, const char *condition);

/* One line of UTF-8. */
bool is_sentence(const char *message);

/* Heap memory of exactly nbytes, so that a sanitizer sees the byte behind it. Ends the process when
 * there is none. */
void *exact(size_t nbytes);

#endif
