/* shard_index.c - the shards that model.safetensors.index.json names. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "io/arena.h"
#include "io/checkpoint_dir.h"
#include "io/json_reader.h"
#include "io/name_index.h"
#include "io/safetensors.h"

/* The keys of one object. */
struct key_list {
    struct name *names;
    size_t count, capacity;
};

struct index_parse {
    struct json_reader json;
    binade_error *err;
    struct arena *arena; /* owns the keys */
    struct path_list *shards;
    size_t sort_at; /* the count at which equal shards are next removed */
};

static bool stop(struct index_parse *p, binade_status status) {
    json_stop(&p->json, status);
    return false;
}

static bool add_key(struct index_parse *p, struct key_list *keys, struct json_string key) {
    struct name *names = grow_array(keys->names, &keys->capacity, keys->count, sizeof *names);
    if (!names) return stop(p, fail_memory(p->err));
    keys->names = names;
    const char *text = arena_copy_text(p->arena, key.text, key.nbytes);
    if (!text) return stop(p, fail_memory(p->err));
    names[keys->count++] = (struct name){text, key.nbytes};
    return true;
}

static struct name name_of_key(const void *owner, size_t item) {
    return ((const struct key_list *)owner)->names[item];
}

static bool check_keys(struct index_parse *p, const struct key_list *keys) {
    size_t twice;
    binade_status status = find_name_twice(keys->count, name_of_key, keys, &twice, p->err);
    if (status) return stop(p, status);
    if (twice == SIZE_MAX) return true;
    struct name name = keys->names[twice];
    json_fail(&p->json, "key %s occurs twice in the object that ends here",
              quote(name.text, name.nbytes).text);
    return false;
}

static bool add_shard(struct index_parse *p, struct json_string shard) {
    struct path_list *l = p->shards;
    if (!path_is_inside(shard.text, shard.nbytes)) {
        json_fail(&p->json, "found shard %s, expected a path that stays inside the directory",
                  quote(shard.text, shard.nbytes).text);
        return false;
    }
    if (!st_is_file_name(shard.text, shard.nbytes)) {
        json_fail(&p->json, "found shard %s, expected a name that ends in .safetensors",
                  quote(shard.text, shard.nbytes).text);
        return false;
    }
    if (l->count > 0 && strcmp(l->paths[l->count - 1], shard.text) == 0) return true;
    binade_status status = path_list_add(l, strdup(shard.text), p->err);
    /* A million tensors in a few shards should not take a million strings. */
    if (!status && l->count >= p->sort_at) {
        status = path_list_sort(l, p->err);
        p->sort_at = 2 * l->count + 64;
    }
    return !status || stop(p, status);
}

static bool read_map(struct index_parse *p) {
    struct json_reader *r = &p->json;
    struct key_list keys = {0};
    struct json_string s;
    if (!json_enter_object(r)) return false;
    while (json_next_key(r, &s)) {
        if (!add_key(p, &keys, s)) break;
        struct name tensor = keys.names[keys.count - 1];
        r->noun = "tensor";
        r->subject = tensor.text;
        r->subject_nbytes = tensor.nbytes;
        if (!json_read_string(r, &s) || !add_shard(p, s)) break;
        r->noun = NULL;
    }
    bool good = !r->status && check_keys(p, &keys);
    free(keys.names);
    return good;
}

static bool read_index(struct index_parse *p) {
    struct json_reader *r = &p->json;
    struct key_list keys = {0};
    struct json_string s;
    bool has_map = false;
    if (!json_enter_object(r)) return false;
    while (json_next_key(r, &s)) {
        if (!add_key(p, &keys, s)) break;
        bool is_map = json_is(s, "weight_map");
        /* The second weight_map is only checked for form: the key's repetition is the error. */
        if (!(is_map && !has_map ? read_map(p) : json_skip(r, NULL, NULL))) break;
        has_map |= is_map;
    }
    bool good = !r->status && check_keys(p, &keys) && json_end(r);
    free(keys.names);
    if (good && !has_map) json_fail(r, "there is no weight_map, expected one");
    return !r->status;
}

binade_status index_list_shards(const char *text, size_t nbytes, const char *file,
                                struct path_list *shards, binade_error *err) {
    *shards = (struct path_list){0};
    struct index_parse p = {.err = err, .shards = shards, .sort_at = 64};
    p.arena = arena_new();
    if (!p.arena) return fail_memory(err);
    json_open(&p.json, text, nbytes, file, err);
    read_index(&p);
    binade_status status = json_close(&p.json);
    arena_free(p.arena);
    if (!status) status = path_list_sort(shards, err);
    if (status) path_list_free(shards);
    return status;
}
