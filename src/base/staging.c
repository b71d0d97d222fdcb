#include "base/staging.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hidden_dir.h"

enum { NFTW_NDESCRIPTORS = 16 };

static int sync_dir(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int code;
    do
        code = fsync(fd) ? errno : 0;
    while (code == EINTR);
    close(fd);
    return code == EINVAL ? 0 : code; /* some file systems cannot sync a directory */
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

/* "a/b/c" -> "a/b" -> "a" -> "."; "/a" -> "/", which stays. */
static void cut_last(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash) {
        memcpy(path, ".", 2); /* no path is empty */
        return;
    }
    while (slash > path && slash[-1] == '/')
        slash--;
    slash[slash == path] = 0;
}

/* Makes the directories above `path`, of which the first `there` characters, at least 1, exist.
 * *made gets the length of the uppermost that was not there, 0 if all were. */
static binade_status make_dirs(char *path, size_t there, size_t *made, binade_error *err) {
    *made = 0;
    for (char *slash = path + there; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        int failed = mkdir(path, 0777) ? errno : 0;
        if (!failed && !*made) *made = (size_t)(slash - path);
        binade_status status = BINADE_OK;
        /* Not every system says EEXIST where it would also refuse to make it. */
        if (failed && !path_is_dir(path)) {
            const struct quoted quoted = quote_path(path);
            status = failed == EEXIST
                         ? fail(err, BINADE_E_IO, "%s: is not a directory", quoted.text)
                         : fail_errno(err, failed, "%s: cannot make the directory", quoted.text);
        }
        *slash = '/';
        if (status) return status;
    }
    return BINADE_OK;
}

/* Calls `visit` with the directories above s->final that were made, innermost first, and then with
 * the one above them unless made_only. */
