/* place.h - a directory in memory where a fuzzer's input becomes files, and what may be left there.
 */
#ifndef BINADE_TESTS_FUZZ_PLACE_H
#define BINADE_TESTS_FUZZ_PLACE_H

#include "parts.h"

/* The files of the input, and where output goes: both in a directory that holds nothing else. */
extern char place_in[80], place_out[80];

/* Makes the directory; it is removed when the process ends. */
void place_open(void);
/* Writes the input's files, as pieces.h says. */
void place_fill(const uint8_t *input, size_t nbytes);
void place_clear(void);
/* Nothing is there but what was read and, if so, the result. */
void place_check(bool has_out);

/* The status of something that may be refused, but only because of the data. */
binade_status check_refusal(binade_status status, const binade_error *err);

/* An event callback: stops where a few bytes describe a terabyte of zeros. */
int stop_if_large(void *user, const binade_event *event);

/* Verifies the pack `packed`, against a directory unless that is NULL. */
binade_status place_verify(const char *packed, const char *against, unsigned nthreads);

#endif
