/* checkpoint_dir.c - walks a checkpoint's directory and tells shards from other files. */
#include "io/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/file.h"
#include "io/safetensors.h"

enum { LEVELS_MAX = 64 };

/* As large as the largest header: an index has one line for each tensor too. */
static const uint64_t index_max_nbytes = (uint64_t)512 << 20;

struct scan {
    struct checkpoint_dir *d;
    bool is_pack;
    struct path_list files; /* all regular files */
    binade_error *err;
};

static binade_status walk(struct scan *s, const char *inside, unsigned level);

static binade_status leave_out(struct scan *s, const char *inside, const char *reason) {
    struct quoted name = quote_path(inside);
    size_t room = strlen(name.text) + strlen(reason) + 4;
    char *text = malloc(room);
    if (text) snprintf(text, room, "%s (%s)", name.text, reason);
    return path_list_add(&s->d->left_out, text, s->err);
}

/* `inside` is the entry's path within the directory, `full` its whole path. */
static binade_status add_entry(struct scan *s, const char *inside, const char *full,
                               unsigned level) {
    const char *name = path_base(inside);
    struct stat info;
    if (!utf8_valid(name, strlen(name)))
        return fail(s->err, BINADE_E_DATA,
                    "%s: its name is not valid UTF-8, expected for every file",
                    quote_path(full).text);
    if (strcmp(name, ".git") == 0 || strcmp(name, ".cache") == 0)
        return leave_out(s, inside, "not part of the checkpoint");
    if (lstat(full, &info) != 0)
        return fail_errno(s->err, errno, "%s: cannot stat", quote_path(full).text);
    if (S_ISDIR(info.st_mode)) return walk(s, inside, level + 1);
    if (S_ISLNK(info.st_mode)) {
        if (stat(full, &info) != 0) {
            if (errno != ENOENT && errno != ELOOP && errno != ENOTDIR)
                return fail_errno(s->err, errno, "%s: cannot stat", quote_path(full).text);
            return fail(s->err, BINADE_E_DATA, "%s: a link to nothing, expected a file",
                        quote_path(full).text);
        }
        if (S_ISDIR(info.st_mode)) return leave_out(s, inside, "a link to a directory");
    }
    if (!S_ISREG(info.st_mode)) return leave_out(s, inside, "neither a file nor a directory");
    return path_list_add(&s->files, strdup(inside), s->err);
}

/* Adds what the directory holds; `inside` is its path within the whole, NULL for the whole. */
static binade_status walk(struct scan *s, const char *inside, unsigned level) {
    binade_status status = BINADE_OK;
    char *full = inside ? path_join(s->d->path, inside) : strdup(s->d->path);
    DIR *dir = NULL;
    if (!full) return fail_memory(s->err);
    if (level > LEVELS_MAX) {
        status = fail(s->err, BINADE_E_DATA, "%s: directories nest deeper than %d",
                      quote_path(full).text, LEVELS_MAX);
        goto done;
    }
    dir = opendir(full);
    if (!dir) {
        status = fail_errno(s->err, errno, "%s: cannot list", quote_path(full).text);
        goto done;
    }
    while (!status) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry) {
            if (errno != 0)
                status = fail_errno(s->err, errno, "%s: cannot list", quote_path(full).text);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *inner = inside ? path_join(inside, entry->d_name) : strdup(entry->d_name);
        char *path = path_join(full, entry->d_name);
        status = inner && path ? add_entry(s, inner, path, level) : fail_memory(s->err);
        free(path);
        free(inner);
    }
done:
    if (dir) closedir(dir);
    free(full);
    return status;
}

static bool is_top_shard(const char *path) {
    return !strchr(path, '/') && st_is_file_name(path, strlen(path)) && strncmp(path, "._", 2) != 0;
}

static binade_status fail_absent(const struct scan *s, const char *shard) {
    bool exists = false;
    char *full = path_join(s->d->path, shard);
    struct stat info;
    if (!full) return fail_memory(s->err);
    exists = stat(full, &info) == 0;
    free(full);
    return fail(s->err, BINADE_E_DATA, "%s: shard %s named by " INDEX_NAME " is %s",
                quote_path(s->d->path).text, quote_path(shard).text,
                exists ? "no file of the checkpoint: it is, or lies in, what is left out"
                       : "absent");
}

