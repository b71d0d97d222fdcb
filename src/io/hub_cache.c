/* hub_cache.c - finds a model in the local Hugging Face cache, without the network:
 * CACHE/models--ORG--NAME/refs/REVISION holds a commit, snapshots/COMMIT is the directory. */
#include <dirent.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "io/checkpoint_dir.h"

enum { COMMIT_PREFIX_MIN = 4, REF_MAX_NBYTES = 4096, HUB_ID_MAX = 256 };

struct request {
    const char *model, *revision; /* revision NULL: main */
    char *cache;                  /* the cache's directory */
    char *repo;                   /* the model's within it */
    binade_error *err;
};

/* dir/a/b; frees `dir`. NULL when out of memory, also when `dir` is NULL. */
static char *descend(char *dir, const char *a, const char *b) {
    char *next = dir ? path_join(dir, a) : NULL;
    free(dir);
    if (!b || !next) return next;
    return descend(next, b, NULL);
}

static char *find_home(void) {
    const char *home = getenv("HOME");
    if (home && *home) return strdup(home);
    char room[4096];
    struct passwd entry, *user = NULL;
    if (getpwuid_r(getuid(), &entry, room, sizeof room, &user) != 0 || !user) return strdup("/");
    return strdup(user->pw_dir);
}

/* A copy with a leading ~ replaced, as the hub's own library does with these variables. */
static char *expand_home(const char *path) {
    if (path[0] != '~' || (path[1] != '/' && path[1] != '\0')) return strdup(path);
    return path[1] ? descend(find_home(), path + 2, NULL) : find_home();
}

static const char *get_setting(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static char *find_cache(void) {
    const char *path = get_setting("HF_HUB_CACHE");
    if (!path) path = get_setting("HUGGINGFACE_HUB_CACHE");
    if (path) return expand_home(path);
    path = get_setting("HF_HOME");
    if (path) return descend(expand_home(path), "hub", NULL);
    path = get_setting("XDG_CACHE_HOME");
    if (path) return descend(expand_home(path), "huggingface/hub", NULL);
    return descend(find_home(), ".cache", "huggingface/hub");
}

static bool is_path(const char *model) {
    const char *slash = strchr(model, '/');
    return model[0] == '/' || model[0] == '~' || strcmp(model, ".") == 0 ||
           strcmp(model, "..") == 0 || strncmp(model, "./", 2) == 0 ||
           strncmp(model, "../", 3) == 0 || (slash && (slash[1] == '\0' || strchr(slash + 1, '/')));
}

/* One or two words of letters, digits, '-', '_' and '.', as the hub allows them. "--" stands for
 * the slash in the cache, and ".." would leave it. */
static bool is_hub_id(const char *model) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./";
    return strlen(model) < HUB_ID_MAX && path_is_inside(model, strlen(model)) &&
           model[strspn(model, letters)] == '\0' && !strstr(model, "--") && !strstr(model, "..");
}

/* "models--org--name" in the cache. */
static char *find_repo(const char *cache, const char *model) {
    char name[HUB_ID_MAX + 16];
    const char *slash = strchr(model, '/');
    int length = slash ? snprintf(name, sizeof name, "models--%.*s--%s", (int)(slash - model),
                                  model, slash + 1)
                       : snprintf(name, sizeof name, "models--%s", model);
    return length > 0 && (size_t)length < sizeof name ? path_join(cache, name) : NULL;
}

static binade_status fail_not_cached(const struct request *q) {
    if (!q->revision)
        return fail(
            q->err, BINADE_E_USAGE,
            "%s is not in the local Hugging Face cache %s; download it first: hf download %s",
            q->model, quote_path(q->cache).text, q->model);
    const struct quoted revision = quote(q->revision, strlen(q->revision));
    return fail(q->err, BINADE_E_USAGE,
                "%s at revision %s is not in the local Hugging Face cache %s; download it first: "
                "hf download %s --revision %s",
                q->model, revision.text, quote_path(q->cache).text, q->model, revision.text);
}

/* *path gets the snapshot's directory if it is there. */
static binade_status take_snapshot(const struct request *q, const char *commit, char **path) {
    char *snapshot = descend(path_join(q->repo, "snapshots"), commit, NULL);
    if (!snapshot) return fail_memory(q->err);
    if (!path_is_dir(snapshot)) {
        free(snapshot);
        return fail_not_cached(q);
    }
    *path = snapshot;
    return BINADE_OK;
}

