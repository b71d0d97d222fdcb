/* fake.h - what the fake libraries of NVIDIA's have in common, each with one copy of it: a log, a
 * count of calls of which the test lets one fail, and the objects that exist.
 *
 * FAKE_FAIL    the ordinal of the call that fails, from 1
 */
#ifndef BINADE_TESTS_FAKE_H
#define BINADE_TESTS_FAKE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

enum { NLIVE_MOST = 64, LOG_NBYTES = 1 << 20 };

/* Everything that is created: a kind and what it was told, in words. */
struct object {
    char kind;
    char text[200];
};

static struct object *live[NLIVE_MOST];
static char log_text[LOG_NBYTES];
static size_t log_nbytes;
static int ncalls;

__attribute__((format(printf, 1, 2))) static void write_log(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(log_text + log_nbytes, LOG_NBYTES - log_nbytes, format, arguments);
    va_end(arguments);
    log_nbytes += n < (int)(LOG_NBYTES - log_nbytes) ? (size_t)n : LOG_NBYTES - log_nbytes - 1;
}

/* What happened so far, a line for each question, failure and mistake. */
EXPORT const char *fake_log(void);
EXPORT const char *fake_log(void) {
    return log_text;
}

EXPORT void fake_reset(void);
EXPORT void fake_reset(void) {
    log_text[log_nbytes = 0] = 0;
    ncalls = 0;
}

EXPORT int fake_ncalls(void);
EXPORT int fake_ncalls(void) {
    return ncalls;
}

EXPORT int fake_nlive(void);
EXPORT int fake_nlive(void) {
    int n = 0;
    for (int i = 0; i < NLIVE_MOST; i++)
        n += live[i] != NULL;
    return n;
}

/* Every function of the library asks once. */
static int fails(const char *function) {
    const char *wanted = getenv("FAKE_FAIL");
    if (++ncalls != (wanted ? atoi(wanted) : 0)) return 0;
    write_log("%s fails\n", function);
    return 1;
}

/* Returns 0, or -1 if that was to fail. */
static int create(const char *function, void **out, char kind, const char *text) {
    static char rubbish;

    if (fails(function)) {
        *out = &rubbish; /* which nobody may use */
        return -1;
    }
    for (int i = 0; i < NLIVE_MOST; i++) {
        if (live[i]) continue;
        live[i] = calloc(1, sizeof **live);
        if (!live[i]) abort();
        live[i]->kind = kind;
        snprintf(live[i]->text, sizeof live[i]->text, "%s", text);
        *out = live[i];
        return 0;
    }
    abort();
}

/* NULL, and a line in the log, for what is not there. */
static struct object *check(void *object, char kind) {
    for (int i = 0; i < NLIVE_MOST; i++)
        if (live[i] && live[i] == object && live[i]->kind == kind) return live[i];
    write_log("not a live %c\n", kind);
    return NULL;
}

/* Freed even if it fails: nothing more can be done about it. Returns 0, or -1. */
static int destroy(const char *function, void *object, char kind) {
    struct object *found = check(object, kind);
    for (int i = 0; found && i < NLIVE_MOST; i++)
        if (live[i] == found) live[i] = NULL;
    free(found);
    return fails(function) || !found ? -1 : 0;
}

#endif
