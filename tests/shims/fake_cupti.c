/* fake_cupti.c - stands for NVIDIA's CUPTI where there is no GPU: hands over, in the layout of
 * CUPTI 13.5 and from a thread of its own, the kernels that the test says have run. Their names are
 * gone once they were handed over.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK, LIMIT_REACHED = 12, FAILED = 999 };
enum { KIND_MEMCPY = 1, KIND_CONCURRENT_KERNEL = 10, FLUSH_FORCED = 1 };

struct record {
    uint32_t kind, before_start[3];
    uint64_t start, end;
    uint32_t before_name[18];
    const char *name;
    char after_name[136];
};

static struct record *waiting;
static size_t nwaiting, ndropped;
static int is_enabled, enable_result;
static void (*give)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);

/* ---- For the test ---------------------------------------------------------------------------- */

/* A kernel, of which there is a record if recording is on, and a copy before it. */
EXPORT void fake_launch(const char *name, uint64_t start, uint64_t end) {
    struct record *r;
    if (!is_enabled) return;
    waiting = realloc(waiting, (nwaiting + 2) * sizeof *waiting);
    r = waiting + nwaiting;
    nwaiting += 2;
    memset(r, 0xA5, 2 * sizeof *r);
    r[0].kind = KIND_MEMCPY;
    r[1].kind = KIND_CONCURRENT_KERNEL;
    r[1].start = start;
    r[1].end = end;
    r[1].name = name ? strdup(name) : NULL;
}

EXPORT void fake_drop(size_t count) {
    ndropped = count;
}

EXPORT void fake_fail_enable(int fails) {
    enable_result = fails ? FAILED : OK;
}

/* ---- CUPTI ----------------------------------------------------------------------------------- */

EXPORT int cuptiActivityRegisterCallbacks(void (*requested)(uint8_t **, size_t *, size_t *),
                                          void (*completed)(void *, uint32_t, uint8_t *, size_t,
                                                            size_t)) {
    give = requested;
    complete = completed;
    return OK;
}

EXPORT int cuptiActivityEnable(int kind) {
    if (enable_result || kind != KIND_CONCURRENT_KERNEL) return FAILED;
    is_enabled = 1;
    return OK;
}

EXPORT int cuptiActivityDisable(int kind) {
    if (!is_enabled || kind != KIND_CONCURRENT_KERNEL) return FAILED;
    is_enabled = 0;
    return OK;
}

static void *deliver(void *unused) {
    size_t done = 0;
    do {
        uint8_t *buffer = NULL;
        size_t nbytes = 0, most = 0, count;
        give(&buffer, &nbytes, &most);
        count = nbytes / sizeof *waiting;
        if (count > nwaiting - done) count = nwaiting - done;
        if (most && count > most) count = most;
        if (buffer && count) memcpy(buffer, waiting + done, count * sizeof *waiting);
        complete(NULL, 0, buffer, nbytes, count * sizeof *waiting);
        done += count;
    } while (done < nwaiting);
    for (size_t i = 0; i < nwaiting; i++) {
        if (waiting[i].kind == KIND_CONCURRENT_KERNEL) free((char *)waiting[i].name);
    }
    free(waiting);
    waiting = NULL;
    nwaiting = 0;
    return unused;
}

EXPORT int cuptiActivityFlushAll(uint32_t flags) {
    pthread_t thread;
    if (flags != FLUSH_FORCED || pthread_create(&thread, NULL, deliver, NULL)) return FAILED;
    pthread_join(thread, NULL);
    return OK;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_nbytes, void **record) {
    uint8_t *next = *record ? (uint8_t *)*record + sizeof *waiting : buffer;
    if (next >= buffer + valid_nbytes) return LIMIT_REACHED;
    *record = next;
    return OK;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
    (void)context;
    (void)stream;
    *count = ndropped;
    ndropped = 0;
    return OK;
}

EXPORT int cuptiGetResultString(int result, const char **text) {
    *text = "CUPTI_ERROR_UNKNOWN";
    return result == FAILED ? OK : FAILED;
}
