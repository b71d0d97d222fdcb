/* buffer.h - growing memory, and UTF-8 checks. */
#ifndef BINADE_BASE_BUFFER_H
#define BINADE_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Zeroed is empty. data is not NUL-terminated unless buffer_put_text was the last call. */
struct buffer {
    char *data;
    size_t nbytes, capacity;
};

binade_status buffer_put(struct buffer *b, const void *data, size_t nbytes, binade_error *err);
/* printf; the NUL behind the text is not counted in nbytes. */
binade_status buffer_put_text(struct buffer *b, binade_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void buffer_free(struct buffer *b);

/* Makes room for one more item behind `count` in a malloc'd array (NULL when empty) of *capacity
 * items. Returns the array, moved or not; NULL when out of memory, and then `items` is still good.
 */
void *grow_array(void *items, size_t *capacity, size_t count, size_t item_nbytes);

/* The length in bytes of the UTF-8 sequence at text[0..nbytes), 1 to 4, with its code point in
 * *code; 0 if it is not valid (overlong forms, surrogates and values past U+10FFFF are not). */
unsigned utf8_decode(const char *text, size_t nbytes, uint32_t *code);
bool utf8_valid(const char *text, size_t nbytes);
/* Code points in valid UTF-8. */
size_t utf8_length(const char *text, size_t nbytes);

#endif
