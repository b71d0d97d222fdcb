/* fuzz_header.c - any bytes as a safetensors header. What is accepted must keep every promise of
 * safetensors.h; what is refused must leave one sentence.
 *
 * Input: the size of the data section (2 bytes, little-endian), then the header's text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void check_tensor(const struct st_header *h, size_t i) {
    const struct st_tensor *t = &h->tensors[i];
    unsigned nbits = st_dtype_nbits(t->dtype);
    uint64_t numel = 1;
    bool overflows = false;
    REQUIRE(t->name[t->name_nbytes] == '\0' && utf8_valid(t->name, t->name_nbytes));
    REQUIRE(utf8_valid(t->dtype, strlen(t->dtype)));
    REQUIRE(t->begin <= t->end && t->end <= h->data_nbytes);
    for (uint32_t k = 0; k < t->ndim; k++)
        overflows |= __builtin_mul_overflow(numel, t->shape[k], &numel);
    REQUIRE(!overflows);
    if (nbits) REQUIRE(numel * nbits % 8 == 0 && numel * nbits / 8 == t->end - t->begin);
    /* Found by name at its own place: no name occurs twice. */
    REQUIRE(st_find(h, t->name, t->name_nbytes) == i);
    if (i > 0) REQUIRE(h->tensors[i - 1].begin <= t->begin);
}

static void check_header(struct st_header *h) {
    uint64_t end = 0;
    REQUIRE(st_build_lookup(h, NULL) == BINADE_OK);
    for (size_t i = 0; i < h->count; i++) {
        const struct st_tensor *t = &h->tensors[i];
        check_tensor(h, i);
        if (t->begin == t->end) continue;
        REQUIRE(t->begin >= end);
        end = t->end;
    }
    for (size_t i = 0; i < h->nmetadata; i++) {
        const struct st_metadata *m = &h->metadata[i];
        REQUIRE(m->key[m->key_nbytes] == '\0' && utf8_valid(m->key, m->key_nbytes));
        REQUIRE(m->value[m->value_nbytes] == '\0' && utf8_valid(m->value, m->value_nbytes));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes) {
    if (nbytes < 2) return 0;
    size_t header_nbytes = nbytes - 2;
    uint64_t data_nbytes = input[0] | (uint64_t)input[1] << 8;
    /* No byte to spare behind the text. */
    char *text = malloc(header_nbytes ? header_nbytes : 1);
    if (!text) return 0;
    memcpy(text, input + 2, header_nbytes);
    struct st_header h;
    binade_error err = {""};
    binade_status status = st_parse_header(text, header_nbytes, 8 + header_nbytes + data_nbytes,
                                           "a.safetensors", &h, &err);
    free(text);
    if (status == BINADE_OK) {
        check_header(&h);
    } else {
        REQUIRE(status == BINADE_E_DATA && !h.tensors && !h.metadata && !h.arena);
        REQUIRE(strncmp(err.message, "a.safetensors: ", 15) == 0 && !strchr(err.message, '\n'));
        REQUIRE(utf8_valid(err.message, strlen(err.message)));
    }
    st_free_header(&h);
    return 0;
}
