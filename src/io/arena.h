/* arena.h - memory for many small things that are freed together. */
#ifndef BINADE_IO_ARENA_H
#define BINADE_IO_ARENA_H

#include <stddef.h>

struct arena;

/* NULL when out of memory. */
struct arena *arena_new(void);
/* Accepts NULL. */
void arena_free(struct arena *a);

/* Memory for nbytes bytes at a multiple of `align`, 1 or 8; NULL when out of memory. */
void *arena_take(struct arena *a, size_t nbytes, size_t align);
/* A copy with a NUL behind it. */
char *arena_copy_text(struct arena *a, const char *text, size_t nbytes);

#endif
