/* progress_bar.h - a progress bar on standard error: percent, bytes, rate, time left. */
#ifndef BINADE_CLI_PROGRESS_BAR_H
#define BINADE_CLI_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct progress_bar {
    bool shown; /* false: all functions do nothing */
    bool drawn; /* the bar stands on the terminal's current line */
    const char *verb;
    double start, last; /* seconds of the monotonic clock */
    uint64_t last_done;
};

/* The bar is shown if it is wanted and standard error is a terminal that can erase a line. `verb`
 * is static, for example "packing". */
void bar_open(struct progress_bar *p, const char *verb, bool wanted);
/* Draws the bar, at most ten times a second. */
void bar_update(struct progress_bar *p, uint64_t done, uint64_t total);
/* Erases the bar, so that other lines can be printed; the next update draws it again. */
void bar_clear(struct progress_bar *p);

#endif
