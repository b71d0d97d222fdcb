/* sort.c - bottom-up merges between the array and a copy. */
#include "io/sort.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct order {
    size_t item_nbytes;
    comes_before before;
    const void *user;
};

static bool is_sorted(const char *items, size_t count, const struct order *o) {
    for (size_t i = 1; i < count; i++)
        if (o->before(items + i * o->item_nbytes, items + (i - 1) * o->item_nbytes, o->user))
            return false;
    return true;
}

/* Merges the sorted runs [a, b) and [b, c) into `to`. */
static void merge_runs(const char *a, const char *b, const char *c, char *to,
                       const struct order *o) {
    size_t n = o->item_nbytes;
    const char *left = a, *right = b;
    if (b == c || !o->before(b, b - n, o->user)) {
        memcpy(to, a, (size_t)(c - a));
        return;
    }
    while (left < b && right < c) {
        bool take_right = o->before(right, left, o->user);
        memcpy(to, take_right ? right : left, n);
        *(take_right ? &right : &left) += n;
        to += n;
    }
    memcpy(to, left, (size_t)(b - left));
    memcpy(to + (b - left), right, (size_t)(c - right));
}

binade_status merge_sort(void *items, size_t count, size_t item_nbytes, comes_before before,
                         const void *user, binade_error *err) {
    const struct order o = {item_nbytes, before, user};
    if (count < 2 || is_sorted(items, count, &o)) return BINADE_OK;
    size_t total = count * item_nbytes;
    char *copy = malloc(total);
    if (!copy) return fail_memory(err);
    char *from = items, *to = copy;
    for (size_t run = item_nbytes; run < total; run *= 2) {
        for (size_t begin = 0; begin < total;) {
            size_t middle = total - begin > run ? begin + run : total;
            size_t end = total - middle > run ? middle + run : total;
            merge_runs(from + begin, from + middle, from + end, to + begin, &o);
            begin = end;
        }
        char *swap = from;
        from = to;
        to = swap;
    }
    if (from == copy) memcpy(items, copy, total);
    free(copy);
    return BINADE_OK;
}
