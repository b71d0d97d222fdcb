/* call.c - see call.h. */
#include "pack/call.h"

#include <string.h>

binade_status copy_options(void *to, size_t to_nbytes, const void *from, binade_error *err) {
    memset(to, 0, to_nbytes);
    if (!from) return BINADE_OK;
    size_t nbytes;
    memcpy(&nbytes, from, sizeof nbytes);
    if (nbytes < sizeof nbytes || nbytes > to_nbytes)
        return fail(err, BINADE_E_USAGE,
                    "the options' size is %zu, this library knows sizes up to %zu", nbytes,
                    to_nbytes);
    memcpy(to, from, nbytes);
    return BINADE_OK;
}

double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) * 1e-9;
}
