#include "format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct formatted format_nbytes(uint64_t nbytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    struct formatted f;
    double value = (double)nbytes;
    int unit = 0;

    /* 999.5 would be shown as 1000. */
    for (; value >= 999.5; unit++)
        value /= 1000;
    int ndecimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(f.text, sizeof(f.text), "%.*f %s", ndecimals, value, units[unit]);
    return f;
}

struct formatted format_count(uint64_t count) {
    struct formatted f;
    char digits[24];
    size_t ndigits = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, count), n = 0;

    for (size_t i = 0; i < ndigits; i++) {
        if (i && (ndigits - i) % 3 == 0) f.text[n++] = ',';
        f.text[n++] = digits[i];
    }
    f.text[n] = 0;
    return f;
}

struct formatted format_clock(double seconds) {
    struct formatted f;
    /* A thousand hours are as good as never. */
    uint64_t s = seconds < 3.6e6 ? (uint64_t)(seconds + 0.5) : 3600000;

    if (s < 3600)
        snprintf(f.text, sizeof(f.text), "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    else
        snprintf(f.text, sizeof(f.text), "%u:%02u:%02u", (unsigned)(s / 3600),
                 (unsigned)(s / 60 % 60), (unsigned)(s % 60));
    return f;
}

struct formatted format_seconds(double seconds) {
    struct formatted f;

    if (seconds >= 59.95) return format_clock(seconds);
    if (seconds < 0.9995)
        snprintf(f.text, sizeof(f.text), "%.0f ms", seconds * 1000);
    else
        snprintf(f.text, sizeof(f.text), "%.*f s", seconds < 9.995 ? 2 : 1, seconds);
    return f;
}

struct formatted format_rate(uint64_t nbytes, double seconds) {
    struct formatted f;

    if (seconds > 0)
        snprintf(f.text, sizeof(f.text), "%.0f MB/s", (double)nbytes / seconds / 1e6);
    else
        snprintf(f.text, sizeof(f.text), "- MB/s");
    return f;
}

double ratio(double a, double b) {
    return b != 0 ? a / b : 0;
}