/* Reads the shards that the index names, all of which must be there. */
static binade_status list_by_index(struct scan *s) {
    char *text = NULL, *path = path_join(s->d->path, INDEX_NAME);
    size_t nbytes;
    if (!path) return fail_memory(s->err);
    binade_status status = file_slurp(path, index_max_nbytes, &text, &nbytes, s->err);
    if (!status) status = index_list_shards(text, nbytes, path, &s->d->shards, s->err);
    if (!status && s->d->shards.count == 0 && !s->is_pack)
        status = fail(s->err, BINADE_E_DATA, "%s: weight_map is empty, expected at least one shard",
                      quote_path(path).text);
    for (size_t i = 0; i < s->d->shards.count && !status; i++)
        if (!path_list_has(&s->files, s->d->shards.paths[i]))
            status = fail_absent(s, s->d->shards.paths[i]);
    free(text);
    free(path);
    return status;
}

/* Names an entry that is called as a shard but is no file, if there is one. */
static binade_status fail_no_shards(const struct scan *s) {
    binade_status status = BINADE_OK;
    const char *path = s->d->path;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !status && (e = readdir(dir));) {
        char *full = is_top_shard(e->d_name) ? path_join(path, e->d_name) : NULL;
        struct stat info;
        if (full && stat(full, &info) == 0 && !S_ISREG(info.st_mode))
            status = fail(s->err, BINADE_E_USAGE, "%s: no *.safetensors files: %s is %s",
                          quote_path(path).text, quote_path(e->d_name).text,
                          S_ISDIR(info.st_mode) ? "a directory" : "no regular file");
        free(full);
    }
    if (dir) closedir(dir);
    return status
               ? status
               : fail(s->err, BINADE_E_USAGE, "%s: no *.safetensors files", quote_path(path).text);
}

/* Hands every file over to either list. */
static binade_status sort_out(struct scan *s) {
    struct checkpoint_dir *d = s->d;
    binade_status status = BINADE_OK;
    for (size_t i = 0; i < s->files.count && !status; i++) {
        char *file = s->files.paths[i];
        bool is_shard = d->has_index ? path_list_has(&d->shards, file) : is_top_shard(file);
        s->files.paths[i] = NULL;
        if (is_shard && d->has_index)
            free(file);
        else
            status = path_list_add(is_shard ? &d->shards : &d->others, file, s->err);
    }
    if (!status && d->shards.count == 0 && !(s->is_pack && d->has_index))
        status = fail_no_shards(s);
    return status;
}

static binade_status scan(struct checkpoint_dir *d, const char *path, bool is_pack,
                          binade_error *err) {
    *d = (struct checkpoint_dir){0};
    struct scan s = {.d = d, .is_pack = is_pack, .err = err};
    d->path = realpath(path, NULL);
    if (!d->path) return fail_errno(err, errno, "%s: cannot list", quote_path(path).text);
    binade_status status = walk(&s, NULL, 0);
    if (!status) status = path_list_sort(&s.files, err);
    if (!status) status = path_list_sort(&d->left_out, err);
    if (!status) d->has_index = path_list_has(&s.files, INDEX_NAME);
    if (!status && d->has_index) status = list_by_index(&s);
    if (!status) status = sort_out(&s);
    path_list_free(&s.files);
    if (status) checkpoint_dir_free(d);
    return status;
}

binade_status checkpoint_dir_scan(struct checkpoint_dir *d, const char *path, binade_error *err) {
    return scan(d, path, false, err);
}

binade_status checkpoint_dir_scan_pack(struct checkpoint_dir *d, const char *path,
                                       binade_error *err) {
    return scan(d, path, true, err);
}

binade_status checkpoint_dir_add_shard(struct checkpoint_dir *d, size_t i, binade_error *err) {
    char *path = d->others.paths[i];
    d->others.count--;
    memmove(d->others.paths + i, d->others.paths + i + 1,
            (d->others.count - i) * sizeof *d->others.paths);
    binade_status status = path_list_add(&d->shards, path, err);
    return status ? status : path_list_sort(&d->shards, err);
}

void checkpoint_dir_free(struct checkpoint_dir *d) {
    free(d->path);
    path_list_free(&d->shards);
    path_list_free(&d->others);
    path_list_free(&d->left_out);
    *d = (struct checkpoint_dir){0};
}
