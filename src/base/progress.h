/* progress.h - counts bytes done and hands events to the caller's callback, one at a time. */
#ifndef BINADE_BASE_PROGRESS_H
#define BINADE_BASE_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct progress {
    pthread_mutex_t lock;
    binade_event_fn event; /* NULL: only count */
    void *user;
    uint64_t done, total;
    bool cancelled;
};

void progress_open(struct progress *p, binade_event_fn event, void *user);
void progress_close(struct progress *p);
void progress_set_total(struct progress *p, uint64_t total);
/* Adds nbytes; BINADE_E_CANCELLED once the callback has asked to stop. */
binade_status progress_add(struct progress *p, uint64_t nbytes, binade_error *err);
/* The same as if the callback had asked to stop. */
void progress_cancel(struct progress *p);
void progress_text(struct progress *p, binade_event_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
