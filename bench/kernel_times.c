/* kernel_times.c - when each kernel of this process ran on an NVIDIA GPU, by the GPU's own clock:
 * the activity records of CUPTI. A library of its own, which bench/kernel_times.py loads.
 *
 *     cc -std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -pthread -o build/kernel_times.so \
 *         bench/kernel_times.c -ldl
 *
 * CUPTI is found at run time and what is used of it is declared here: its own headers include those
 * of further packages, and differ from version to version, unlike this part of it.
 *
 * One thread calls; CUPTI calls back from threads of its own. Functions return 0, or -1 with one
 * sentence in `message`.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { MESSAGE_NBYTES = 512 };

/* Nanoseconds, [start, end); the name as the compiler wrote it, kept to the end of the process. */
struct kernel_time {
    uint64_t start, end;
    const char *name;
};

/* Begins to record. cupti: the path of libcupti, or its name where the loader finds it; the first
 * one that was loaded stays. */
EXPORT int kernel_times_start(const char *cupti, char message[MESSAGE_NBYTES]);

/* All kernels since the start or the last call, by their start; the array lasts until the next
 * call. The GPU has to be idle: the caller has waited for it. After a failure nothing is kept. */
EXPORT int kernel_times_take(const struct kernel_time **times, size_t *count,
                             char message[MESSAGE_NBYTES]);

/* Ends recording, which may be started again; what was not taken is lost. */
EXPORT int kernel_times_stop(char message[MESSAGE_NBYTES]);

/* ---- CUPTI ----------------------------------------------------------------------------------- */

enum { CUPTI_LIMIT_REACHED = 12, CUPTI_CONCURRENT_KERNEL = 10, CUPTI_FLUSH_FORCED = 1 };

/* How every record of a kernel begins: CUpti_ActivityKernel5, 8 and 9 of CUPTI 12.9, 10 of 13.0 and
 * 13 of 13.5 have these fields at the same places. */
struct kernel_record {
    uint32_t kind, before_start[3];
    uint64_t start, end;
    uint32_t before_name[18];
    const char *name;
};
_Static_assert(offsetof(struct kernel_record, start) == 16, "as in CUPTI");
_Static_assert(offsetof(struct kernel_record, end) == 24, "as in CUPTI");
_Static_assert(offsetof(struct kernel_record, name) == 104, "as in CUPTI");

typedef void request_function(uint8_t **buffer, size_t *nbytes, size_t *most);
typedef void complete_function(void *context, uint32_t stream, uint8_t *buffer, size_t nbytes,
                               size_t valid_nbytes);

static struct {
    int (*set_callbacks)(request_function *, complete_function *);
    int (*enable)(int kind), (*disable)(int kind);
    int (*flush)(uint32_t flags);
    int (*next)(uint8_t *buffer, size_t valid_nbytes, struct kernel_record **record);
    int (*dropped)(void *context, uint32_t stream, size_t *count);
    int (*describe)(int result, const char **text);
} cupti_calls;

__attribute__((format(printf, 2, 3))) static int say(char *message, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, MESSAGE_NBYTES, format, arguments);
    va_end(arguments);
    return -1;
}

static const char NO_RECORDS[] =
    "CUPTI does not record kernels, as where there is no NVIDIA GPU or its driver is too old";

static int say_result(char *message, const char *what, int result) {
    const char *text = NULL;
    if (cupti_calls.describe(result, &text) || !text) text = "an error without a name";
    return say(message, "%s: %s (%d)", what, text, result);
}

/* ---- What is collected ----------------------------------------------------------------------- */

/* Two thousand records, of 248 bytes each in CUPTI 13.5. */
enum { BUFFER_NBYTES = 1 << 19 };

