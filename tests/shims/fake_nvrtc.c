/* fake_nvrtc.c - stands for NVIDIA's run-time compiler where there is none: keeps what it is told
 * and gives the machine code that the test wants. FAKE_MAJOR is its version. Beside what fake.h
 * says:
 *
 * FAKE_NVRTC_REFUSAL    the program is refused, and this is the compiler's log
 * FAKE_NVRTC_IMAGE      the machine code
 *
 * With FAKE_INCOMPLETE defined one function is missing.
 */
#include <string.h>

#include "fake.h"

enum { OK, OUT_OF_MEMORY = 1, INVALID = 4, REFUSED = 6 };

EXPORT int nvrtcVersion(int *major, int *minor);
EXPORT int nvrtcVersion(int *major, int *minor) {
    *major = FAKE_MAJOR;
    *minor = 8;
    return fails(__func__) ? INVALID : OK;
}

EXPORT int nvrtcCreateProgram(void **program, const char *source, const char *name, int nheaders,
                              const char *const *headers, const char *const *names);
EXPORT int nvrtcCreateProgram(void **program, const char *source, const char *name, int nheaders,
                              const char *const *headers, const char *const *names) {
    write_log("%s: %s\n", name, source);
    for (int i = 0; i < nheaders; i++)
        write_log("header %s: %s\n", names[i], headers[i]);
    return create(__func__, program, 'P', "") ? OUT_OF_MEMORY : OK;
}

EXPORT int nvrtcDestroyProgram(void **program);
EXPORT int nvrtcDestroyProgram(void **program) {
    int status = destroy(__func__, *program, 'P') ? INVALID : OK;
    *program = NULL;
    return status;
}

EXPORT int nvrtcCompileProgram(void *program, int noptions, const char *const *options);
EXPORT int nvrtcCompileProgram(void *program, int noptions, const char *const *options) {
    struct object *found = check(program, 'P');

    write_log("compile");
    for (int i = 0; i < noptions; i++)
        write_log(" [%s]", options[i]);
    write_log("\n");
    if (fails(__func__) || !found) return INVALID;
    if (getenv("FAKE_NVRTC_REFUSAL")) return REFUSED;
    strcpy(found->text, "compiled");
    return OK;
}

/* ---- What comes of it ------------------------------------------------------------------------ */

static int measure(const char *function, void *program, size_t measured, size_t *nbytes) {
    *nbytes = 1000; /* which nobody may believe after a failure */
    if (!check(program, 'P') || fails(function)) return INVALID;
    *nbytes = measured;
    return OK;
}

/* Half of it is there already when it fails. */
static int give(const char *function, void *program, const char *given, size_t nbytes, char *to) {
    if (!check(program, 'P')) return INVALID;
    memcpy(to, given, nbytes / 2);
    if (fails(function)) return INVALID;
    memcpy(to, given, nbytes);
    return OK;
}

static const char *find_refusal(void) {
    const char *refusal = getenv("FAKE_NVRTC_REFUSAL");
    return refusal ? refusal : "";
}

EXPORT int nvrtcGetProgramLogSize(void *program, size_t *nbytes);
EXPORT int nvrtcGetProgramLogSize(void *program, size_t *nbytes) {
    return measure(__func__, program, strlen(find_refusal()) + 1, nbytes);
}

EXPORT int nvrtcGetProgramLog(void *program, char *text);
EXPORT int nvrtcGetProgramLog(void *program, char *text) {
    return give(__func__, program, find_refusal(), strlen(find_refusal()) + 1, text);
}

/* Of a program that was compiled. */
static const char *find_image(void *program) {
    const struct object *found = check(program, 'P');
    const char *image = getenv("FAKE_NVRTC_IMAGE");
    if (found && !*found->text) write_log("not a compiled program\n");
    return image ? image : "";
}

EXPORT int nvrtcGetCUBINSize(void *program, size_t *nbytes);
EXPORT int nvrtcGetCUBINSize(void *program, size_t *nbytes) {
    return measure(__func__, program, strlen(find_image(program)), nbytes);
}

#ifndef FAKE_INCOMPLETE
EXPORT int nvrtcGetCUBIN(void *program, char *image);
EXPORT int nvrtcGetCUBIN(void *program, char *image) {
    return give(__func__, program, find_image(program), strlen(find_image(program)), image);
}
#endif
