#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "format.h"
#include "text.h"

const char *const unpack_help[] = {
    "Usage: binade unpack PACKED --out DIR [options]",
    "",
    "Restores the original checkpoint from PACKED into the new directory DIR: every file",
    "byte for byte, or tensor for tensor if the pack has no records. PACKED is a",
    "directory, or a hub id (org/name) in the local Hugging Face cache. Every checksum in",
    "the pack is checked. DIR appears whole or not at all.",
    "",
    "  --out DIR        where to write, not inside PACKED; may exist only if it is empty",
    "  --revision REV   of a hub id: a branch, tag or commit prefix (default: main)",
    "  --threads N      default: one for each CPU",
    "  --json           print the result as one JSON object",
    "  -q, --quiet      print errors only",
    "  -v, --verbose    accepted; makes no difference",
    "",
    "Examples:",
    "  binade unpack SmolLM2-135M-binade --out SmolLM2-135M-Instruct",
    "  binade unpack org/model-binade --out model --threads 4",
    NULL,
};

static void print_json(const struct console *r, const binade_unpack_report *u) {
    const struct options *o = r->options;
    struct json_out j;

    console_begin_json(&j, o, o->path);
    json_string(&j, "out", o->out);
    json_string(&j, "restored", u->whole_files ? "files" : "tensors");
    json_u64(&j, "input_bytes", u->input_nbytes);
    json_u64(&j, "output_bytes", u->output_nbytes);
    json_u64(&j, "files", u->nfiles);
    json_u64(&j, "tensors", u->ntensors);
    json_double(&j, "seconds", u->seconds);
    console_end_json(&j, r);
}

static void print_summary(const struct options *o, const binade_unpack_report *u) {
    text_print(stdout, o->out, strlen(o->out));
    printf(": %s -> %s\n", format_nbytes(u->input_nbytes).text,
           format_nbytes(u->output_nbytes).text);
    if (u->whole_files)
        printf("%s files restored byte for byte, with %s tensors\n", format_count(u->nfiles).text,
               format_count(u->ntensors).text);
    else
        printf("%s tensors restored tensor for tensor: the pack has no records of whole files\n",
               format_count(u->ntensors).text);
    printf("%s, %s\n", format_seconds(u->seconds).text,
           format_rate(u->output_nbytes, u->seconds).text);
}

int cmd_unpack(const struct options *o) {
    binade_unpack_options options = {.size = sizeof(options)};
    binade_unpack_report result = {0};
    binade_error err = {""};
    struct console console;
    int code = EXIT_GOOD;

    console_open(&console, o, "unpacking");
    options.revision = o->revision;
    options.nthreads = o->nthreads;
    options.event = console_event;
    options.user = &console;
    binade_status status = binade_unpack(o->path, o->out, &options, &result, &err);
    bar_clear(&console.bar);
    if (status)
        code = console_failure(o, status, err.message);
    else if (o->json)
        print_json(&console, &result);
    else if (!o->quiet)
        print_summary(o, &result);
    console_close(&console);
    return code;
}
