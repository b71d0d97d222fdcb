/* sort.h - a stable merge sort. qsort is neither stable nor, everywhere, safe from input made to
 * take quadratic time. */
#ifndef BINADE_IO_SORT_H
#define BINADE_IO_SORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Whether item a must come before item b; `user` as given to merge_sort. */
typedef bool (*comes_before)(const void *a, const void *b, const void *user);

/* Sorts count items of item_nbytes bytes each. Needs as much memory again, unless they are in order
 * already. */
binade_status merge_sort(void *items, size_t count, size_t item_nbytes, comes_before before,
                         const void *user, binade_error *err);

#endif
