#include "signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

static volatile sig_atomic_t caught;

static const struct watched {
    int number;
    const char *name;
} watched[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
enum { NWATCHED = sizeof(watched) / sizeof(*watched) };

static void remember(int number) {
    caught = number;
}

void signals_watch(void) {
    struct sigaction action, old;

    memset(&action, 0, sizeof(action));
    sigemptyset(&action.sa_mask);
    /* System calls go on: the library is stopped by its next event, never by half a write. */
    action.sa_flags = SA_RESTART;
    action.sa_handler = remember;
    for (size_t i = 0; i < NWATCHED; i++)
        if (sigaction(watched[i].number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(watched[i].number, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

int signals_caught(void) {
    return caught;
}

const char *signals_name(int signal_number) {
    for (size_t i = 0; i < NWATCHED; i++)
        if (watched[i].number == signal_number) return watched[i].name;
    return "a signal";
}

void signals_die(void) {
    struct sigaction action;
    sigset_t set;
    int number = caught;

    if (!number) return;
    memset(&action, 0, sizeof(action));
    sigemptyset(&action.sa_mask);
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}
