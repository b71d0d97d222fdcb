#include "options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NTHREADS_MAX 1024

static const struct option_name {
    const char *name;
    const char *value; /* what the help calls its value; NULL: a switch */
    enum option_id id;
} option_names[] = {
    {"--out", "DIR", OPTION_OUT},          {"--format", "2|1", OPTION_FORMAT},
    {"--classes", "LIST", OPTION_CLASSES}, {"--revision", "REV", OPTION_REVISION},
    {"--exclude", "GLOB", OPTION_EXCLUDE}, {"--no-hash", NULL, OPTION_NO_HASH},
    {"--force", NULL, OPTION_FORCE},       {"--against", "MODEL", OPTION_AGAINST},
    {"--threads", "N", OPTION_THREADS},    {"--json", NULL, OPTION_JSON},
    {"--quiet", NULL, OPTION_QUIET},       {"-q", NULL, OPTION_QUIET},
    {"--verbose", NULL, OPTION_VERBOSE},   {"-v", NULL, OPTION_VERBOSE},
    {"--help", NULL, OPTION_HELP},         {"-h", NULL, OPTION_HELP},
    {"--version", NULL, OPTION_VERSION},
};
enum { NOPTION_NAMES = sizeof(option_names) / sizeof(*option_names) };

static const unsigned common_options = 1u << OPTION_THREADS | 1u << OPTION_JSON |
                                       1u << OPTION_QUIET | 1u << OPTION_VERBOSE |
                                       1u << OPTION_HELP | 1u << OPTION_VERSION;

