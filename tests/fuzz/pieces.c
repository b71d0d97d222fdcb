/* pieces.c - see pieces.h. */
#include "pieces.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "pack/manifest_names.h"
#include "parts.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t nbytes, size_t capacity);

enum { NSHARDS = 3, MANIFEST = 4, NNAMES = 8, VERBATIM = 8 };

static const char *const names[NNAMES] = {
    "model.safetensors",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "binade_pack.json",
    "config.json",
    "sub/notes.txt",
    ".hidden",
};

static unsigned get_u16(const uint8_t *bytes) {
    return bytes[0] | (unsigned)bytes[1] << 8;
}

static void put_u16(uint8_t *bytes, size_t value) {
    bytes[0] = (uint8_t)value;
    bytes[1] = (uint8_t)(value >> 8);
}

size_t pieces_read(const uint8_t *input, size_t nbytes, struct piece pieces[NPIECES_MAX]) {
    size_t count = 0;
    while (nbytes >= PIECE_HEAD_NBYTES && count < NPIECES_MAX) {
        struct piece *p = &pieces[count++];
        *p = (struct piece){names[input[0] % NNAMES], input[0], get_u16(input + 5), {0}, {0}};
        const uint8_t *at = input + PIECE_HEAD_NBYTES;
        nbytes -= PIECE_HEAD_NBYTES;
        for (int s = 0; s < 2; s++) {
            size_t length = get_u16(input + 1 + 2 * s);
            p->sections[s] = at;
            p->nbytes[s] = length < nbytes ? length : nbytes;
            at += p->nbytes[s];
            nbytes -= p->nbytes[s];
        }
        input = at;
    }
    return count;
}

size_t pieces_write(const struct piece *pieces, size_t npieces, uint8_t *out, size_t capacity) {
    size_t filled = 0;
    for (const struct piece *p = pieces; p < pieces + npieces; p++) {
        if (PIECE_HEAD_NBYTES + p->nbytes[0] + p->nbytes[1] > capacity - filled) return 0;
        out[filled] = p->head;
        put_u16(out + filled + 1, p->nbytes[0]);
        put_u16(out + filled + 3, p->nbytes[1]);
        put_u16(out + filled + 5, p->nspaces);
        filled += PIECE_HEAD_NBYTES;
        for (int s = 0; s < 2; s++) {
            if (p->nbytes[s] > 0) memcpy(out + filled, p->sections[s], p->nbytes[s]);
            filled += p->nbytes[s];
        }
    }
    return filled;
}

size_t pieces_mutate(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed) {
    struct piece pieces[NPIECES_MAX];
    size_t npieces = pieces_read(data, nbytes, pieces);
    if (npieces == 0 || seed % 8 == 0) return LLVMFuzzerMutate(data, nbytes, capacity);
    struct piece *p = &pieces[seed / 8 % npieces];
    unsigned s = seed / 64 % 2;
    if (p->nbytes[s] == 0) s = 1 - s;

    size_t room = p->nbytes[s] + (capacity > nbytes ? capacity - nbytes : 0);
    if (room > SECTION_MAX_NBYTES) room = SECTION_MAX_NBYTES;
    uint8_t *section = exact(room + 1), *whole = exact(capacity);
    if (p->nbytes[s] > 0) memcpy(section, p->sections[s], p->nbytes[s]);
    p->nbytes[s] = LLVMFuzzerMutate(section, p->nbytes[s], room);
    p->sections[s] = section;
    size_t written = pieces_write(pieces, npieces, whole, capacity);
    if (written > 0) memcpy(data, whole, written);
    free(whole);
    free(section);
    return written > 0 ? written : LLVMFuzzerMutate(data, nbytes, capacity);
}

static void put(FILE *f, const void *data, size_t nbytes) {
    if (nbytes > 0 && fwrite(data, nbytes, 1, f) != 1) {
        perror("cannot write what is to be read");
        exit(1);
    }
}

static void put_header(FILE *f, const struct piece *p) {
    uint64_t length = p->nbytes[0] + p->nspaces;
    for (int i = 0; i < 8; i++)
        put(f, (uint8_t[]){(uint8_t)(length >> 8 * i)}, 1);
    put(f, p->sections[0], p->nbytes[0]);
    for (unsigned i = 0; i < p->nspaces; i++)
        put(f, " ", 1);
}

void piece_put(const struct piece *p, const char *dir) {
    char path[256];
    unsigned name = p->head % NNAMES;
    snprintf(path, sizeof path, "%s/%s", dir, p->name);
    FILE *f = fopen(path, "wb");
    if (!f) {
        perror(path);
        exit(1);
    }
    if (name < NSHARDS && !(p->head & VERBATIM))
        put_header(f, p);
    else
        put(f, p->sections[0], p->nbytes[0]);
    if (name == MANIFEST && !(p->head & VERBATIM))
        fprintf(f, SEAL_BEFORE "%016" PRIx64 SEAL_BEHIND,
                (uint64_t)XXH3_64bits(p->sections[0], p->nbytes[0]));
    put(f, p->sections[1], p->nbytes[1]);
    if (fclose(f)) {
        perror(path);
        exit(1);
    }
}
