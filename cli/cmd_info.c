#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "console.h"
#include "info.h"

const char *const info_help[] = {
    "Usage: binade info PATH [options]",
    "",
    "Tells what the checkpoint PATH holds, packed or not: for each class of tensors the",
    "weights, the stored bytes, the bits a weight, the entropy of the exponents and the",
    "distance to the limit it sets; and the memory that the model needs at run time.",
    "PATH is a directory, or a hub id (org/name) in the local Hugging Face cache.",
    "Reads every BF16 tensor once; nothing is written.",
    "",
    "  --revision REV   of a hub id: a branch, tag or commit prefix (default: main)",
    "  --threads N      default: one for each CPU",
    "  --json           print everything, each tensor too, as one JSON object",
    "  -q, --quiet      no progress bar",
    "  -v, --verbose    print a line for each tensor too",
    "",
    "Examples:",
    "  binade info SmolLM2-135M-binade",
    "  binade info -v org/model",
    "  binade info --json packed | jq '.total.bits_per_weight'",
    NULL,
};

/* R4 holds what is packed; of an unpacked checkpoint, what `binade pack` would pack by default. */
static bool fits_r4(int format, const binade_tensor *t) {
    if (format) return t->packed;
    return (t->cls == BINADE_LINEAR || t->cls == BINADE_EMBED) && (t->ndim == 2 || t->ndim == 3);
}

static void add_tensor(struct info_class *c, const binade_tensor *t, const struct info_tensor *m) {
    c->ntensors++;
    c->npacked += t->packed != 0;
    c->nbytes += t->nbytes;
    c->stored_nbytes += t->stored_nbytes;
    c->runtime_nbytes += m->runtime_nbytes;
    c->nweights += m->nweights;
    c->stored_nbits += m->stored_nbits;
    c->entropy_nbits += m->entropy * (double)m->nweights;
}

/* Below, starting threads takes longer than reading the tensor: a checkpoint may hold millions. */
#define THREADED_MIN_NBYTES (1u << 20)

static binade_status measure_tensor(const struct info *info, size_t i, const binade_tensor *t,
                                    unsigned nthreads, binade_error *err) {
    struct info_tensor *m = &info->tensors[i];
    binade_stats stats;

    memset(m, 0, sizeof(*m));
    m->runtime_nbytes = t->nbytes;
    if (strcmp(t->dtype, "BF16") != 0) return BINADE_OK;
    if (t->nbytes < THREADED_MIN_NBYTES) nthreads = 1;
    binade_status status = binade_measure(info->checkpoint, i, &stats, nthreads, err);
    if (status) return status;
    m->measured = true;
    m->nweights = stats.nweights;
    m->stored_nbits = stats.stored_nbits;
    m->entropy = stats.entropy;
    if (stats.nweights && fits_r4(binade_format(info->checkpoint), t))
        m->runtime_nbytes = stats.runtime_nbytes;
    return BINADE_OK;
}

static binade_status measure(struct info *info, struct console *console, binade_error *err) {
    binade_event event = {.kind = BINADE_EVENT_PROGRESS};
    binade_tensor t;

    for (size_t i = 0; i < info->count; i++) {
        binade_get(info->checkpoint, i, &t);
        event.total += t.nbytes;
    }
    for (size_t i = 0; i < info->count; i++) {
        if (console_event(console, &event)) return BINADE_E_CANCELLED;
        binade_get(info->checkpoint, i, &t);
        binade_status status = measure_tensor(info, i, &t, console->options->nthreads, err);
        if (status) return status;
        add_tensor(&info->classes[t.cls], &t, &info->tensors[i]);
        add_tensor(&info->total, &t, &info->tensors[i]);
        event.done += t.nbytes;
    }
    return BINADE_OK;
}

int cmd_info(const struct options *o) {
    struct info info = {0};
    binade_checkpoint *checkpoint = NULL;
    binade_error err = {""};
    struct console console;
    int code = EXIT_GOOD;

    console_open(&console, o, "measuring");
    binade_status status = binade_open(o->path, o->revision, &checkpoint, &err);
    if (status) goto done;
    info.checkpoint = checkpoint;
    info.count = binade_count(checkpoint);
    info.tensors = calloc(info.count + 1, sizeof(*info.tensors));
    if (!info.tensors) {
        status = BINADE_E_MEMORY;
        snprintf(err.message, sizeof(err.message), "out of memory");
        goto done;
    }
    status = measure(&info, &console, &err);
    bar_clear(&console.bar);
    if (status) goto done;
    if (o->json)
        info_print_json(&info, &console);
    else
        info_print(&info, o->verbose);
done:
    console_close(&console);
    if (status) code = console_failure(o, status, err.message);
    free(info.tensors);
    binade_close(checkpoint);
    return code;
}
