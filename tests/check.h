/* check.h - the smallest test harness, for programs that also run under emulation: no library. */
#ifndef BINADE_TESTS_CHECK_H
#define BINADE_TESTS_CHECK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum { CHECK_NPRINTED = 30 }; /* failures beyond these are only counted */

static unsigned check_npassed, check_nfailed;

/* CHECK(condition, "what failed: %d", ...) counts; a failure is printed and the test goes on. */
#define CHECK(condition, ...) check_one((condition), __FILE__, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 4, 5))) static inline void
check_one(bool passed, const char *file, int line, const char *format, ...) {
    va_list arguments;

    if (passed) {
        check_npassed++;
        return;
    }
    if (check_nfailed++ >= CHECK_NPRINTED) return;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* The last line of main: return check_end(). A test that checked nothing has failed. */
static inline int check_end(void) {
    printf("%u passed, %u failed\n", check_npassed, check_nfailed);
    return check_nfailed > 0 || check_npassed == 0;
}

#endif
