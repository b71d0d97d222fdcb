#include "base/staging.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"

enum { NFTW_NDESCRIPTORS = 16 };

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path) && errno != ENOENT;
}

static void remove_tree(const char *path) {
    nftw(path, remove_entry, NFTW_NDESCRIPTORS, FTW_DEPTH | FTW_PHYS);
}

static int sync_dir(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    /* Some file systems cannot sync a directory and say EINVAL. */
    int code = fsync(fd) && errno != EINVAL ? errno : 0;
    close(fd);
    return code;
}

static int sync_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)ftw;
    return type == FTW_D || type == FTW_DP ? sync_dir(path) : 0;
}

/* "/a/b/" -> "/a/b"; malloc'd. */
static char *trim_slashes(const char *path) {
    char *copy = strdup(path);
    if (!copy) return NULL;
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/';)
        copy[--n] = 0;
    return copy;
}

static binade_status make_dirs(char *path, binade_error *err) {
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        int failed = mkdir(path, 0777) && errno != EEXIST ? errno : 0;
        if (failed) {
            binade_status status =
                fail_errno(err, failed, "%s: cannot make the directory", quote_path(path).text);
            *slash = '/';
            return status;
        }
        *slash = '/';
    }
    return BINADE_OK;
}

/* Is `dir` the directory (dev, ino), or inside of it? */
static bool is_within(const char *dir, dev_t dev, ino_t ino) {
    char *path = realpath(dir, NULL);
    bool within = false;
    while (path && !within) {
        struct stat st;
        within = stat(path, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
        char *slash = strrchr(path, '/');
        if (!slash || !path[1]) break;
        if (slash == path)
            path[1] = 0;
        else
            *slash = 0;
    }
    free(path);
    return within;
}

static bool is_empty_dir(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return false;
    bool empty = true;
    for (struct dirent *e; empty && (e = readdir(dir));)
        empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
    closedir(dir);
    return empty;
}

static binade_status check_place(struct staging *s, const char *source, binade_error *err) {
    struct stat src, dst;
    if (stat(source, &src))
        return fail_errno(err, errno, "%s: cannot be read", quote_path(source).text);
    const char *final = s->final;
    bool exists = lstat(final, &dst) == 0;
    if (is_within(exists ? final : s->parent, src.st_dev, src.st_ino))
        return fail(err, BINADE_E_USAGE, "%s: the output may not be the source or inside of it",
                    quote_path(final).text);
    if (!exists) return BINADE_OK;
    if (!S_ISDIR(dst.st_mode))
        return fail(err, BINADE_E_USAGE, "%s: exists and is not a directory",
                    quote_path(final).text);
    if (is_within(source, dst.st_dev, dst.st_ino))
        return fail(err, BINADE_E_USAGE, "%s: the output may not be a directory around the source",
                    quote_path(final).text);
    if (!s->replace && !is_empty_dir(final))
        return fail(err, BINADE_E_USAGE, "%s: exists and is not empty", quote_path(final).text);
    return BINADE_OK;
}

/* Removes what killed processes left of earlier tries at the same place. */
static void remove_stale(const struct staging *s, const char *prefix) {
    DIR *dir = opendir(s->parent);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) ||
            strlen(e->d_name) != strlen(prefix) + strlen("XXXXXX"))
            continue;
        char *path = path_join(s->parent, e->d_name);
        int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) remove_tree(path);
        if (fd >= 0) close(fd);
        free(path);
    }
    closedir(dir);
}

static binade_status make_staged_dir(struct staging *s, binade_error *err) {
    const char *name = path_base(s->final);
    size_t nbytes = strlen(s->parent) + strlen(name) + sizeof "/..partial-XXXXXX";
    s->path = malloc(nbytes);
    if (!s->path) return fail_memory(err);
    snprintf(s->path, nbytes, ".%s.partial-", name);
    remove_stale(s, s->path);
    snprintf(s->path, nbytes, "%s/.%s.partial-XXXXXX", s->parent, name);
    if (!mkdtemp(s->path)) {
        int code = errno;
        free(s->path);
        s->path = NULL;
        return fail_errno(err, code, "%s: cannot make a directory", quote_path(s->parent).text);
    }
    mode_t mask = umask(0);
    umask(mask);
    chmod(s->path, 0777 & ~mask); /* mkdtemp's 0700 would surprise at the final place */
    s->lock = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->lock >= 0) flock(s->lock, LOCK_EX | LOCK_NB); /* where locks fail nothing else is lost */
    return BINADE_OK;
}

