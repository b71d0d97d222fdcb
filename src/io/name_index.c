/* name_index.c - names sorted by hash, then by their bytes. */
#include "io/name_index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "io/sort.h"

/* Eight bytes for each name, where pointers and lengths would take 24. */
struct name_ref {
    uint32_t hash, item;
};

struct naming {
    name_of_item name_of;
    const void *owner;
};

static uint32_t hash_name(struct name name) {
    /* Any odd constant with well mixed bits. A bad hash costs time, never a wrong answer. */
    const uint64_t factor = 0x9E3779B97F4A7C15u;
    uint64_t hash = name.nbytes * factor;
    size_t at = 0;
    for (uint64_t word; name.nbytes - at >= 8; at += 8) {
        memcpy(&word, name.text + at, 8);
        hash = (hash ^ word) * factor;
        hash ^= hash >> 29;
    }
    uint64_t tail = 0;
    memcpy(&tail, name.text + at, name.nbytes - at);
    hash = (hash ^ tail) * factor;
    return (uint32_t)(hash >> 32);
}

static int compare_names(struct name a, struct name b) {
    if (a.nbytes != b.nbytes) return a.nbytes < b.nbytes ? -1 : 1;
    return memcmp(a.text, b.text, a.nbytes);
}

static bool ref_before(const void *a, const void *b, const void *user) {
    const struct name_ref *left = a, *right = b;
    const struct naming *n = user;
    if (left->hash != right->hash) return left->hash < right->hash;
    return compare_names(n->name_of(n->owner, left->item), n->name_of(n->owner, right->item)) < 0;
}

binade_status name_index_build(struct name_index *x, size_t count, name_of_item name_of,
                               const void *owner, binade_error *err) {
    *x = (struct name_index){0};
    if (count == 0) return BINADE_OK;
    if ((uint64_t)count > (uint64_t)1 << 32) return fail_memory(err);
    struct name_ref *refs = malloc(count * sizeof *refs);
    if (!refs) return fail_memory(err);
    for (size_t i = 0; i < count; i++)
        refs[i] = (struct name_ref){hash_name(name_of(owner, i)), (uint32_t)i};
    const struct naming naming = {name_of, owner};
    binade_status status = merge_sort(refs, count, sizeof *refs, ref_before, &naming, err);
    if (status) {
        free(refs);
        return status;
    }
    *x = (struct name_index){refs, count};
    return BINADE_OK;
}

size_t name_index_find(const struct name_index *x, name_of_item name_of, const void *owner,
                       struct name name) {
    uint32_t hash = hash_name(name);
    size_t low = 0, high = x->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct name_ref *ref = &x->refs[middle];
        bool before = ref->hash != hash ? ref->hash < hash
                                        : compare_names(name_of(owner, ref->item), name) < 0;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == x->count || x->refs[low].hash != hash) return SIZE_MAX;
    size_t item = x->refs[low].item;
    return compare_names(name_of(owner, item), name) == 0 ? item : SIZE_MAX;
}

void name_index_free(struct name_index *x) {
    free(x->refs);
    *x = (struct name_index){0};
}

binade_status find_name_twice(size_t count, name_of_item name_of, const void *owner, size_t *twice,
                              binade_error *err) {
    *twice = SIZE_MAX;
    /* Most objects are small; they need no memory. */
    if (count <= 8) {
        for (size_t i = 1; i < count; i++)
            for (size_t k = 0; k < i; k++)
                if (compare_names(name_of(owner, i), name_of(owner, k)) == 0) *twice = i;
        return BINADE_OK;
    }
    struct name_index x;
    binade_status status = name_index_build(&x, count, name_of, owner, err);
    if (status) return status;
    for (size_t i = 1; i < count; i++) {
        const struct name_ref *a = &x.refs[i - 1], *b = &x.refs[i];
        if (a->hash == b->hash &&
            compare_names(name_of(owner, a->item), name_of(owner, b->item)) == 0) {
            *twice = b->item;
            break;
        }
    }
    name_index_free(&x);
    return BINADE_OK;
}