static int visit_parents(const struct staging *s, bool made_only, int (*visit)(const char *path)) {
    char *path = strdup(s->final);
    int code = path ? 0 : ENOMEM;
    for (bool was_made = true; !code && was_made;) {
        bool is_named = strchr(path, '/') != NULL;
        cut_last(path);
        was_made = is_named && s->made > 0 && strlen(path) >= s->made;
        if (was_made || !made_only) code = visit(path);
    }
    free(path);
    return code;
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

static binade_status fail_inside(const char *final, binade_error *err) {
    return fail(err, BINADE_E_USAGE, "%s: the output may not be the source or inside of it",
                quote_path(final).text);
}

/* Before any directory is made on the way to `final`: is what exists of that way in the source? */
static binade_status check_way(const char *final, const char *source, binade_error *err) {
    struct stat src, way;
    char *path = strdup(final);
    if (!path) return fail_memory(err);
    while (lstat(path, &way) && strcmp(path, ".") && strcmp(path, "/"))
        cut_last(path);
    bool inside = stat(source, &src) == 0 && is_within(path, src.st_dev, src.st_ino);
    free(path);
    return inside ? fail_inside(final, err) : BINADE_OK;
}

/* Whether it could be renamed over, or exchanged for another: what would fail at the very end. */
static binade_status check_replaceable(const struct staging *s, const struct stat *dst,
                                       binade_error *err) {
    struct stat parent;
    if (stat(s->parent, &parent))
        return fail_errno(err, errno, "%s: cannot be read", quote_path(s->parent).text);
    if (dst->st_dev != parent.st_dev)
        return fail(err, BINADE_E_USAGE,
                    "%s: a file system is mounted there, so it cannot be replaced; name a "
                    "directory in it",
                    quote_path(s->final).text);
    uid_t user = geteuid();
    if (parent.st_mode & S_ISVTX && user != 0 && user != dst->st_uid && user != parent.st_uid)
        return fail(err, BINADE_E_USAGE,
                    "%s: belongs to another user, who alone may replace it there; name another "
                    "directory",
                    quote_path(s->final).text);
    return BINADE_OK;
}

static binade_status check_place(struct staging *s, const char *source, binade_error *err) {
    struct stat src, dst;
    if (stat(source, &src))
        return fail_errno(err, errno, "%s: cannot be read", quote_path(source).text);
    const char *final = s->final;
    bool exists = lstat(final, &dst) == 0;
    if (!exists && errno != ENOENT)
        return fail_errno(err, errno, "%s: cannot be made", quote_path(final).text);
    if (is_within(exists ? final : s->parent, src.st_dev, src.st_ino))
        return fail_inside(final, err);
    if (!exists) return BINADE_OK;
    if (!S_ISDIR(dst.st_mode))
        return fail(err, BINADE_E_USAGE, "%s: exists and is not a directory",
                    quote_path(final).text);
    if (is_within(source, dst.st_dev, dst.st_ino))
        return fail(err, BINADE_E_USAGE, "%s: the output may not be a directory around the source",
                    quote_path(final).text);
    if (!s->replace && !path_is_empty_dir(final))
        return fail(err, BINADE_E_USAGE, "%s: exists and is not empty", quote_path(final).text);
    return check_replaceable(s, &dst, err);
}

static binade_status make_staged_dir(struct staging *s, binade_error *err) {
    const char *name = path_base(s->final);
    hidden_dir_remove_stale(s->parent, name);
    s->path = hidden_dir_make(s->parent, name, &s->lock);
    if (!s->path)
        return fail_errno(err, errno, "%s: cannot make a directory", quote_path(s->parent).text);
    mode_t mask = umask(0);
    umask(mask);
    chmod(s->path, 0777 & ~mask); /* mkdtemp's 0700 would surprise at the final place */
    return BINADE_OK;
}

/* Sets s->final and s->parent, and makes the directories above. */
static binade_status find_place(struct staging *s, const char *final, const char *source,
                                binade_error *err) {
    char *trimmed = trim_slashes(final);
    binade_status status = BINADE_OK;
    if (!trimmed) return fail_memory(err);
    if (!*trimmed) {
        free(trimmed);
        return fail(err, BINADE_E_USAGE, "the output directory needs a name");
    }
    /* An existing directory is replaced where it really is, not where a link to it stands. */
    s->final = realpath(trimmed, NULL);
    if (s->final) {
        free(trimmed);
    } else {
        s->final = trimmed;
        status = check_way(trimmed, source, err);
        if (!status) status = make_dirs(trimmed, 1, &s->made, err);
    }
    if (status) return status;
    s->parent = strdup(s->final);
    if (!s->parent) return fail_memory(err);
    cut_last(s->parent);
    return BINADE_OK;
}

binade_status staging_open(struct staging *s, const char *final, const char *source, bool replace,
                           binade_error *err) {
    *s = (struct staging){.lock = -1, .replace = replace};
    binade_status status = find_place(s, final, source, err);
    if (!status) status = check_place(s, source, err);
    if (!status) status = make_staged_dir(s, err);
    if (status) staging_discard(s);
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

/* Exchanges s->path and s->final where the system cannot do it at once. */
static int exchange_by_renames(const struct staging *s) {
    int code = 0, lock;
    char *aside = hidden_dir_make(s->parent, path_base(s->final), &lock);
    if (!aside) return errno;
    if (rename(s->final, aside)) {
        code = errno;
        rmdir(aside);
    } else if (rename(s->path, s->final)) {
        code = errno;
        rename(aside, s->final);
    } else {
        rename(aside, s->path);
    }
    free(aside);
    if (lock >= 0) close(lock);
    return code;
}

static int exchange(const struct staging *s) {
#ifdef RENAME_EXCHANGE
    if (!renameat2(AT_FDCWD, s->path, AT_FDCWD, s->final, RENAME_EXCHANGE)) return 0;
#endif
#ifdef RENAME_SWAP
    if (!renamex_np(s->path, s->final, RENAME_SWAP)) return 0;
#endif
    return exchange_by_renames(s); /* not every file system can */
}

/* Moves what was built to its place, and what stood there, if anything, to s->path. */
static int move_into_place(const struct staging *s, bool *exchanged) {
    struct stat st;
    *exchanged = s->replace && lstat(s->final, &st) == 0;
    if (*exchanged) return exchange(s);
    return rename(s->path, s->final) ? errno : 0;
}

static binade_status move_and_sync(const struct staging *s, binade_error *err) {
    bool exchanged;
    int code = move_into_place(s, &exchanged);
    if (code)
        return fail_errno(err, code, "%s: cannot be moved into its place",
                          quote_path(s->final).text);
    code = visit_parents(s, false, sync_dir);
    if (code && (exchanged ? exchange(s) : rename(s->final, s->path)) == 0)
        return fail_errno(err, code, "%s: cannot be written to the device",
                          quote_path(s->parent).text);
    if (exchanged) dir_remove(s->path); /* the old one */
    return BINADE_OK;
}

binade_status staging_commit(struct staging *s, binade_error *err) {
    int code = nftw(s->path, sync_entry, NFTW_NDESCRIPTORS, FTW_PHYS);
    if (code) {
        if (code < 0) code = errno;
        return fail_errno(err, code, "%s: cannot be written to the device",
                          quote_path(s->path).text);
    }
    /* The old one has a hidden name for a moment, and may have to go back. */
    int old = s->replace ? dir_lock(s->final) : -1;
    binade_status status = move_and_sync(s, err);
    if (old >= 0) close(old);
    if (status) return status;
    free(s->path);
    s->path = NULL;
    s->made = 0;
    staging_discard(s);
    return BINADE_OK;
}

static int remove_if_empty(const char *path) {
    rmdir(path);
    return 0;
}

void staging_discard(struct staging *s) {
    if (s->path) dir_remove(s->path);
    if (s->made) visit_parents(s, true, remove_if_empty);
    if (s->lock > 0) close(s->lock);
    free(s->path);
    free(s->parent);
    free(s->final);
    *s = (struct staging){.lock = -1};
}

binade_status staging_make_parents(const struct staging *s, const char *name, binade_error *err) {
    char *path = path_join(s->path, name);
    if (!path) return fail_memory(err);
    size_t made;
    binade_status status = make_dirs(path, strlen(s->path) + 1, &made, err);
    free(path);
    return status;
}
