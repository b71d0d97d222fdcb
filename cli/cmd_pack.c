#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "format.h"
#include "text.h"

const char *const pack_help[] = {
    "Usage: binade pack MODEL --out DIR [options]",
    "",
    "Packs the BF16 checkpoint MODEL into the new directory DIR without losing a bit.",
    "MODEL is a directory, or a hub id (org/name) in the local Hugging Face cache. It is",
    "only read. DIR appears whole or not at all.",
    "",
    "  --out DIR        where to write, not inside MODEL; may exist only if it is empty",
    "  --format 2|1     2: smallest, about 10.75 bits a weight (default); 1: about 11.27",
    "  --classes LIST   which weights to pack, of linear, embed, ple, mm and other,",
    "                   separated by commas (default: linear,embed)",
    "  --exclude GLOB   carry the tensors whose names match unpacked; may be repeated",
    "  --no-hash        write no records: faster, but unpack then restores tensors, not",
    "                   files, and verify cannot prove the original",
    "  --force          replace DIR, with all that it holds, if it is a Binade checkpoint",
    "  --revision REV   of a hub id: a branch, tag or commit prefix (default: main)",
    "  --threads N      default: one for each CPU",
    "  --json           print the result as one JSON object",
    "  -q, --quiet      print errors only",
    "  -v, --verbose    print a line for each tensor",
    "",
    "Examples:",
    "  binade pack SmolLM2-135M-Instruct --out SmolLM2-135M-binade",
    "  binade pack org/model --revision v1.1 --out packed --format 1",
    "  binade pack model --out packed --classes linear --exclude '*.layers.0.*'",
    NULL,
};

static void print_json(const struct console *r, const binade_pack_report *p) {
    const struct options *o = r->options;
    struct json_out j;

    console_begin_json(&j, o, o->path);
    json_string(&j, "out", o->out);
    json_u64(&j, "format", o->format ? (uint64_t)o->format : 2);
    json_bool(&j, "records", !o->no_hash);
    json_u64(&j, "input_bytes", p->input_nbytes);
    json_u64(&j, "output_bytes", p->output_nbytes);
    json_u64(&j, "packed_weights", p->nweights);
    json_u64(&j, "packed_bits", p->nbits);
    if (p->nweights)
        json_double(&j, "bits_per_weight", (double)p->nbits / (double)p->nweights);
    else
        json_null(&j, "bits_per_weight");
    json_u64(&j, "tensors", p->ntensors);
    json_u64(&j, "tensors_packed", p->npacked);
    json_u64(&j, "tensors_carried", p->ntensors - p->npacked);
    json_u64(&j, "files", p->nfiles);
    json_double(&j, "seconds", p->seconds);
    console_end_json(&j, r);
}

static void print_summary(const struct options *o, const binade_pack_report *p) {
    text_print(stdout, o->out, strlen(o->out));
    printf(": %s of shards -> %s, %.1f %%\n", format_nbytes(p->input_nbytes).text,
           format_nbytes(p->output_nbytes).text,
           100 * ratio((double)p->output_nbytes, (double)p->input_nbytes));
    if (p->nweights)
        printf("%s weights packed at %.3f bits a weight instead of 16\n",
               format_count(p->nweights).text, (double)p->nbits / (double)p->nweights);
    printf("%s tensors packed, %s carried as they are; %s original files in all\n",
           format_count(p->npacked).text, format_count(p->ntensors - p->npacked).text,
           format_count(p->nfiles).text);
    printf("%s, %s\n", format_seconds(p->seconds).text,
           format_rate(p->input_nbytes, p->seconds).text);
}

int cmd_pack(const struct options *o) {
    binade_pack_options options = {.size = sizeof(options)};
    binade_pack_report result = {0};
    binade_error err = {""};
    struct console console;
    int code = EXIT_GOOD;

    console_open(&console, o, "packing");
    options.format = o->format;
    options.classes = o->classes;
    options.revision = o->revision;
    options.exclude = o->exclude;
    options.nexclude = o->nexclude;
    options.no_hash = o->no_hash;
    options.force = o->force;
    options.nthreads = o->nthreads;
    options.event = console_event;
    options.user = &console;
    binade_status status = binade_pack(o->path, o->out, &options, &result, &err);
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
