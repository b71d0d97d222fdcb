/* progress.c - see progress.h. */
#include "base/progress.h"

#include <stdarg.h>
#include <stdio.h>

void progress_open(struct progress *p, binade_event_fn event, void *user) {
    *p = (struct progress){.event = event, .user = user};
    pthread_mutex_init(&p->lock, NULL);
}

void progress_close(struct progress *p) {
    pthread_mutex_destroy(&p->lock);
}

static void emit(struct progress *p, const binade_event *event) {
    if (p->event && !p->cancelled && p->event(p->user, event)) p->cancelled = true;
}

void progress_set_total(struct progress *p, uint64_t total) {
    pthread_mutex_lock(&p->lock);
    p->total = total;
    emit(p, &(binade_event){.kind = BINADE_EVENT_PROGRESS, .total = total});
    pthread_mutex_unlock(&p->lock);
}

binade_status progress_add(struct progress *p, uint64_t nbytes, binade_error *err) {
    pthread_mutex_lock(&p->lock);
    p->done += nbytes;
    emit(p, &(binade_event){.kind = BINADE_EVENT_PROGRESS, .done = p->done, .total = p->total});
    bool cancelled = p->cancelled;
    pthread_mutex_unlock(&p->lock);
    return cancelled ? fail(err, BINADE_E_CANCELLED, "cancelled") : BINADE_OK;
}

void progress_cancel(struct progress *p) {
    pthread_mutex_lock(&p->lock);
    p->cancelled = true;
    pthread_mutex_unlock(&p->lock);
}

void progress_text(struct progress *p, binade_event_kind kind, const char *format, ...) {
    if (!p->event) return;
    char text[BINADE_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&p->lock);
    emit(p, &(binade_event){.kind = kind, .text = text});
    pthread_mutex_unlock(&p->lock);
}