struct list {
    struct kernel_time *times;
    size_t count, most;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list collected, taken;
static const char *failure; /* of a callback, which has no one to tell */
static char **names;
static size_t nnames;

/* Names are few, and the newest are the likeliest. */
static const char *keep_name(const char *name) {
    char *copy, **more;
    for (size_t i = nnames; i-- > 0;) {
        if (strcmp(names[i], name) == 0) return names[i];
    }
    more = realloc(names, (nnames + 1) * sizeof *names);
    if (!more) return NULL;
    names = more;
    copy = strdup(name);
    if (copy) names[nnames++] = copy;
    return copy;
}

static const char *collect(const struct kernel_record *record) {
    struct kernel_time time = {record->start, record->end, NULL};

    if (time.start == 0 || time.end < time.start)
        return "CUPTI has no times of a kernel, or lays out its records in an unknown way";
    time.name = keep_name(record->name ? record->name : "");
    if (collected.count == collected.most) {
        size_t most = collected.most ? 2 * collected.most : 1024;
        struct kernel_time *times = realloc(collected.times, most * sizeof *times);
        if (!times) return "there is no memory for the times of kernels";
        collected.times = times;
        collected.most = most;
    }
    if (!time.name) return "there is no memory for the names of kernels";
    collected.times[collected.count++] = time;
    return NULL;
}

static void give_buffer(uint8_t **buffer, size_t *nbytes, size_t *most) {
    *buffer = calloc(BUFFER_NBYTES, 1);
    *nbytes = *buffer ? BUFFER_NBYTES : 0;
    *most = 0; /* as many as fit */
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t nbytes,
                        size_t valid_nbytes) {
    struct kernel_record *record = NULL;
    const char *wrong = NULL;
    size_t ndropped = 0;
    int result = 0;

    (void)nbytes;
    pthread_mutex_lock(&lock);
    while (!wrong && buffer && valid_nbytes > 0 &&
           (result = cupti_calls.next(buffer, valid_nbytes, &record)) == 0) {
        if (record->kind == CUPTI_CONCURRENT_KERNEL) wrong = collect(record);
    }
    if (!wrong && result && result != CUPTI_LIMIT_REACHED)
        wrong = "CUPTI gave a buffer that it cannot read itself";
    if (!wrong && cupti_calls.dropped(context, stream, &ndropped) == 0 && ndropped > 0)
        wrong = "CUPTI dropped the times of some kernels";
    if (wrong && !failure) failure = wrong;
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static int is_loaded;

static int load(const char *cupti, char *message) {
    struct {
        const char *name;
        void **function;
    } wanted[] = {
        {"cuptiActivityRegisterCallbacks", (void **)&cupti_calls.set_callbacks},
        {"cuptiActivityEnable", (void **)&cupti_calls.enable},
        {"cuptiActivityDisable", (void **)&cupti_calls.disable},
        {"cuptiActivityFlushAll", (void **)&cupti_calls.flush},
        {"cuptiActivityGetNextRecord", (void **)&cupti_calls.next},
        {"cuptiActivityGetNumDroppedRecords", (void **)&cupti_calls.dropped},
        {"cuptiGetResultString", (void **)&cupti_calls.describe},
    };
    void *library;
    int result;

    if (is_loaded) return 0;
    library = dlopen(cupti, RTLD_NOW | RTLD_LOCAL);
    if (!library) return say(message, "NVIDIA's CUPTI cannot be loaded: %s", dlerror());
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].function = dlsym(library, wanted[i].name);
        if (!*wanted[i].function) {
            say(message, "%s is not NVIDIA's CUPTI: it has no %s", cupti, wanted[i].name);
            dlclose(library);
            return -1;
        }
    }
    result = cupti_calls.set_callbacks(give_buffer, take_buffer);
    if (result) return say_result(message, NO_RECORDS, result);
    is_loaded = 1;
    return 0;
}

int kernel_times_start(const char *cupti, char message[MESSAGE_NBYTES]) {
    const struct kernel_time *times;
    size_t count;
    int result;

    if (load(cupti, message)) return -1;
    result = cupti_calls.enable(CUPTI_CONCURRENT_KERNEL);
    if (result) return say_result(message, NO_RECORDS, result);
    return kernel_times_take(&times, &count, message);
}

static int compare_starts(const void *left, const void *right) {
    const struct kernel_time *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

int kernel_times_take(const struct kernel_time **times, size_t *count,
                      char message[MESSAGE_NBYTES]) {
    struct list before;
    const char *wrong;
    int result;

    *times = NULL;
    *count = 0;
    if (!is_loaded) return say(message, "recording has not been started");
    result = cupti_calls.flush(CUPTI_FLUSH_FORCED);
    pthread_mutex_lock(&lock);
    before = taken;
    taken = collected;
    collected = before;
    collected.count = 0;
    wrong = failure;
    failure = NULL;
    pthread_mutex_unlock(&lock);
    if (result) return say_result(message, "CUPTI does not hand over its records", result);
    if (wrong) return say(message, "%s", wrong);
    if (taken.count) qsort(taken.times, taken.count, sizeof *taken.times, compare_starts);
    *times = taken.times;
    *count = taken.count;
    return 0;
}

int kernel_times_stop(char message[MESSAGE_NBYTES]) {
    int result;

    if (!is_loaded) return say(message, "recording has not been started");
    result = cupti_calls.disable(CUPTI_CONCURRENT_KERNEL);
    return result ? say_result(message, "CUPTI does not end recording", result) : 0;
}
