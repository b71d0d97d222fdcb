/* path_list.c - lists of paths, sorted by bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "io/checkpoint_dir.h"
#include "io/sort.h"

binade_status path_list_add(struct path_list *l, char *path, binade_error *err) {
    char **paths = path ? grow_array(l->paths, &l->capacity, l->count, sizeof *paths) : NULL;
    if (!paths) {
        free(path);
        return fail_memory(err);
    }
    l->paths = paths;
    paths[l->count++] = path;
    return BINADE_OK;
}

static bool path_before(const void *a, const void *b, const void *user) {
    (void)user;
    return strcmp(*(char *const *)a, *(char *const *)b) < 0;
}

binade_status path_list_sort(struct path_list *l, binade_error *err) {
    binade_status status = merge_sort(l->paths, l->count, sizeof *l->paths, path_before, NULL, err);
    if (status) return status;
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (kept > 0 && strcmp(l->paths[kept - 1], l->paths[i]) == 0)
            free(l->paths[i]);
        else
            l->paths[kept++] = l->paths[i];
    }
    l->count = kept;
    return BINADE_OK;
}

static int compare_paths(const void *key, const void *item) {
    return strcmp(key, *(char *const *)item);
}

bool path_list_has(const struct path_list *l, const char *path) {
    return l->count > 0 && bsearch(path, l->paths, l->count, sizeof *l->paths, compare_paths);
}

void path_list_free(struct path_list *l) {
    for (size_t i = 0; i < l->count; i++)
        free(l->paths[i]);
    free(l->paths);
    *l = (struct path_list){0};
}
