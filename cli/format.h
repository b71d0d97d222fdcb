/* format.h - numbers as people read them. */
#ifndef BINADE_CLI_FORMAT_H
#define BINADE_CLI_FORMAT_H

#include <stdint.h>

struct formatted {
    char text[32];
};

/* Three digits and a decimal unit, 1 kB being 1000 bytes: "999 B", "1.23 kB", "45.6 MB". */
struct formatted format_nbytes(uint64_t nbytes);
/* Digits in groups of three: "106,168,320". */
struct formatted format_count(uint64_t count);
/* "120 ms", "1.23 s", "12.3 s", "2:05", "1:02:05". */
struct formatted format_seconds(double seconds);
/* "m:ss" or "h:mm:ss". */
struct formatted format_clock(double seconds);
/* nbytes in `seconds` as "123 MB/s"; "- MB/s" if no time has passed. */
struct formatted format_rate(uint64_t nbytes, double seconds);

/* a / b, 0 if b is 0. */
double ratio(double a, double b);

#endif
