/* fake_library.h - a fake library of tests/shims in the place of NVIDIA's, for a program to which
 * tests/CMakeLists.txt gives
 *   NAME_12, NAME_13    by which the library is found: that of CUDA 12 and of 13
 *   FAKE_12, FAKE_13    the fakes of these, which are found by their paths
 *   FAKE_INCOMPLETE     one of 13 that lacks a function
 *   BY_NAME             the only folder where the program finds libraries by name: files there that
 *                       are no libraries hide the system's
 */
#ifndef BINADE_TESTS_FAKE_LIBRARY_H
#define BINADE_TESTS_FAKE_LIBRARY_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "tree.h"

#include <cmocka.h>

/* See shims/fake.h. */
struct fake {
    void *library;
    const char *(*log)(void);
    void (*reset)(void);
    int (*ncalls)(void), (*nlive)(void);
};

static inline struct fake fake_load(const char *path, int mode) {
    struct fake loaded = {.library = dlopen(path, RTLD_NOW | mode)};
    if (!loaded.library) fail_msg("%s is not loaded", path);
    *(void **)&loaded.log = dlsym(loaded.library, "fake_log");
    *(void **)&loaded.reset = dlsym(loaded.library, "fake_reset");
    *(void **)&loaded.ncalls = dlsym(loaded.library, "fake_ncalls");
    *(void **)&loaded.nlive = dlsym(loaded.library, "fake_nlive");
    return loaded;
}

static inline void fake_unload(struct fake *loaded) {
    dlclose(loaded->library);
}

/* What is found by that name: a library, or NULL for none. */
static inline void fake_put(const char *name, const char *target) {
    unlink(tree_path(BY_NAME, name));
    if (target)
        tree_link(BY_NAME, name, target);
    else
        tree_put(BY_NAME, name, "This is no library, and the search for one ends here. ........");
}

/* Before a test of how a library is found: none is. */
static inline int fake_hide_all(void **state) {
    (void)state;
    fake_put(NAME_13, NULL);
    fake_put(NAME_12, NULL);
    return 0;
}

static inline bool fake_is_loaded(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (library) dlclose(library);
    return library != NULL;
}

/* After each test: none leaves a library to the next. */
static inline int fake_check_unloaded(void **state) {
    (void)state;
    return fake_is_loaded(NAME_13) || fake_is_loaded(NAME_12);
}

#endif
