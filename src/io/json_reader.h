/* json_reader.h - a strict pull parser for JSON text in memory (RFC 8259, UTF-8).
 *
 * Made for files that may be hostile and may hold millions of keys: it allocates nothing but the
 * string last read, nesting is capped, and a key that occurs twice in one object is reported where
 * the caller asks for it (json_next_key leaves that to the caller, who has the keys; json_skip
 * checks the objects that it skips). Errors stick: after one, every function fails, so callers
 * check once at convenient places; the sentence names the file and the byte.
 */
#ifndef BINADE_IO_JSON_READER_H
#define BINADE_IO_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

enum { JSON_DEPTH_MAX = 64 };

enum json_kind {
    JSON_ERROR, /* malformed text or the end */
    JSON_OBJECT,
    JSON_ARRAY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL,
};

/* A string as read: unescaped, NUL-terminated, possibly with NULs inside; valid until the next
 * read. */
struct json_string {
    const char *text;
    size_t nbytes;
};

static inline bool json_is(struct json_string s, const char *text) {
    return s.nbytes == strlen(text) && !memcmp(s.text, text, s.nbytes);
}

struct json_reader {
    const char *text;
    size_t nbytes, pos;
    unsigned depth;
    bool first;       /* no member of the current container has been read */
    const char *file; /* for messages */
    uint64_t base;    /* where the text begins in the file, for messages */
    /* What is being read, for messages: "tensor" and its name. A caller may set and clear it. */
    const char *noun, *subject;
    size_t subject_nbytes;
    binade_error *err;
    binade_status status;
    char *scratch; /* unescaped string */
    size_t scratch_nbytes;
};

/* `text`, `file` and `err` (may be NULL) must outlive the reader. A byte order mark is an error. */
void json_open(struct json_reader *r, const char *text, size_t nbytes, const char *file,
               binade_error *err);
/* Frees the scratch; accepts a zeroed reader. Returns the sticky status. */
binade_status json_close(struct json_reader *r);

/* The kind of the value that comes next; skips white space only. */
enum json_kind json_peek(struct json_reader *r);

/* Enters an object or array, which must come next. */
bool json_enter_object(struct json_reader *r);
bool json_enter_array(struct json_reader *r);
/* Steps to the next member and reads its key (object) or positions at its value (array). False at
 * the closing bracket, which is consumed, and on error: tell apart by r->status. */
bool json_next_key(struct json_reader *r, struct json_string *key);
bool json_next_element(struct json_reader *r);

bool json_read_string(struct json_reader *r, struct json_string *s);
/* A JSON number that is an integer in 0 .. 2^64-1, written without fraction and exponent. */
bool json_read_u64(struct json_reader *r, uint64_t *value);
bool json_read_double(struct json_reader *r, double *value);
bool json_read_bool(struct json_reader *r, bool *value);
bool json_read_null(struct json_reader *r);
/* Steps over any value, checking it fully; *begin and *end (may be NULL) get its byte range. */
bool json_skip(struct json_reader *r, size_t *begin, size_t *end);
/* Steps over a number or a string, checking it; *begin and *end get its byte range, of a string the
 * one between its quotes, for json_unescape. */
bool json_skip_number(struct json_reader *r, size_t *begin, size_t *end);
bool json_skip_string(struct json_reader *r, size_t *begin, size_t *end);
/* Only white space may be left. */
bool json_end(struct json_reader *r);

/* Records an error of the caller's, with subject and position in front: "FILE: tensor NAME: byte N:
 * ...". Does nothing after an earlier error. */
void json_fail(struct json_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with "expected WHAT, found ..." and what comes next; returns false. */
bool json_fail_expected(struct json_reader *r, const char *what);
/* Records a failure whose sentence is already in r->err. */
void json_stop(struct json_reader *r, binade_status status);

/* Unescapes what json_skip_string gave the range of, in pieces: calls `write` for each. For strings
 * too large to copy. */
typedef binade_status (*json_sink)(void *user, const char *text, size_t nbytes, binade_error *err);
binade_status json_unescape(const char *text, size_t nbytes, json_sink write, void *user,
                            binade_error *err);

#endif