/* Follows refs/REVISION. *path stays NULL if there is no such file. */
static binade_status follow_ref(const struct request *q, const char *revision, char **path) {
    char *text = NULL, *ref = descend(path_join(q->repo, "refs"), revision, NULL);
    size_t nbytes;
    struct stat info;
    binade_status status = BINADE_OK;
    if (!ref) return fail_memory(q->err);
    if (stat(ref, &info) != 0 || S_ISDIR(info.st_mode)) goto done;
    status = file_slurp(ref, REF_MAX_NBYTES, &text, &nbytes, q->err);
    if (status) goto done;
    while (nbytes > 0 && strchr(" \t\r\n", text[nbytes - 1]))
        nbytes--;
    text[nbytes] = '\0';
    if (!path_is_inside(text, nbytes) || strchr(text, '/'))
        status = fail(q->err, BINADE_E_DATA, "%s: found \"%s\", expected a commit",
                      quote_path(ref).text, quote(text, nbytes).text);
    else
        status = take_snapshot(q, text, path);
done:
    free(text);
    free(ref);
    return status;
}

/* The snapshots whose names begin with `prefix`, sorted. No directory of snapshots: none. */
static binade_status list_snapshots(const struct request *q, const char *prefix,
                                    struct path_list *found) {
    binade_status status = BINADE_OK;
    char *all = path_join(q->repo, "snapshots");
    if (!all) return fail_memory(q->err);
    DIR *dir = opendir(all);
    while (dir && !status) {
        struct dirent *entry = readdir(dir);
        if (!entry) break;
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        char *snapshot = path_join(all, entry->d_name);
        if (snapshot && !path_is_dir(snapshot))
            free(snapshot);
        else
            status = path_list_add(found, snapshot, q->err);
    }
    if (dir) closedir(dir);
    free(all);
    return status ? status : path_list_sort(found, q->err);
}

static binade_status fail_ambiguous(const struct request *q, const struct path_list *found) {
    enum { SHOWN_MAX = 8 };
    struct buffer b = {0};
    binade_status status = BINADE_OK;
    for (size_t i = 0; i < found->count && i < SHOWN_MAX && !status; i++)
        status = buffer_put_text(&b, q->err, "%s%s", i ? ", " : "",
                                 quote_path(path_base(found->paths[i])).text);
    if (!status && found->count > SHOWN_MAX) status = buffer_put_text(&b, q->err, ", ...");
    if (!status)
        status = fail(q->err, BINADE_E_USAGE, "%s: revision %s is ambiguous: %zu commits match: %s",
                      q->model, q->revision ? q->revision : "main", found->count, b.data);
    buffer_free(&b);
    return status;
}

/* Takes the only snapshot whose commit begins with `prefix`. */
static binade_status match_commit(const struct request *q, const char *prefix, char **path) {
    struct path_list found = {0};
    binade_status status = list_snapshots(q, prefix, &found);
    if (!status && found.count == 1) {
        *path = found.paths[0];
        found.count = 0;
    } else if (!status && found.count > 1) {
        status = fail_ambiguous(q, &found);
    } else if (!status) {
        status = fail_not_cached(q);
    }
    path_list_free(&found);
    return status;
}

static bool is_commit_prefix(const char *text) {
    return strlen(text) >= COMMIT_PREFIX_MIN && text[strspn(text, "0123456789abcdef")] == '\0';
}

static binade_status find_snapshot(const struct request *q, char **path) {
    const char *revision = q->revision ? q->revision : "main";
    if (!path_is_inside(revision, strlen(revision)))
        return fail(q->err, BINADE_E_USAGE, "%s: %s is not a branch, tag or commit", q->model,
                    quote(revision, strlen(revision)).text);
    if (!path_is_dir(q->repo)) return fail_not_cached(q);
    binade_status status = follow_ref(q, revision, path);
    if (status || *path) return status;
    if (is_commit_prefix(revision)) return match_commit(q, revision, path);
    if (strcmp(revision, "main") == 0) return match_commit(q, "", path);
    return fail_not_cached(q);
}

/* Everything that does not need the cache. */
static binade_status resolve_local(const char *model, const char *revision, char **path,
                                   binade_error *err) {
    const struct quoted name = quote_path(model);
    struct stat info;
    if (path_is_dir(model)) {
        if (revision)
            return fail(err, BINADE_E_USAGE, "%s: a directory has no revisions, expected a hub id",
                        name.text);
        *path = strdup(model);
        return *path ? BINADE_OK : fail_memory(err);
    }
    if (stat(model, &info) == 0) return fail(err, BINADE_E_USAGE, "%s: not a directory", name.text);
    if (is_path(model)) return fail(err, BINADE_E_USAGE, "%s: no such directory", name.text);
    if (!is_hub_id(model))
        return fail(err, BINADE_E_USAGE, "%s: no such directory, and not a hub id such as org/name",
                    *model ? name.text : "\"\"");
    return BINADE_OK;
}

binade_status hub_resolve(const char *model, const char *revision, char **path, binade_error *err) {
    *path = NULL;
    binade_status status = resolve_local(model, revision, path, err);
    if (status || *path) return status;
    struct request q = {.model = model, .revision = revision, .err = err};
    q.cache = find_cache();
    q.repo = q.cache ? find_repo(q.cache, model) : NULL;
    status = q.repo ? find_snapshot(&q, path) : fail_memory(err);
    free(q.repo);
    free(q.cache);
    return status;
}
