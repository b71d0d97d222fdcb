/* json_skip.c - steps over values whose contents do not matter, which must be strict JSON
 * nevertheless: a key that occurs twice means two readers may disagree on what the file says. */
#include <stdlib.h>

#include "base/buffer.h"
#include "io/json_reader.h"
#include "io/name_index.h"

/* The keys of all open objects, outermost first; those of one object follow one another. */
struct open_keys {
    struct buffer text; /* unescaped, end to end */
    struct open_key {
        size_t end; /* in text */
        size_t pos; /* in the JSON text, for messages */
    } * keys;
    size_t count, capacity;
};

struct object_keys {
    const struct open_keys *all;
    size_t first; /* the object's first key */
};

static struct name name_of_key(const void *owner, size_t item) {
    const struct object_keys *o = owner;
    const struct open_key *keys = o->all->keys;
    size_t at = o->first + item;
    size_t begin = at > 0 ? keys[at - 1].end : 0;
    /* No buffer yet if every key so far is empty. */
    const char *text = o->all->text.data ? o->all->text.data + begin : "";
    return (struct name){text, keys[at].end - begin};
}

static bool push_key(struct json_reader *r, struct open_keys *k, struct json_string key,
                     size_t pos) {
    struct open_key *keys = grow_array(k->keys, &k->capacity, k->count, sizeof *keys);
    if (!keys) {
        json_stop(r, fail_memory(r->err));
        return false;
    }
    k->keys = keys;
    binade_status status = buffer_put(&k->text, key.text, key.nbytes, r->err);
    if (status) {
        json_stop(r, status);
        return false;
    }
    keys[k->count++] = (struct open_key){k->text.nbytes, pos};
    return true;
}

/* Checks the keys from `first` on, then forgets them. */
static bool close_keys(struct json_reader *r, struct open_keys *k, size_t first) {
    const struct object_keys object = {k, first};
    size_t twice;
    binade_status status = find_name_twice(k->count - first, name_of_key, &object, &twice, r->err);
    if (status) {
        json_stop(r, status);
        return false;
    }
    if (twice != SIZE_MAX) {
        struct name name = name_of_key(&object, twice);
        r->pos = k->keys[first + twice].pos;
        json_fail(r, "key %s occurs twice in one object", quote(name.text, name.nbytes).text);
        return false;
    }
    k->count = first;
    k->text.nbytes = first > 0 ? k->keys[first - 1].end : 0;
    return true;
}

/* Recursion ends at JSON_DEPTH_MAX, which entering checks. */
static bool skip_value(struct json_reader *r, struct open_keys *k) {
    size_t begin, end, first = k->count;
    struct json_string key;
    bool value;
    switch (json_peek(r)) {
    case JSON_OBJECT:
        if (!json_enter_object(r)) return false;
        for (size_t pos = r->pos; json_next_key(r, &key); pos = r->pos)
            if (!push_key(r, k, key, pos) || !skip_value(r, k)) return false;
        return !r->status && close_keys(r, k, first);
    case JSON_ARRAY:
        if (!json_enter_array(r)) return false;
        while (json_next_element(r))
            if (!skip_value(r, k)) return false;
        return !r->status;
    case JSON_STRING:
        return json_skip_string(r, &begin, &end);
    case JSON_NUMBER:
        return json_skip_number(r, &begin, &end);
    case JSON_TRUE:
    case JSON_FALSE:
        return json_read_bool(r, &value);
    case JSON_NULL:
        return json_read_null(r);
    default:
        return json_fail_expected(r, "a value");
    }
}

bool json_skip(struct json_reader *r, size_t *begin, size_t *end) {
    struct open_keys k = {0};
    json_peek(r);
    if (begin) *begin = r->pos;
    bool good = skip_value(r, &k);
    if (end) *end = r->pos;
    buffer_free(&k.text);
    free(k.keys);
    return good;
}
