/* options.h - the command line: one strict parser for all commands.
 *
 * Options are "--name value" or "--name=value", anywhere on the line; "--" ends them. A value that
 * starts with "-" must be written behind "=", so that a forgotten value is an error and not the
 * next option. Nothing is abbreviated, and only --exclude may be given twice.
 */
#ifndef BINADE_CLI_OPTIONS_H
#define BINADE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "binade.h"

enum option_id {
    OPTION_OUT,
    OPTION_FORMAT,
    OPTION_CLASSES,
    OPTION_REVISION,
    OPTION_EXCLUDE,
    OPTION_NO_HASH,
    OPTION_FORCE,
    OPTION_AGAINST,
    OPTION_THREADS,
    OPTION_JSON,
    OPTION_QUIET,
    OPTION_VERBOSE,
    OPTION_HELP,
    OPTION_VERSION,
};

struct options;

struct command {
    const char *name;
    const char *path_name;   /* what the help calls its argument: "MODEL"; NULL: it takes none */
    unsigned takes, needs;   /* bits 1 << option_id, beside those that every command takes */
    const char *const *help; /* lines, NULL behind the last */
    int (*run)(const struct options *o); /* returns the exit status */
};

/* Strings point into argv. */
struct options {
    const struct command *command; /* NULL: none was given */
    const char *path;              /* the command's argument */
    const char *out, *classes, *revision, *against;
    const char **exclude; /* [nexclude] */
    size_t nexclude;
    int format;        /* 1, 2, or 0: not given */
    unsigned nthreads; /* 0: not given */
    bool no_hash, force, json, quiet, verbose, help, version;
    unsigned seen; /* bits 1 << option_id */
};

/* Fills *o from argv; BINADE_E_USAGE with one sentence if the line is not acceptable. The line is
 * complete unless o->help or o->version is set. `json` is right even on failure: whether the user
 * asked for machine-readable output. */
binade_status options_parse(struct options *o, int argc, char **argv,
                            const struct command *commands, size_t ncommands, binade_error *err);
void options_free(struct options *o);

#endif
