/* json_out.h - writes one JSON text to a stream, as one line of ASCII.
 *
 * Every function takes the member's key, or NULL in an array and for the outermost value. Write
 * errors stay in the stream: check it once at the end.
 */
#ifndef BINADE_CLI_JSON_OUT_H
#define BINADE_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Set `out`, zero the rest. */
struct json_out {
    FILE *out;
    bool comma; /* the next value follows another in its container */
};

void json_begin_object(struct json_out *j, const char *key);
void json_end_object(struct json_out *j);
void json_begin_array(struct json_out *j, const char *key);
void json_end_array(struct json_out *j);

/* Bytes that are not valid UTF-8 become U+FFFD each. */
void json_text(struct json_out *j, const char *key, const char *text, size_t nbytes);
/* The same for a NUL-terminated string. */
void json_string(struct json_out *j, const char *key, const char *text);
void json_u64(struct json_out *j, const char *key, uint64_t value);
/* Infinity and NaN, which JSON cannot hold, become null. */
void json_double(struct json_out *j, const char *key, double value);
void json_bool(struct json_out *j, const char *key, bool value);
void json_null(struct json_out *j, const char *key);

/* Ends the line behind the outermost value. */
void json_finish(struct json_out *j);

#endif
