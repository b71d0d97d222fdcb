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

/* ---- Compiler -------------------------------------------------------------------------------- */

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

static void *open_library(void) {
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

static void close_compiler(struct compiler *c) {
    dlclose(c->library);
}

static int open_compiler(struct compiler *c, char message[GPU_MESSAGE_NBYTES]) {
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

    c->library = open_library();
    if (!c->library)
        return say(message, "NVIDIA's run-time compiler is not there (libnvrtc.so.13 or .12)", "");
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].function = dlsym(c->library, wanted[i].name);
        if (!*wanted[i].function) {
            close_compiler(c);
            return say(message, "NVIDIA's run-time compiler lacks a function", wanted[i].name);
        }
    }
    return 0;
}

int gpu_compiler_version(int *major, int *minor) {
    char message[GPU_MESSAGE_NBYTES];
    struct compiler c;
    int found[2] = {0, 0};

    if (open_compiler(&c, message) == 0) {
        if (c.version(&found[0], &found[1])) found[0] = found[1] = 0;
        close_compiler(&c);
    }
    *major = found[0];
    *minor = found[1];
    return *major > 0;
}

const char *gpu_find_source(const struct gpu_sources *sources, const char *file) {
    for (int i = 0; i < sources->count; i++) {
        if (strcmp(sources->names[i], file) == 0) return sources->texts[i];
    }
    return NULL;
}

/* What the compiler says of a program that it refuses. */
static void say_log(const struct compiler *c, void *program, const char *file,
                    char message[GPU_MESSAGE_NBYTES]) {
    size_t nbytes = 0;
    char *log = NULL;

    if (c->log_size(program, &nbytes) == 0) log = calloc(nbytes + 1, 1);
    if (log && c->log(program, log)) *log = 0;
    say(message, file, log && *log ? log : "is refused by the compiler");
    free(log);
}

/* The machine code of a compiled program. */
static int take_image(const struct compiler *c, void *program, char **image, size_t *image_nbytes) {
    size_t nbytes = 0;
    char *code = NULL;

    if (c->image_size(program, &nbytes) == 0 && nbytes > 0) code = malloc(nbytes);
    if (!code || c->image(program, code)) {
        free(code);
        return -1;
    }
    *image = code;
    *image_nbytes = nbytes;
    return 0;
}

enum { OPTION_NBYTES = 2 + GPU_DEFINE_NBYTES_MOST + 1 };

/* "A=1 B=2" as options "-DA=1" and "-DB=2". Returns how many there are, or -1 if they are too many
 * or one is empty or too long. */
static int split_defines(const char *defines, char options[GPU_NDEFINES_MOST][OPTION_NBYTES]) {
    int n = 0;

    while (*defines) {
        size_t nbytes = strcspn(defines, " ");
        if (n == GPU_NDEFINES_MOST || nbytes == 0 || nbytes > GPU_DEFINE_NBYTES_MOST) return -1;
        snprintf(options[n++], OPTION_NBYTES, "-D%.*s", (int)nbytes, defines);
        defines += nbytes + (defines[nbytes] == ' ');
    }
    return n;
}

int gpu_compile(const struct gpu_sources *sources, const char *file, const char *defines, int major,
                int minor, char **image, size_t *image_nbytes, char message[GPU_MESSAGE_NBYTES]) {
    const char *source = gpu_find_source(sources, file);
    char target[64], defined[GPU_NDEFINES_MOST][OPTION_NBYTES];
    const char *options[3 + GPU_NDEFINES_MOST] = {target, "--std=c++17", "--fmad=false"};
    int ndefines = split_defines(defines, defined), status = -1;
    void *program = NULL;
    struct compiler c;

    if (!source) return say(message, file, "is no source of this build");
    if (ndefines < 0) {
        snprintf(message, GPU_MESSAGE_NBYTES,
                 "%s: at most %d definitions, each of 1 to %d bytes, can be given, not these: %s",
                 file, GPU_NDEFINES_MOST, GPU_DEFINE_NBYTES_MOST, defines);
        return -1;
    }
    if (open_compiler(&c, message)) return -1;
    /* As MLX compiles: from 9.0 on with the instructions of that very architecture. */
    snprintf(target, sizeof target, "--gpu-architecture=sm_%d%d%s", major, minor,
             major >= 9 ? "a" : "");
    for (int i = 0; i < ndefines; i++)
        options[3 + i] = defined[i];
    if (c.create(&program, source, file, sources->count, sources->texts, sources->names)) {
        say(message, file, "NVIDIA's run-time compiler makes no program");
    } else {
        if (c.compile(program, 3 + ndefines, options))
            say_log(&c, program, file, message);
        else if (take_image(&c, program, image, image_nbytes))
            say(message, file, "no machine code");
        else
            status = 0;
        c.destroy(&program);
    }
    close_compiler(&c);
    return status;
}
