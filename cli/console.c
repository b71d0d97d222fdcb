#include "console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "signals.h"
#include "text.h"

void console_open(struct console *r, const struct options *o, const char *verb) {
    memset(r, 0, sizeof(*r));
    r->options = o;
    bar_open(&r->bar, verb, !o->quiet && !o->json);
}

void console_close(struct console *r) {
    bar_clear(&r->bar);
    for (size_t i = 0; i < r->nnotes; i++)
        free(r->notes[i]);
    free(r->notes);
    r->notes = NULL;
    r->nnotes = 0;
}

/* False when out of memory. */
static bool keep_note(struct console *r, const char *text) {
    char **notes = realloc(r->notes, (r->nnotes + 1) * sizeof(*notes));
    if (!notes) return false;
    r->notes = notes;
    size_t nbytes = strlen(text) + 1;
    char *copy = malloc(nbytes);
    if (!copy) return false;
    memcpy(copy, text, nbytes);
    notes[r->nnotes++] = copy;
    return true;
}

static void print_line(struct console *r, const char *label, const char *text) {
    bar_clear(&r->bar);
    fputs(label, stderr);
    text_print(stderr, text, strlen(text));
    putc('\n', stderr);
}

int console_event(void *user, const binade_event *event) {
    struct console *r = user;

    switch (event->kind) {
    case BINADE_EVENT_PROGRESS:
        bar_update(&r->bar, event->done, event->total);
        break;
    case BINADE_EVENT_NOTE:
        if (!r->options->quiet) print_line(r, "note: ", event->text);
        /* A result without its notes would say too much: rather stop. */
        if (r->options->json && !keep_note(r, event->text)) return 1;
        break;
    case BINADE_EVENT_TENSOR:
        if (r->options->verbose) print_line(r, "", event->text);
        break;
    }
    return signals_caught() != 0;
}

void console_begin_json(struct json_out *j, const struct options *o, const char *path) {
    memset(j, 0, sizeof(*j));
    j->out = stdout;
    json_begin_object(j, NULL);
    json_string(j, "command", o->command->name);
    json_string(j, "version", binade_version());
    json_string(j, "path", path);
}

void console_end_json(struct json_out *j, const struct console *r) {
    json_begin_array(j, "notes");
    for (size_t i = 0; i < r->nnotes; i++)
        json_string(j, NULL, r->notes[i]);
    json_end_array(j);
    json_end_object(j);
    json_finish(j);
}

static const char *status_name(binade_status status) {
    switch (status) {
    case BINADE_E_DATA:
        return "data";
    case BINADE_E_USAGE:
        return "usage";
    case BINADE_E_MEMORY:
        return "memory";
    case BINADE_E_CANCELLED:
        return "cancelled";
    default:
        return "io";
    }
}

int console_failure(const struct options *o, binade_status status, const char *message) {
    char text[64];

    if (status == BINADE_E_CANCELLED) {
        int number = signals_caught();
        /* The library is otherwise only stopped when a note could not be kept. */
        if (!number) {
            status = BINADE_E_MEMORY;
            message = "out of memory";
        } else {
            snprintf(text, sizeof(text), "stopped by %s", signals_name(number));
            message = text;
        }
    }
    fputs("binade: ", stderr);
    text_print(stderr, message, strlen(message));
    putc('\n', stderr);
    if (o->json) {
        struct json_out j = {.out = stdout};
        json_begin_object(&j, NULL);
        json_begin_object(&j, "error");
        json_string(&j, "status", status_name(status));
        json_string(&j, "message", message);
        json_end_object(&j);
        json_end_object(&j);
        json_finish(&j);
    }
    return status == BINADE_E_DATA ? EXIT_DATA : EXIT_OTHER;
}
