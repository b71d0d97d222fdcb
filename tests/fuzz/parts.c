/* parts.c - see parts.h. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

enum { HEAD_NBYTES = 10, TILE_NWEIGHTS = 128 };

_Noreturn void require_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
    abort();
}

bool is_sentence(const char *message) {
    size_t nbytes = strlen(message);
    return nbytes > 0 && !strchr(message, '\n') && utf8_valid(message, nbytes);
}

void *exact(size_t nbytes) {
    void *memory = malloc(nbytes);
    if (nbytes > 0 && !memory) {
        fprintf(stderr, "no %zu bytes of memory\n", nbytes);
        exit(1);
    }
    return memory;
}

/* Pieces of 2^17 weights are what the library works in: some shapes reach beyond one, by their rows
 * or by a single row, but not many, since they take long. */
void weight_shape(const uint8_t input[5], uint64_t *rows, uint64_t *cols) {
    uint64_t r = input[1] | (uint64_t)input[2] << 8, c = input[3] | (uint64_t)input[4] << 8;
    switch (input[0] & FLAG_SHAPE_KIND) {
    case 0:
        *rows = r % 16 + 1;
        *cols = c % 1024 + 1;
        break;
    case 8:
        *rows = r / 8 % 2 + 1;
        *cols = r % 8 ? c % 4096 + 1 : (1 << 17) - 300 + 2 * c;
        break;
    case 16:
        *rows = r % 1000 + 1;
        *cols = c % 2 + 1;
        break;
    default:
        *rows = r % 500 + 1;
        *cols = r % 8 ? c % 32 + 1 : c % 300 + 200;
    }
}

static uint64_t count_tiles(const struct weight *w) {
    return w->rows * ((w->cols + TILE_NWEIGHTS - 1) / TILE_NWEIGHTS);
}

static uint8_t *copy_exact(const uint8_t *bytes, size_t nbytes) {
    uint8_t *copy = exact(nbytes);
    if (nbytes > 0) memcpy(copy, bytes, nbytes);
    return copy;
}

static void shorten(uint8_t **part, size_t *nbytes, size_t by) {
    size_t kept = by < *nbytes ? *nbytes - by : 0;
    uint8_t *shorter = copy_exact(*part, kept);
    free(*part);
    *part = shorter;
    *nbytes = kept;
}

/* Each change is 4 bytes: the part, where in it in 2^16ths, and what is flipped there; flipping
 * nothing shortens the part by 1 to 4 bytes instead. */
static void damage(struct weight *w, const uint8_t *changes, size_t nbytes) {
    binade_parts *p = &w->parts;
    uint8_t **parts[] = {&p->raw, &p->table, &p->meta, &p->codes, &p->tail};
    size_t *sizes[] = {&p->raw_nbytes, &p->table_nbytes, &p->meta_nbytes, &p->codes_nbytes,
                       &p->tail_nbytes};
    for (; nbytes >= 4; nbytes -= 4, changes += 4) {
        unsigned part = changes[0] % 5, where = changes[1] | (unsigned)changes[2] << 8;
        size_t at = (size_t)((uint64_t)*sizes[part] * where >> 16);
        if (changes[3] == 0)
            shorten(parts[part], sizes[part], where % 4 + 1);
        else if (*sizes[part] > 0)
            (*parts[part])[at] ^= changes[3];
    }
}

static bool make_weight(const struct part_format *format, struct weight *w, const uint8_t *input,
                        size_t nbytes) {
    size_t nmeta = input[6] | (size_t)input[7] << 8, ntail = input[8] | (size_t)input[9] << 8;
    const uint8_t *meta = input + HEAD_NBYTES, *tail, *rest;
    nbytes -= HEAD_NBYTES;
    if (nmeta > nbytes) nmeta = nbytes;
    if (ntail > nbytes - nmeta) ntail = nbytes - nmeta;
    tail = meta + nmeta;
    rest = tail + ntail;
    size_t nrest = nbytes - nmeta - ntail;

    binade_parts *p = &w->parts;
    bool verbatim = input[0] & FLAG_VERBATIM;
    weight_shape(input, &w->rows, &w->cols);
    p->raw_nbytes = (size_t)(w->rows * w->cols);
    p->raw = exact(p->raw_nbytes);
    for (size_t i = 0; i < p->raw_nbytes; i++)
        p->raw[i] = (uint8_t)(i * 37 + i / 256);
    p->table_nbytes = 256;
    p->table = exact(256);
    for (unsigned rank = 0; rank < 256; rank++)
        p->table[rank] = (uint8_t)(rank ^ input[5]);
    p->meta_nbytes = verbatim ? nmeta : (size_t)count_tiles(w);
    p->meta = exact(p->meta_nbytes);
    for (size_t i = 0; i < p->meta_nbytes; i++) {
        uint8_t byte = pattern_at((struct pattern){meta, nmeta}, i);
        p->meta[i] = verbatim || input[0] & FLAG_ANY_META ? byte : format->repair_meta(byte);
    }
    if (!verbatim) {
        if (!format->make_streams(w, (struct pattern){rest, nrest})) return false;
        damage(w, tail, ntail);
        return true;
    }
    p->codes = copy_exact(rest, p->codes_nbytes = nrest);
    p->tail = copy_exact(tail, p->tail_nbytes = ntail);
    return true;
}

static void free_weight(struct weight *w) {
    free(w->parts.raw);
    free(w->parts.table);
    free(w->parts.meta);
    free(w->parts.codes);
    free(w->parts.tail);
}

void check_weight(const struct part_format *format, const uint8_t *input, size_t nbytes) {
    struct weight w = {0};
    binade_error err = {""};
    if (nbytes < HEAD_NBYTES || !make_weight(format, &w, input, nbytes)) goto done;
    size_t out_nbytes = (size_t)(2 * w.rows * w.cols);
    uint8_t *ours = exact(out_nbytes), *theirs = exact(out_nbytes);
    binade_status status = binade_decode(format->format, &w.parts, w.rows, w.cols, ours,
                                         input[0] & FLAG_TWO_THREADS ? 2 : 1, &err);
    bool is_good = format->decode(&w, theirs);
    REQUIRE(status == (is_good ? BINADE_OK : BINADE_E_DATA));
    if (is_good)
        REQUIRE(memcmp(ours, theirs, out_nbytes) == 0);
    else
        REQUIRE(is_sentence(err.message));
    free(theirs);
    free(ours);
done:
    free_weight(&w);
}
