/* safetensors.c - reads a header's text, and finds tensors by name. st_parse.c reads the text. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "io/arena.h"
#include "io/st_parse.h"

static const struct dtype {
    const char *name;
    unsigned nbits;
} dtypes[] = {
    {"BF16", 16},       {"F16", 16},        {"F32", 32},    {"F64", 64},    {"I64", 64},
    {"I32", 32},        {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16},        {"U8", 8},          {"BOOL", 8},    {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8},     {"F8_E8M0", 8},     {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

static const struct dtype *find_dtype(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
    return NULL;
}

unsigned st_dtype_nbits(const char *dtype) {
    const struct dtype *known = find_dtype(dtype);
    return known ? known->nbits : 0;
}

const char *st_dtype_static(const char *dtype) {
    const struct dtype *known = find_dtype(dtype);
    return known ? known->name : NULL;
}

static uint64_t load_u64(const unsigned char bytes[8]) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

binade_status st_check_length(uint64_t header_nbytes, uint64_t file_nbytes, const char *file,
                              binade_error *err) {
    unsigned long long found = (unsigned long long)header_nbytes;
    unsigned long long size = (unsigned long long)file_nbytes;
    if (file_nbytes < 8)
        return fail(err, BINADE_E_DATA,
                    "%s: has %llu bytes, expected at least the 8 of a safetensors header's length",
                    quote_path(file).text, size);
    if (header_nbytes > file_nbytes - 8)
        return fail(err, BINADE_E_DATA,
                    "%s: its header says it has %llu bytes, expected at most the %llu that follow",
                    quote_path(file).text, found, size - 8);
    if (header_nbytes > ST_HEADER_MAX_NBYTES)
        return fail(err, BINADE_E_DATA, "%s: its header has %llu bytes, expected at most %llu",
                    quote_path(file).text, found, (unsigned long long)ST_HEADER_MAX_NBYTES);
    if (header_nbytes < 2)
        return fail(err, BINADE_E_DATA, "%s: its header has %llu bytes, expected at least 2",
                    quote_path(file).text, found);
    return BINADE_OK;
}

binade_status st_read_header(const struct file *f, struct st_header *h, char **text,
                             binade_error *err) {
    *h = (struct st_header){0};
    unsigned char prefix[8];
    uint64_t header_nbytes = 0;
    char *copy = NULL;
    binade_status status;
    if (f->nbytes >= sizeof prefix) {
        status = file_read(f, 0, prefix, sizeof prefix, err);
        if (status) return status;
        header_nbytes = load_u64(prefix);
    }
    status = st_check_length(header_nbytes, f->nbytes, f->path, err);
    if (status) return status;
    copy = malloc((size_t)header_nbytes);
    if (!copy) return fail_memory(err);
    status = file_read(f, sizeof prefix, copy, (size_t)header_nbytes, err);
    if (status) goto done;
    status = st_parse_header(copy, header_nbytes, f->nbytes, f->path, h, err);
    if (status || !text) goto done;
    *text = copy;
    copy = NULL;
done:
    free(copy);
    return status;
}

void st_free_header(struct st_header *h) {
    if (h->lookup) name_index_free(h->lookup);
    free(h->lookup);
    free(h->tensors);
    free(h->metadata);
    arena_free(h->arena);
    *h = (struct st_header){0};
}

struct name st_name_of_tensor(const void *header, size_t item) {
    const struct st_tensor *t = &((const struct st_header *)header)->tensors[item];
    return (struct name){t->name, t->name_nbytes};
}

binade_status st_build_lookup(struct st_header *h, binade_error *err) {
    if (h->lookup) return BINADE_OK;
    struct name_index *lookup = malloc(sizeof *lookup);
    if (!lookup) return fail_memory(err);
    binade_status status = name_index_build(lookup, h->count, st_name_of_tensor, h, err);
    if (status) {
        free(lookup);
        return status;
    }
    h->lookup = lookup;
    return BINADE_OK;
}

size_t st_find(const struct st_header *h, const char *name, size_t name_nbytes) {
    return name_index_find(h->lookup, st_name_of_tensor, h, (struct name){name, name_nbytes});
}

bool st_is_file_name(const char *path, size_t nbytes) {
    static const char suffix[] = ".safetensors";
    size_t length = sizeof suffix - 1;
    return nbytes >= length && memcmp(path + nbytes - length, suffix, length) == 0;
}

void st_put_length(uint64_t header_nbytes, uint8_t bytes[8]) {
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(header_nbytes >> 8 * i);
}