static binade_status usage(binade_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static binade_status usage(binade_error *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    return BINADE_E_USAGE;
}

/* The option whose name is arg[0..nbytes), or NULL. */
static const struct option_name *find_option(const char *arg, size_t nbytes) {
    for (size_t i = 0; i < NOPTION_NAMES; i++) {
        const char *name = option_names[i].name;
        if (strlen(name) == nbytes && memcmp(name, arg, nbytes) == 0) return &option_names[i];
    }
    return NULL;
}

static binade_status parse_nthreads(struct options *o, const char *value, binade_error *err) {
    char *end;
    unsigned long n = 0;
    /* strtoul takes signs and spaces, which are no part of a number here. */
    bool digits = value[0] >= '0' && value[0] <= '9';
    if (digits) n = strtoul(value, &end, 10);
    if (!digits || *end || n < 1 || n > NTHREADS_MAX)
        return usage(err, "--threads takes a number from 1 to %d, not '%s'", NTHREADS_MAX, value);
    o->nthreads = (unsigned)n;
    return BINADE_OK;
}

static binade_status set_value(struct options *o, const struct option_name *option,
                               const char *value, binade_error *err) {
    if (!*value) return usage(err, "%s needs a value, but it is empty", option->name);
    if (option->id != OPTION_EXCLUDE && o->seen & 1u << option->id)
        return usage(err, "%s is given twice", option->name);
    switch (option->id) {
    case OPTION_OUT:
        o->out = value;
        break;
    case OPTION_CLASSES:
        o->classes = value;
        break;
    case OPTION_REVISION:
        o->revision = value;
        break;
    case OPTION_AGAINST:
        o->against = value;
        break;
    case OPTION_EXCLUDE:
        o->exclude[o->nexclude++] = value;
        break;
    case OPTION_FORMAT:
        if (strcmp(value, "1") != 0 && strcmp(value, "2") != 0)
            return usage(err, "--format takes 2 or 1, not '%s'", value);
        o->format = value[0] - '0';
        break;
    default: /* OPTION_THREADS: switches have no value */
        return parse_nthreads(o, value, err);
    }
    return BINADE_OK;
}

static void set_switch(struct options *o, enum option_id id) {
    switch (id) {
    case OPTION_NO_HASH:
        o->no_hash = true;
        break;
    case OPTION_FORCE:
        o->force = true;
        break;
    case OPTION_JSON:
        o->json = true;
        break;
    case OPTION_QUIET:
        o->quiet = true;
        break;
    case OPTION_VERBOSE:
        o->verbose = true;
        break;
    case OPTION_HELP:
        o->help = true;
        break;
    default:
        o->version = true;
        break;
    }
}

/* Parses the option args[0] with the value that may follow it; *nused is how many it took. */
static binade_status parse_option(struct options *o, char *const *args, int nargs, int *nused,
                                  binade_error *err) {
    const char *arg = args[0], *equals = strchr(arg, '=');
    size_t nbytes = equals ? (size_t)(equals - arg) : strlen(arg);
    const struct option_name *option = find_option(arg, nbytes);
    binade_status status = BINADE_OK;

    *nused = 1;
    if (!option) return usage(err, "unknown option '%.*s' (see binade --help)", (int)nbytes, arg);
    if (!option->value) {
        if (equals) return usage(err, "%s takes no value", option->name);
        set_switch(o, option->id);
    } else if (equals) {
        status = set_value(o, option, equals + 1, err);
    } else if (nargs < 2 || (args[1][0] == '-' && args[1][1])) {
        status = usage(err, "%s needs a value: %s %s", option->name, option->name, option->value);
    } else {
        *nused = 2;
        status = set_value(o, option, args[1], err);
    }
    o->seen |= 1u << option->id;
    return status;
}

static binade_status take_argument(struct options *o, const char *arg,
                                   const struct command *commands, size_t ncommands,
                                   binade_error *err) {
    if (o->path) return usage(err, "unexpected argument '%s' after '%s'", arg, o->path);
    if (o->command) {
        if (!o->command->path_name)
            return usage(err, "%s takes no argument, not '%s'", o->command->name, arg);
        if (!*arg) return usage(err, "%s is empty", o->command->path_name);
        o->path = arg;
        return BINADE_OK;
    }
    for (size_t i = 0; i < ncommands; i++)
        if (strcmp(arg, commands[i].name) == 0) o->command = &commands[i];
    if (o->command) return BINADE_OK;
    if (strcmp(arg, "help") == 0) {
        o->help = true;
        return BINADE_OK;
    }
    return usage(err, "unknown command '%s' (see binade --help)", arg);
}

/* What the options must satisfy together. */
static binade_status check_line(const struct options *o, binade_error *err) {
    if (!o->command)
        return usage(err, "a command is missing: pack, unpack, verify, info or doctor "
                          "(see binade --help)");
    const char *name = o->command->name;
    for (size_t i = 0; i < NOPTION_NAMES; i++) {
        const struct option_name *option = &option_names[i];
        unsigned bit = 1u << option->id;
        if (o->seen & bit & ~(o->command->takes | common_options))
            return usage(err, "%s does not take %s (see binade %s --help)", name, option->name,
                         name);
    }
    if (!o->path && o->command->path_name)
        return usage(err, "%s needs an argument: binade %s %s", name, name, o->command->path_name);
    for (size_t i = 0; i < NOPTION_NAMES; i++) {
        const struct option_name *option = &option_names[i];
        if (o->command->needs & ~o->seen & 1u << option->id)
            return usage(err, "%s needs %s %s (see binade %s --help)", name, option->name,
                         option->value, name);
    }
    if (o->quiet && o->verbose) return usage(err, "-q and -v exclude each other");
    return BINADE_OK;
}

binade_status options_parse(struct options *o, int argc, char **argv,
                            const struct command *commands, size_t ncommands, binade_error *err) {
    bool ended = false;
    binade_status status = BINADE_OK;

    memset(o, 0, sizeof(*o));
    /* Looked for ahead, because an error in front of it is to be reported as JSON too. */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        o->json |= strcmp(argv[i], "--json") == 0 || strncmp(argv[i], "--json=", 7) == 0;

    o->exclude = calloc((size_t)argc + 1, sizeof(*o->exclude));
    if (!o->exclude) {
        snprintf(err->message, sizeof(err->message), "out of memory");
        return BINADE_E_MEMORY;
    }
    for (int i = 1, nused; i < argc && !status; i += nused) {
        nused = 1;
        if (!ended && strcmp(argv[i], "--") == 0)
            ended = true;
        else if (!ended && argv[i][0] == '-' && argv[i][1])
            status = parse_option(o, argv + i, argc - i, &nused, err);
        else
            status = take_argument(o, argv[i], commands, ncommands, err);
    }
    if (status || o->help || o->version) return status;
    return check_line(o, err);
}

void options_free(struct options *o) {
    free(o->exclude);
    o->exclude = NULL;
}
