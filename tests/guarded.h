/* guarded.h - buffers that end where memory ends, so that a byte too far is a crash. */
#ifndef BINADE_TESTS_GUARDED_H
#define BINADE_TESTS_GUARDED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CANARY = 0xa5, CANARY_NBYTES = 64 };

/* `end` is the first byte of an unmapped page. */
struct guarded {
    uint8_t *start, *end;
};

static inline struct guarded guarded_open(size_t nbytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t nmapped = (nbytes + CANARY_NBYTES + page - 1) / page * page + page;
    uint8_t *map = mmap(NULL, nmapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED || mprotect(map + nmapped - page, page, PROT_NONE) != 0) {
        perror("guarded_open");
        exit(2);
    }
    return (struct guarded){map, map + nmapped - page};
}

static inline void guarded_close(struct guarded *g) {
    munmap(g->start, (size_t)(g->end - g->start) + (size_t)sysconf(_SC_PAGESIZE));
}

/* nbytes that end `gap` (0..CANARY_NBYTES) bytes before the end, with canaries on both sides. */
static inline uint8_t *guarded_take(const struct guarded *g, size_t nbytes, size_t gap) {
    uint8_t *data = g->end - gap - nbytes;

    memset(data - CANARY_NBYTES, CANARY, CANARY_NBYTES);
    memset(data, 0x5a, nbytes);
    memset(data + nbytes, CANARY, gap);
    return data;
}

/* Whether nothing was written around those nbytes. */
static inline bool guarded_is_intact(const struct guarded *g, const uint8_t *data, size_t nbytes) {
    for (const uint8_t *at = data - CANARY_NBYTES; at < data; at++)
        if (*at != CANARY) return false;
    for (const uint8_t *at = data + nbytes; at < g->end; at++)
        if (*at != CANARY) return false;
    return true;
}

#endif
