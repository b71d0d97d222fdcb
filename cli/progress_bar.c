#include "progress_bar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "format.h"

enum {
    WIDTH_DEFAULT = 80,
    WIDTH_MAX = 200,
    BAR_MIN = 5,
    BAR_MAX = 40,
    LINE_CAPACITY = 256, /* all parts at their longest */
};

static double read_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void bar_open(struct progress_bar *p, const char *verb, bool wanted) {
    const char *term = getenv("TERM");

    memset(p, 0, sizeof(*p));
    p->verb = verb;
    p->shown = wanted && isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
    p->start = read_clock();
}

/* Asked again for each drawing: a window can be resized. */
static int terminal_width(void) {
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return WIDTH_DEFAULT;
    return size.ws_col < WIDTH_MAX ? size.ws_col : WIDTH_MAX;
}

/* Composes the line in line[0..capacity), at most `ncolumns` long: the bar takes the room that the
 * words leave, and the words lose their end on a very narrow terminal. */
static void compose(char *line, size_t capacity, int ncolumns, const struct progress_bar *p,
                    uint64_t done, uint64_t total, double seconds) {
    char tail[128], head[64], bar[BAR_MAX + 1];
    double fraction = ratio((double)done, (double)total);
    struct formatted left = {"-:--"};

    if (fraction > 1) fraction = 1;
    /* The first moments say little about the rate. */
    if (seconds > 0.5 && fraction > 0) left = format_clock(seconds / fraction - seconds);
    int nhead = snprintf(head, sizeof(head), "%s %3d%%", p->verb, (int)(fraction * 100));
    int ntail = snprintf(tail, sizeof(tail), " %s of %s, %s, %s left", format_nbytes(done).text,
                         format_nbytes(total).text, format_rate(done, seconds).text, left.text);

    int nbar = ncolumns - nhead - ntail - 3;
    if (nbar > BAR_MAX) nbar = BAR_MAX;
    if (nbar >= BAR_MIN) {
        int nfull = (int)(fraction * nbar);
        memset(bar, '#', (size_t)nfull);
        memset(bar + nfull, '.', (size_t)(nbar - nfull));
        bar[nbar] = 0;
        snprintf(line, capacity, "%s [%s]%s", head, bar, tail);
    } else {
        snprintf(line, capacity, "%s%s", head, tail);
    }
    if (strlen(line) > (size_t)ncolumns) line[ncolumns] = 0;
}

void bar_update(struct progress_bar *p, uint64_t done, uint64_t total) {
    char line[LINE_CAPACITY];
    double now;

    if (!p->shown) return;
    now = read_clock();
    /* The end is drawn at once: what follows it, such as syncing, can take long. */
    bool ends = done == total && p->last_done != total;
    if (p->last > 0 && now - p->last < 0.1 && !ends) return;
    p->last = now;
    p->last_done = done;
    p->drawn = true;
    /* The last column stays free: many terminals wrap when it is written. */
    compose(line, sizeof(line), terminal_width() - 1, p, done, total, now - p->start);
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
}

void bar_clear(struct progress_bar *p) {
    if (!p->drawn) return;
    p->drawn = false;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
