#include "cuda/gpu_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Driver ---------------------------------------------------------------------------------- */

/* Of the driver's enumeration CUdevice_attribute. */
enum {
    ATTRIBUTE_NPROCESSORS = 16,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    ATTRIBUTE_SHARED_MOST = 97,
};

static int say(char message[GPU_MESSAGE_NBYTES], const char *what, const char *detail) {
    snprintf(message, GPU_MESSAGE_NBYTES, "%s%s%s", what, *detail ? ": " : "", detail);
    return -1;
}

int gpu_query(int device, struct gpu_facts *facts, char message[GPU_MESSAGE_NBYTES]) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*init)(unsigned), (*get)(int *, int, int), found = 0;
    struct {
        int attribute, *value;
    } wanted[] = {
        {ATTRIBUTE_MAJOR, &facts->major},
        {ATTRIBUTE_MINOR, &facts->minor},
        {ATTRIBUTE_NPROCESSORS, &facts->nprocessors},
        {ATTRIBUTE_SHARED_MOST, &facts->shared_most},
    };

    if (!driver) return say(message, "NVIDIA's driver is not installed (libcuda.so.1)", "");
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get = dlsym(driver, "cuDeviceGetAttribute");
    if (init && get && init(0) == 0) {
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            found += get(wanted[i].value, wanted[i].attribute, device) == 0;
    }
    if (found < (int)(sizeof wanted / sizeof *wanted))
        return say(message, "NVIDIA's driver does not describe this device", "");
    return 0;
}

/* ---- Compiler ---------------------------------------------------------------------------------
 */

struct compiler {
    void *library;
    int (*version)(int *, int *);
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *), (*log)(void *, char *);
    int (*image_size)(void *, size_t *), (*image)(void *, char *);
    int (*destroy)(void **);
};

static void *open_compiler(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    const int modes[] = {RTLD_LAZY | RTLD_NOLOAD, RTLD_LAZY}; /* rather the one that MLX uses */

    for (size_t m = 0; m < 2; m++) {
        for (size_t n = 0; n < 2; n++) {
            void *library = dlopen(names[n], modes[m]);
            if (library) return library;
        }
    }
    return NULL;
}

static int find_compiler(struct compiler *c) {
    struct {
        const char *name;
        void **function;
    } wanted[] = {
        {"nvrtcVersion", (void **)&c->version},
        {"nvrtcCreateProgram", (void **)&c->create},
        {"nvrtcCompileProgram", (void **)&c->compile},
        {"nvrtcGetProgramLogSize", (void **)&c->log_size},
        {"nvrtcGetProgramLog", (void **)&c->log},
        {"nvrtcGetCUBINSize", (void **)&c->image_size},
        {"nvrtcGetCUBIN", (void **)&c->image},
        {"nvrtcDestroyProgram", (void **)&c->destroy},
    };

    c->library = open_compiler();
    if (!c->library) return -1;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].function = dlsym(c->library, wanted[i].name);
        if (!*wanted[i].function) return -1;
    }
    return 0;
}

int gpu_compiler_version(int *major, int *minor) {
    struct compiler c;
    *major = *minor = 0;
    return find_compiler(&c) == 0 && c.version(major, minor) == 0;
}

const char *gpu_find_source(const struct gpu_sources *sources, const char *file) {
    for (int i = 0; i < sources->count; i++) {
        if (strcmp(sources->names[i], file) == 0) return sources->texts[i];
    }
    return NULL;
}

/* What the compiler says of a program that it refuses. */
static int say_log(const struct compiler *c, void *program, const char *file,
                   char message[GPU_MESSAGE_NBYTES]) {
    size_t nbytes = 0;
    char *log = NULL;

    if (c->log_size(program, &nbytes) == 0) log = calloc(nbytes + 1, 1);
    if (log) c->log(program, log);
    say(message, file, log ? log : "is refused by the compiler");
    free(log);
    return -1;
}

int gpu_compile(const struct gpu_sources *sources, const char *file, const char *define, int major,
                int minor, char **image, size_t *image_nbytes, char message[GPU_MESSAGE_NBYTES]) {
    const char *source = gpu_find_source(sources, file);
    char target[64], defined[64];
    const char *options[] = {target, "--std=c++17", "--fmad=false", defined};
    void *program = NULL;
    struct compiler c;
    int status = -1;

    if (!source) return say(message, file, "is no source of this build");
    if (find_compiler(&c))
        return say(message, "NVIDIA's run-time compiler is not there (libnvrtc.so.13 or .12)", "");
    /* As MLX compiles: from 9.0 on with the instructions of that very architecture. */
    snprintf(target, sizeof target, "--gpu-architecture=sm_%d%d%s", major, minor,
             major >= 9 ? "a" : "");
    snprintf(defined, sizeof defined, "-D%s", define ? define : "");
    if (c.create(&program, source, file, sources->count, sources->texts, sources->names))
        return say(message, file, "NVIDIA's run-time compiler makes no program");
    if (c.compile(program, define ? 4 : 3, options)) {
        say_log(&c, program, file, message);
    } else if (c.image_size(program, image_nbytes) || !(*image = malloc(*image_nbytes))) {
        say(message, file, "no machine code");
    } else if (c.image(program, *image)) {
        free(*image);
        say(message, file, "no machine code");
    } else {
        status = 0;
    }
    c.destroy(&program);
    return status;
}
