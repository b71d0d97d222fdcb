/* library.c - what the library says of itself. */
#include "binade.h"
#include "cpu/kernels.h"

const char *binade_version(void) {
    return BINADE_VERSION;
}

const char *binade_cpu(void) {
    return cpu_kernels()->name;
}
