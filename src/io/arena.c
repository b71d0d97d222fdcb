/* arena.c - a list of blocks, each filled from its beginning. */
#include "io/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_MIN = 4096, BLOCK_MAX = 1 << 20 };

struct block {
    struct block *next;
    uint64_t room[]; /* malloc aligns it to 8 */
};

struct arena {
    struct block *blocks;
    char *free, *end; /* of the newest block */
    size_t block_nbytes;
};

struct arena *arena_new(void) {
    struct arena *a = calloc(1, sizeof *a);
    if (a) a->block_nbytes = BLOCK_MIN;
    return a;
}

void arena_free(struct arena *a) {
    if (!a) return;
    for (struct block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

/* A new block of at least nbytes. Blocks double up to BLOCK_MAX, so that small files stay small. */
static int add_block(struct arena *a, size_t nbytes) {
    if (nbytes > SIZE_MAX / 2) return 0;
    if (nbytes < a->block_nbytes) nbytes = a->block_nbytes;
    struct block *b = malloc(sizeof *b + nbytes);
    if (!b) return 0;
    b->next = a->blocks;
    a->blocks = b;
    a->free = (char *)b->room;
    a->end = a->free + nbytes;
    if (a->block_nbytes < BLOCK_MAX) a->block_nbytes *= 2;
    return 1;
}

void *arena_take(struct arena *a, size_t nbytes, size_t align) {
    size_t pad = (size_t)(-(uintptr_t)a->free) & (align - 1);
    if (!a->free || pad + nbytes < nbytes || pad + nbytes > (size_t)(a->end - a->free)) {
        if (!add_block(a, nbytes)) return NULL;
        pad = 0;
    }
    char *taken = a->free + pad;
    a->free = taken + nbytes;
    return taken;
}

char *arena_copy_text(struct arena *a, const char *text, size_t nbytes) {
    if (nbytes == SIZE_MAX) return NULL;
    char *copy = arena_take(a, nbytes + 1, 1);
    if (!copy) return NULL;
    memcpy(copy, text, nbytes);
    copy[nbytes] = '\0';
    return copy;
}
