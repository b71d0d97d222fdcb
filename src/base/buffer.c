/* buffer.c - growing memory, and UTF-8 checks. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `more` bytes behind the present ones. */
static binade_status reserve(struct buffer *b, size_t more, binade_error *err) {
    if (more <= b->capacity - b->nbytes) return BINADE_OK;
    if (more > SIZE_MAX / 2 - b->nbytes) return fail_memory(err);
    size_t wanted = b->nbytes + more;
    size_t capacity = b->capacity + b->capacity / 2;
    if (capacity < 64) capacity = 64;
    if (capacity < wanted) capacity = wanted;
    char *data = realloc(b->data, capacity);
    if (!data) return fail_memory(err);
    b->data = data;
    b->capacity = capacity;
    return BINADE_OK;
}

binade_status buffer_put(struct buffer *b, const void *data, size_t nbytes, binade_error *err) {
    if (nbytes == 0) return BINADE_OK;
    binade_status status = reserve(b, nbytes, err);
    if (status) return status;
    memcpy(b->data + b->nbytes, data, nbytes);
    b->nbytes += nbytes;
    return BINADE_OK;
}

binade_status buffer_put_text(struct buffer *b, binade_error *err, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    binade_status status;
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0) {
        status = fail(err, BINADE_E_USAGE, "text cannot be formatted");
        goto done;
    }
    status = reserve(b, (size_t)length + 1, err);
    if (status) goto done;
    vsnprintf(b->data + b->nbytes, (size_t)length + 1, format, again);
    b->nbytes += (size_t)length;
done:
    va_end(again);
    va_end(args);
    return status;
}

void buffer_free(struct buffer *b) {
    free(b->data);
    *b = (struct buffer){0};
}

void *grow_array(void *items, size_t *capacity, size_t count, size_t item_nbytes) {
    if (count < *capacity) return items;
    /* Half as much again: what is never touched costs no memory, but copies do. */
    size_t wanted = *capacity + *capacity / 2 + 8;
    if (wanted > SIZE_MAX / 2 / item_nbytes) return NULL;
    void *moved = realloc(items, wanted * item_nbytes);
    if (moved) *capacity = wanted;
    return moved;
}

unsigned utf8_decode(const char *text, size_t nbytes, uint32_t *code) {
    if (nbytes == 0) return 0;
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *code = s[0];
        return 1;
    }
    unsigned length = s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (length == 0 || length > nbytes) return 0;
    uint32_t value = s[0] & (0x7Fu >> length);
    for (unsigned i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        value = value << 6 | (s[i] & 0x3Fu);
    }
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < smallest[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return 0;
    *code = value;
    return length;
}

bool utf8_valid(const char *text, size_t nbytes) {
    for (size_t at = 0; at < nbytes;) {
        uint32_t code;
        unsigned length = utf8_decode(text + at, nbytes - at, &code);
        if (length == 0) return false;
        at += length;
    }
    return true;
}

size_t utf8_length(const char *text, size_t nbytes) {
    size_t count = 0;
    for (size_t at = 0; at < nbytes; at++)
        count += ((unsigned char)text[at] & 0xC0) != 0x80;
    return count;
}
