/* pieces.h - a packed directory as one input, and its files.
 *
 * Each file is 7 bytes, then two sections:
 *   0     bits 0..2: its name, bit 3: the sections are the whole file
 *   1..2  bytes of the first section, 3..4 of the second
 *   5..6  how many spaces end a header
 * Lengths and checksums that a mutation would always break are added when the files are written: a
 * shard is the header's length, the first section, the spaces, the second section; a manifest is
 * the first section, the line that seals it, and the second section.
 */
#ifndef BINADE_TESTS_FUZZ_PIECES_H
#define BINADE_TESTS_FUZZ_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PIECE_HEAD_NBYTES = 7, NPIECES_MAX = 8, SECTION_MAX_NBYTES = 0xffff };

struct piece {
    const char *name;
    uint8_t head; /* byte 0 */
    unsigned nspaces;
    const uint8_t *sections[2];
    size_t nbytes[2];
};

/* Returns how many there are; they point into `input`. */
size_t pieces_read(const uint8_t *input, size_t nbytes, struct piece pieces[NPIECES_MAX]);
/* Returns the bytes written, 0 if they do not fit. */
size_t pieces_write(const struct piece *pieces, size_t npieces, uint8_t *out, size_t capacity);
/* Changes one section of one file, so that the others keep their places: what a target's
 * LLVMFuzzerCustomMutator does. */
size_t pieces_mutate(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed);
/* Writes the file below `dir`; a file of the same name is replaced. */
void piece_put(const struct piece *piece, const char *dir);

#endif
