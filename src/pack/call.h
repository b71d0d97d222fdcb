/* call.h - what the three long commands share: options as passed, and the clock. */
#ifndef BINADE_PACK_CALL_H
#define BINADE_PACK_CALL_H

#include <stddef.h>
#include <time.h>

#include "base/status.h"

/* Copies an options struct that begins with its size, as its caller knew it, over `to`: fields that
 * the caller did not know stay zero. `from` may be NULL. BINADE_E_USAGE if it is longer than known
 * here. */
binade_status copy_options(void *to, size_t to_nbytes, const void *from, binade_error *err);

double seconds_since(const struct timespec *start);

#endif
