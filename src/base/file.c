/* file.c - open files, whole reads and writes, paths. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) >= 8, "files larger than 2 GiB need 64-bit offsets");

/* macOS refuses reads and writes of more than INT_MAX bytes. */
enum { CALL_MAX_NBYTES = 1 << 30 };

static int64_t mtime_of(const struct stat *info) {
#ifdef __APPLE__
    const struct timespec time = info->st_mtimespec;
#else
    const struct timespec time = info->st_mtim;
#endif
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

binade_status file_open(struct file *f, const char *path, binade_error *err) {
    *f = (struct file){.fd = -1};
    binade_status status;
    struct stat info;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. Regular files ignore it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail_errno(err, errno, "%s: cannot open", quote_path(path).text);
    if (fstat(fd, &info) != 0) {
        status = fail_errno(err, errno, "%s: cannot stat", quote_path(path).text);
        goto undo;
    }
    if (!S_ISREG(info.st_mode)) {
        status = fail(err, BINADE_E_IO, "%s: not a regular file", quote_path(path).text);
        goto undo;
    }
    char *copy = strdup(path);
    if (!copy) {
        status = fail_memory(err);
        goto undo;
    }
    *f = (struct file){
        .fd = fd, .path = copy, .nbytes = (uint64_t)info.st_size, .mtime = mtime_of(&info)};
    return BINADE_OK;
undo:
    close(fd);
    return status;
}

binade_status file_create(struct file *f, const char *path, binade_error *err) {
    *f = (struct file){.fd = -1};
    char *copy = strdup(path);
    if (!copy) return fail_memory(err);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd < 0) {
        int code = errno;
        free(copy);
        return fail_errno(err, code, "%s: cannot create", quote_path(path).text);
    }
    *f = (struct file){.fd = fd, .path = copy};
    return BINADE_OK;
}

void file_close(struct file *f) {
    if (f->fd >= 0) close(f->fd);
    free(f->path);
    *f = (struct file){.fd = -1};
}

