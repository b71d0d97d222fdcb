/* failing_malloc.c - preloaded into the command, makes chosen allocations fail. For glibc.
 *
 * Those of libcrypto are not counted: OpenSSL 3.0 follows null pointers when it cannot set itself
 * up.
 *
 * FAILING_MALLOC_FIRST  the ordinal of the first that fails, from 1
 * FAILING_MALLOC_LAST   of the last
 * FAILING_MALLOC_COUNT  a file that gets how many there were
 */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t nbytes);
extern void *__libc_calloc(size_t count, size_t nbytes);
extern void *__libc_realloc(void *old, size_t nbytes);

static atomic_ulong ncalls;
static unsigned long first, last;
static uintptr_t crypto_begin, crypto_end;

static int find_crypto(struct dl_phdr_info *info, size_t nbytes, void *user) {
    (void)nbytes, (void)user;
    for (int i = 0; strstr(info->dlpi_name, "libcrypto") && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD) continue;
        if (!crypto_begin) crypto_begin = begin;
        crypto_end = begin + segment->p_memsz;
    }
    return 0;
}

static unsigned long get_number(const char *name) {
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void) {
    last = get_number("FAILING_MALLOC_LAST");
    first = get_number("FAILING_MALLOC_FIRST");
    dl_iterate_phdr(find_crypto, NULL);
    ncalls = 0;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAILING_MALLOC_COUNT");
    unsigned long count = ncalls;
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%lu", count);
    fclose(f);
}

static int fails(const void *caller) {
    uintptr_t address = (uintptr_t)caller;
    if (address >= crypto_begin && address < crypto_end) return 0;
    unsigned long n = atomic_fetch_add(&ncalls, 1) + 1;
    if (!first || n < first || n > last) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t nbytes) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(nbytes);
}

void *calloc(size_t count, size_t nbytes) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, nbytes);
}

void *realloc(void *old, size_t nbytes) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, nbytes);
}