binade_status staging_open(struct staging *s, const char *final, const char *source, bool replace,
                           binade_error *err) {
    *s = (struct staging){.lock = -1, .replace = replace};
    binade_status status = BINADE_OK;
    char *trimmed = trim_slashes(final);
    if (!trimmed || !*trimmed) {
        free(trimmed);
        return fail(err, BINADE_E_USAGE, "the output directory needs a name");
    }
    /* An existing directory is replaced where it really is, not where a link to it stands. */
    s->final = realpath(trimmed, NULL);
    if (s->final) {
        free(trimmed);
    } else if ((status = make_dirs(trimmed, err))) {
        free(trimmed);
        goto failed;
    } else {
        s->final = trimmed;
    }
    const char *base = path_base(s->final);
    s->parent = base == s->final ? strdup(".") : strndup(s->final, (size_t)(base - s->final));
    if (!s->parent) {
        status = fail_memory(err);
        goto failed;
    }
    if ((status = check_place(s, source, err))) goto failed;
    if ((status = make_staged_dir(s, err))) goto failed;
    return BINADE_OK;
failed:
    staging_discard(s);
    return status;
}

binade_status staging_require(const struct staging *s, uint64_t nbytes, binade_error *err) {
    struct statvfs vfs;
    if (statvfs(s->path, &vfs))
        return fail_errno(err, errno, "%s: cannot tell the free space", quote_path(s->parent).text);
    uint64_t free_nbytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    if (free_nbytes < nbytes)
        return fail(err, BINADE_E_IO,
                    "%s: %.3f GB are free where up to %.3f GB may be needed for %s",
                    quote_path(s->parent).text, (double)free_nbytes / 1e9, (double)nbytes / 1e9,
                    quote_path(path_base(s->final)).text);
    return BINADE_OK;
}

static int move_into_place(const struct staging *s) {
    if (s->replace) {
#ifdef RENAME_EXCHANGE
        if (!renameat2(AT_FDCWD, s->path, AT_FDCWD, s->final, RENAME_EXCHANGE)) return 0;
#endif
#ifdef RENAME_SWAP
        if (!renamex_np(s->path, s->final, RENAME_SWAP)) return 0;
#endif
    }
    return rename(s->path, s->final) ? errno : 0;
}

binade_status staging_commit(struct staging *s, binade_error *err) {
    int code = nftw(s->path, sync_entry, NFTW_NDESCRIPTORS, FTW_PHYS);
    if (code) {
        if (code < 0) code = errno;
        return fail_errno(err, code, "%s: cannot be written to the device",
                          quote_path(s->path).text);
    }
    code = move_into_place(s);
    if (code)
        return fail_errno(err, code, "%s: cannot be moved into its place",
                          quote_path(s->final).text);
    if (s->replace) remove_tree(s->path); /* after an exchange: the old one */
    free(s->path);
    s->path = NULL;
    code = sync_dir(s->parent);
    staging_discard(s);
    return code ? fail_errno(err, code, "the output's directory cannot be written to the device")
                : BINADE_OK;
}

void staging_discard(struct staging *s) {
    if (s->path) remove_tree(s->path);
    if (s->lock > 0) close(s->lock);
    free(s->path);
    free(s->parent);
    free(s->final);
    *s = (struct staging){.lock = -1};
}

binade_status staging_make_parents(const struct staging *s, const char *name, binade_error *err) {
    char *path = path_join(s->path, name);
    if (!path) return fail_memory(err);
    binade_status status = make_dirs(path, err);
    free(path);
    return status;
}