static int sync_to_device(int fd) {
    int result;
#ifdef F_FULLFSYNC
    /* On macOS fsync leaves data in the drive's cache; some file systems know only fsync. */
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
#endif
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

binade_status file_sync_close(struct file *f, binade_error *err) {
    binade_status status = BINADE_OK;
    if (sync_to_device(f->fd) != 0)
        status = fail_errno(err, errno, "%s: cannot sync", quote_path(f->path).text);
    /* After EINTR the descriptor is gone on Linux, and fsync has already done what matters. */
    int closed = close(f->fd);
    if (closed != 0 && errno != EINTR && status == BINADE_OK)
        status = fail_errno(err, errno, "%s: cannot close", quote_path(f->path).text);
    f->fd = -1;
    file_close(f);
    return status;
}

/* Whether [offset, offset + nbytes) can be said in off_t. */
static bool is_addressable(uint64_t offset, size_t nbytes) {
    return offset <= INT64_MAX && nbytes <= INT64_MAX - offset;
}

static binade_status fail_shorter(const struct file *f, uint64_t offset, size_t nbytes, size_t done,
                                  binade_error *err) {
    /* The end may lie before `offset`; only the system knows. */
    struct stat info;
    uint64_t end = offset + done;
    if (fstat(f->fd, &info) == 0 && (uint64_t)info.st_size < end) end = (uint64_t)info.st_size;
    return fail(err, BINADE_E_IO,
                "%s: ended at byte %llu while reading bytes %llu..%llu: the file changed while it "
                "was read",
                quote_path(f->path).text, (unsigned long long)end, (unsigned long long)offset,
                (unsigned long long)(offset + nbytes));
}

binade_status file_read(const struct file *f, uint64_t offset, void *data, size_t nbytes,
                        binade_error *err) {
    if (!is_addressable(offset, nbytes))
        return fail_errno(err, EOVERFLOW, "%s: cannot read", quote_path(f->path).text);
    for (size_t done = 0; done < nbytes;) {
        size_t wanted = nbytes - done < CALL_MAX_NBYTES ? nbytes - done : CALL_MAX_NBYTES;
        ssize_t got = pread(f->fd, (char *)data + done, wanted, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(err, errno, "%s: cannot read", quote_path(f->path).text);
        if (got == 0) return fail_shorter(f, offset, nbytes, done, err);
        done += (size_t)got;
    }
    return BINADE_OK;
}

binade_status file_check_unchanged(const struct file *f, binade_error *err) {
    struct stat info;
    if (fstat(f->fd, &info) != 0)
        return fail_errno(err, errno, "%s: cannot stat", quote_path(f->path).text);
    if ((uint64_t)info.st_size == f->nbytes && mtime_of(&info) == f->mtime) return BINADE_OK;
    return fail(err, BINADE_E_IO, "%s: the file changed while it was read",
                quote_path(f->path).text);
}

binade_status file_write(const struct file *f, uint64_t offset, const void *data, size_t nbytes,
                         binade_error *err) {
    if (!is_addressable(offset, nbytes))
        return fail_errno(err, EOVERFLOW, "%s: cannot write", quote_path(f->path).text);
    for (size_t done = 0; done < nbytes;) {
        size_t wanted = nbytes - done < CALL_MAX_NBYTES ? nbytes - done : CALL_MAX_NBYTES;
        ssize_t put = pwrite(f->fd, (const char *)data + done, wanted, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return fail_errno(err, put < 0 ? errno : EIO, "%s: cannot write",
                              quote_path(f->path).text);
        done += (size_t)put;
    }
    return BINADE_OK;
}

binade_status file_slurp(const char *path, uint64_t limit, char **data, size_t *nbytes,
                         binade_error *err) {
    struct file f;
    char *text = NULL;
    binade_status status = file_open(&f, path, err);
    if (status) return status;
    if (f.nbytes > limit || f.nbytes >= SIZE_MAX) {
        status =
            fail(err, BINADE_E_DATA, "%s: has %llu bytes, expected at most %llu",
                 quote_path(path).text, (unsigned long long)f.nbytes, (unsigned long long)limit);
        goto done;
    }
    text = malloc((size_t)f.nbytes + 1);
    if (!text) {
        status = fail_memory(err);
        goto done;
    }
    status = file_read(&f, 0, text, (size_t)f.nbytes, err);
    if (status) goto done;
    text[f.nbytes] = '\0';
    *data = text;
    *nbytes = (size_t)f.nbytes;
    text = NULL;
done:
    free(text);
    file_close(&f);
    return status;
}

char *path_join(const char *dir, const char *name) {
    size_t ndir = strlen(dir), nname = strlen(name);
    bool slash = ndir > 0 && dir[ndir - 1] != '/';
    char *path = malloc(ndir + slash + nname + 1);
    if (!path) return NULL;
    memcpy(path, dir, ndir);
    if (slash) path[ndir] = '/';
    memcpy(path + ndir + slash, name, nname + 1);
    return path;
}

const char *path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool path_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool path_is_empty_dir(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return false;
    bool empty = true;
    for (struct dirent *e; empty && (e = readdir(dir));)
        empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
    closedir(dir);
    return empty;
}

bool path_is_inside(const char *path, size_t nbytes) {
    if (memchr(path, '\0', nbytes)) return false;
    for (size_t begin = 0; begin <= nbytes;) {
        const char *slash = begin < nbytes ? memchr(path + begin, '/', nbytes - begin) : NULL;
        size_t end = slash ? (size_t)(slash - path) : nbytes;
        size_t length = end - begin;
        if (length == 0 || (length == 1 && path[begin] == '.') ||
            (length == 2 && path[begin] == '.' && path[begin + 1] == '.'))
            return false;
        begin = end + 1;
    }
    return true;
}
