#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "format.h"
#include "text.h"

const char *const verify_help[] = {
    "Usage: binade verify PACKED [--against MODEL] [options]",
    "",
    "Decodes the pack PACKED and checks every checksum in it. If the pack has records, the",
    "SHA-256 of every original file is proven, without the original being there; if not, only",
    "the structure can be checked. PACKED is a directory, or a hub id (org/name) in the",
    "local Hugging Face cache. Nothing is written.",
    "",
    "  --against MODEL  compare with this original too, byte for byte; its directory, or a",
    "                   hub id in the cache (at its main revision)",
    "  --revision REV   of a hub id: a branch, tag or commit prefix (default: main)",
    "  --threads N      default: one for each CPU",
    "  --json           print the result as one JSON object",
    "  -q, --quiet      print errors only: the exit status tells",
    "  -v, --verbose    accepted; makes no difference",
    "",
    "Exit status: 0 good (with no records: the structure), 1 something is corrupt or",
    "differs, 2 it could not be checked.",
    "",
    "Examples:",
    "  binade verify SmolLM2-135M-binade",
    "  binade verify packed --against original && rm -r original",
    NULL,
};

static const char structure_sound[] = "structure sound, original not proven";

static void print_json(const struct console *r, const binade_verify_report *v) {
    const struct options *o = r->options;
    struct json_out j;

    console_begin_json(&j, o, o->path);
    json_string(&j, "result", v->proven ? "proven" : structure_sound);
    if (o->against)
        json_string(&j, "against", o->against);
    else
        json_null(&j, "against");
    json_bool(&j, "equal", v->compared);
    json_u64(&j, "files", v->nfiles);
    json_u64(&j, "tensors", v->ntensors);
    json_u64(&j, "bytes", v->nbytes);
    json_double(&j, "seconds", v->seconds);
    console_end_json(&j, r);
}

static void print_summary(const struct options *o, const binade_verify_report *v) {
    struct formatted nbytes = format_nbytes(v->nbytes), seconds = format_seconds(v->seconds);

    text_print(stdout, o->path, strlen(o->path));
    if (v->proven)
        printf(": every one of %s original files proven by SHA-256 (%s, %s)\n",
               format_count(v->nfiles).text, nbytes.text, seconds.text);
    else
        printf(": %s (%s tensors, %s, %s)\n", structure_sound, format_count(v->ntensors).text,
               nbytes.text, seconds.text);
    if (!v->compared) return;
    text_print(stdout, o->path, strlen(o->path));
    printf(": every %s equals the one in ", v->proven ? "file" : "tensor");
    text_print(stdout, o->against, strlen(o->against));
    putchar('\n');
}

int cmd_verify(const struct options *o) {
    binade_verify_options options = {.size = sizeof(options)};
    binade_verify_report result = {0};
    binade_error err = {""};
    struct console console;
    int code = EXIT_GOOD;

    console_open(&console, o, "verifying");
    options.revision = o->revision;
    options.against = o->against;
    options.nthreads = o->nthreads;
    options.event = console_event;
    options.user = &console;
    binade_status status = binade_verify(o->path, &options, &result, &err);
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
