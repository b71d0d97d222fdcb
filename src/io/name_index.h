/* name_index.h - finds names among millions, and names that occur twice, in a time that no choice
 * of names makes worse than n log n: names are sorted by hash, then by their bytes. */
#ifndef BINADE_IO_NAME_INDEX_H
#define BINADE_IO_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct name {
    const char *text; /* may hold NULs */
    size_t nbytes;
};

/* The name of an item; `owner` is whatever holds the items. */
typedef struct name (*name_of_item)(const void *owner, size_t item);

struct name_index {
    struct name_ref *refs; /* sorted */
    size_t count;
};

/* Indexes items 0..count-1, at most 2^32 of them. The owner must be given again, with the same
 * names, to find. */
binade_status name_index_build(struct name_index *x, size_t count, name_of_item name_of,
                               const void *owner, binade_error *err);
/* The first item of that name, or SIZE_MAX. */
size_t name_index_find(const struct name_index *x, name_of_item name_of, const void *owner,
                       struct name name);
/* Accepts a zeroed index. */
void name_index_free(struct name_index *x);

/* *twice gets an item with the same name as an earlier one, or SIZE_MAX. */
binade_status find_name_twice(size_t count, name_of_item name_of, const void *owner, size_t *twice,
                              binade_error *err);

#endif
