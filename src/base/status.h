/* status.h - how internal functions fail: a status and one sentence. */
#ifndef BINADE_BASE_STATUS_H
#define BINADE_BASE_STATUS_H

#include "binade.h"

/* Writes the sentence to *err (may be NULL) and returns `status`, so that a failing function
 * reads `return fail(err, BINADE_E_DATA, "%s: ...", file)`. */
binade_status fail(binade_error *err, binade_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, with ": " and the text of errno `code` added; ENOMEM gives BINADE_E_MEMORY. */
binade_status fail_errno(binade_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

binade_status fail_memory(binade_error *err);

/* A name made safe for a one-line message: control characters, line separators and invalid UTF-8
 * become \xNN, and what passes QUOTED_MAX bytes is replaced by "...". Use as
 * quote(name, nbytes).text. */
enum { QUOTED_MAX = 240 };
struct quoted {
    char text[QUOTED_MAX + 4];
};
struct quoted quote(const char *text, size_t nbytes);
/* The same for a path, which keeps its end rather than its beginning. */
struct quoted quote_path(const char *path);

#endif
