#include "base/hidden_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { NFTW_NDESCRIPTORS = 16, NTRIES = 100, NAME_MAX_NBYTES = 255 };

static const char mark[] = ".binade-partial-", letters[] = "XXXXXX";

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path) && errno != ENOENT;
}

void dir_remove(const char *path) {
    nftw(path, remove_entry, NFTW_NDESCRIPTORS, FTW_DEPTH | FTW_PHYS);
}

static int open_dir(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

int dir_lock(const char *path) {
    int fd = open_dir(path);
    if (fd >= 0) flock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

/* ".NAME.binade-partial-", malloc'd; NULL, and a code in errno, on failure. */
static char *make_prefix(const char *parent, const char *name) {
    long most = pathconf(parent, _PC_NAME_MAX);
    if (most < 0 || most > NAME_MAX_NBYTES) most = NAME_MAX_NBYTES;
    size_t added = 1 + strlen(mark) + strlen(letters), nbytes = strlen(name);
    size_t room = (size_t)most > added ? (size_t)most - added : 0;
    if (nbytes > room) {
        nbytes = room;
        while (nbytes > 0 && ((unsigned char)name[nbytes] & 0xc0) == 0x80) /* within a character */
            nbytes--;
    }
    size_t capacity = nbytes + added + 1;
    char *prefix = malloc(capacity);
    if (prefix) snprintf(prefix, capacity, ".%.*s%s", (int)nbytes, name, mark);
    return prefix;
}

/* Is `path` still the directory that was opened? */
static bool is_at(const char *path, int fd) {
    struct stat there, opened;
    return !lstat(path, &there) && !fstat(fd, &opened) && there.st_dev == opened.st_dev &&
           there.st_ino == opened.st_ino;
}

static void remove_if_stale(const char *path) {
    struct stat st;
    int fd = open_dir(path);
    if (fd < 0) return;
    if (!fstat(fd, &st) && st.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB) &&
        is_at(path, fd))
        dir_remove(path);
    close(fd);
}

void hidden_dir_remove_stale(const char *parent, const char *name) {
    char *prefix = make_prefix(parent, name);
    DIR *dir = prefix ? opendir(parent) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        size_t length = strlen(prefix);
        if (strncmp(e->d_name, prefix, length) || strlen(e->d_name + length) != strlen(letters))
            continue;
        char *path = path_join(parent, e->d_name);
        if (path) remove_if_stale(path);
        free(path);
    }
    if (dir) closedir(dir);
    free(prefix);
}

/* Locks a directory just made. False if another process took it for stale before it was locked, and
 * has removed it or is about to. */
static bool lock_new(const char *path, int *lock) {
    *lock = open_dir(path);
    if (*lock < 0) return errno != ENOENT;
    bool taken = flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && is_at(path, *lock)) return true;
    close(*lock);
    *lock = -1;
    return false;
}

char *hidden_dir_make(const char *parent, const char *name, int *lock) {
    char *prefix = make_prefix(parent, name), *path = NULL;
    int code = prefix ? EAGAIN : ENOMEM;
    *lock = -1;
    for (int i = 0; i < NTRIES && code == EAGAIN; i++) {
        size_t capacity = strlen(parent) + strlen(prefix) + strlen(letters) + 2;
        path = malloc(capacity);
        if (path) snprintf(path, capacity, "%s/%s%s", parent, prefix, letters);
        if (!path || !mkdtemp(path))
            code = path ? errno : ENOMEM;
        else if (lock_new(path, lock))
            code = 0;
        if (!code) break;
        free(path);
        path = NULL;
    }
    free(prefix);
    errno = code;
    return path;
}
