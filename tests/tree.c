/* tree.c - small directory trees for tests. */
#include "tree.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void require(int good, const char *what) {
    if (good) return;
    perror(what);
    exit(1);
}

char *tree_make(void) {
    const char *tmp = getenv("TMPDIR");
    char pattern[PATH_MAX];
    snprintf(pattern, sizeof pattern, "%s/binade_test_XXXXXX", tmp && *tmp ? tmp : "/tmp");
    require(mkdtemp(pattern) != NULL, pattern);
    char *root = realpath(pattern, NULL);
    require(root != NULL, pattern);
    return root;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void tree_remove(char *root) {
    require(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0, root);
    free(root);
}

const char *tree_path(const char *root, const char *inside) {
    static char rooms[8][PATH_MAX];
    static unsigned next;
    char *room = rooms[next++ % 8];
    int length = snprintf(room, PATH_MAX, "%s/%s", root, inside);
    require(length > 0 && length < PATH_MAX, inside);
    return room;
}

/* Makes every directory that ends at a slash of `path`. */
static void make_parents(const char *path) {
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        require(mkdir(copy, 0777) == 0 || errno == EEXIST, copy);
        *slash = '/';
    }
}

void tree_mkdir(const char *root, const char *inside) {
    const char *path = tree_path(root, inside);
    make_parents(path);
    require(mkdir(path, 0777) == 0 || errno == EEXIST, path);
}

void tree_put(const char *root, const char *inside, const char *text) {
    const char *path = tree_path(root, inside);
    make_parents(path);
    FILE *f = fopen(path, "w");
    require(f != NULL, path);
    require(fputs(text, f) >= 0 && fclose(f) == 0, path);
}

void tree_link(const char *root, const char *inside, const char *target) {
    const char *path = tree_path(root, inside);
    make_parents(path);
    require(symlink(target, path) == 0, path);
}
