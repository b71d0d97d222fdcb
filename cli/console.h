/* console.h - how a command talks: events while it runs, its failure, its exit status. */
#ifndef BINADE_CLI_CONSOLE_H
#define BINADE_CLI_CONSOLE_H

#include <stddef.h>

#include "json_out.h"
#include "options.h"
#include "progress_bar.h"

enum {
    EXIT_GOOD = 0,
    EXIT_DATA = 1,  /* a file is corrupt, or two things that must agree differ */
    EXIT_OTHER = 2, /* usage and environment */
};

/* What one run of a command has reported so far. */
struct console {
    const struct options *options;
    struct progress_bar bar;
    char **notes; /* [nnotes], kept for --json only */
    size_t nnotes;
};

/* `verb` is for the progress bar: "packing". */
void console_open(struct console *r, const struct options *o, const char *verb);
void console_close(struct console *r);

/* A binade_event_fn whose user is a struct console. Notes and tensor lines go to standard error.
 * Cancels when a signal has arrived. */
int console_event(void *user, const binade_event *event);

/* Begins the result on standard output: {"command": ..., "path": ... */
void console_begin_json(struct json_out *j, const struct options *o, const char *path);
/* Ends it: "notes": [...]}. */
void console_end_json(struct json_out *j, const struct console *r);

/* Prints the error as one line on standard error, with --json also as {"error": ...} on standard
 * output, and returns the exit status. */
int console_failure(const struct options *o, binade_status status, const char *message);

#endif
