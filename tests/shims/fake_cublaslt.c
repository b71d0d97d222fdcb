/* fake_cublaslt.c - stands for cuBLASLt where there is no GPU: keeps what it is told and gives the
 * plan that the test wants. Types, attributes and their sizes are those of NVIDIA's documentation.
 * Beside what fake.h says:
 *
 * FAKE_CUBLASLT_PLAN    algorithm tile nsplits reduction swizzle custom stages inner_shape
 *                       cluster_shape workspace_nbytes; without it as many zeros
 * FAKE_CUBLASLT_NONE    the heuristic finds no plan
 * FAKE_CUBLASLT_STATE   the status of the plan that it finds
 *
 * With FAKE_MLX defined it is a libmlx instead, which is linked to this library; with
 * FAKE_INCOMPLETE one function is missing.
 */
#ifdef FAKE_MLX

int cublasLtCreate(void **handle);

__attribute__((visibility("default"))) int fake_mlx(void **handle) {
    return cublasLtCreate(handle);
}

#else

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "fake.h"

enum { OK, INVALID = 7, FAILED = 14 };
enum { NATTRIBUTES = 9 };

struct algorithm {
    uint64_t magic, values[7];
};
struct answer {
    struct algorithm algorithm;
    size_t workspace_nbytes;
    int status;
    float nwaves;
    int reserved[4];
};

static int values[NATTRIBUTES];

/* ---- Objects --------------------------------------------------------------------------------- */

static int set(const char *function, void *object, char kind, int attribute, const void *bytes,
               size_t nbytes) {
    struct object *found = check(object, kind);
    int64_t value = 0;
    int32_t narrow = 0;

    if (fails(function)) return FAILED;
    if (!found || (nbytes != sizeof narrow && nbytes != sizeof value)) return INVALID;
    memcpy(nbytes == sizeof narrow ? (void *)&narrow : (void *)&value, bytes, nbytes);
    if (nbytes == sizeof narrow) value = narrow;
    size_t length = strlen(found->text);
    snprintf(found->text + length, sizeof found->text - length, " %d=%lld/%zu", attribute,
             (long long)value, nbytes);
    return OK;
}

EXPORT int cublasLtCreate(void **handle);
EXPORT int cublasLtCreate(void **handle) {
    Dl_info info;
    int status = create(__func__, handle, 'H', "") ? FAILED : OK;

    if (!dladdr(log_text, &info)) abort();
    write_log("handle %s\n", info.dli_fname);
    return status;
}

EXPORT int cublasLtDestroy(void *handle);
EXPORT int cublasLtDestroy(void *handle) {
    return destroy(__func__, handle, 'H') ? FAILED : OK;
}

EXPORT int cublasLtMatmulDescCreate(void **product, int compute, int scale);
EXPORT int cublasLtMatmulDescCreate(void **product, int compute, int scale) {
    char text[64];
    snprintf(text, sizeof text, "compute %d scale %d", compute, scale);
    return create(__func__, product, 'P', text) ? FAILED : OK;
}

EXPORT int cublasLtMatmulDescDestroy(void *product);
EXPORT int cublasLtMatmulDescDestroy(void *product) {
    return destroy(__func__, product, 'P') ? FAILED : OK;
}

EXPORT int cublasLtMatmulDescSetAttribute(void *product, int attribute, const void *bytes,
                                          size_t nbytes);
EXPORT int cublasLtMatmulDescSetAttribute(void *product, int attribute, const void *bytes,
                                          size_t nbytes) {
    return set(__func__, product, 'P', attribute, bytes, nbytes);
}

EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t nrows, uint64_t ncols,
                                      int64_t ld);
EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t nrows, uint64_t ncols,
                                      int64_t ld) {
    char text[100];
    snprintf(text, sizeof text, "type %d %llu x %llu ld %lld", type, (unsigned long long)nrows,
             (unsigned long long)ncols, (long long)ld);
    return create(__func__, layout, 'L', text) ? FAILED : OK;
}

EXPORT int cublasLtMatrixLayoutDestroy(void *layout);
EXPORT int cublasLtMatrixLayoutDestroy(void *layout) {
    return destroy(__func__, layout, 'L') ? FAILED : OK;
}

EXPORT int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *bytes,
                                            size_t nbytes);
EXPORT int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *bytes,
                                            size_t nbytes) {
    return set(__func__, layout, 'L', attribute, bytes, nbytes);
}

EXPORT int cublasLtMatmulPreferenceCreate(void **preference);
EXPORT int cublasLtMatmulPreferenceCreate(void **preference) {
    return create(__func__, preference, 'W', "preference") ? FAILED : OK;
}

EXPORT int cublasLtMatmulPreferenceDestroy(void *preference);
EXPORT int cublasLtMatmulPreferenceDestroy(void *preference) {
    return destroy(__func__, preference, 'W') ? FAILED : OK;
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *bytes,
                                                size_t nbytes);
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *bytes,
                                                size_t nbytes) {
    return set(__func__, preference, 'W', attribute, bytes, nbytes);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static const char *describe(void *object, char kind) {
    const struct object *found = check(object, kind);
    return found ? found->text : "?";
}

/* The plan's algorithm leads to the values as NVIDIA's does: through the other function alone. */
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a, void *b, void *c,
                                          void *d, void *preference, int nwanted,
                                          struct answer *answers, int *nanswers);
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a, void *b, void *c,
                                          void *d, void *preference, int nwanted,
                                          struct answer *answers, int *nanswers) {
    const char *plan = getenv("FAKE_CUBLASLT_PLAN"), *state = getenv("FAKE_CUBLASLT_STATE");

    check(handle, 'H');
    write_log("%s; A %s; B %s; C %s; D %s; ", describe(product, 'P'), describe(a, 'L'),
              describe(b, 'L'), describe(c, 'L'), describe(d, 'L'));
    write_log("%s; %d\n", describe(preference, 'W'), nwanted);
    if (fails(__func__)) return FAILED;
    *nanswers = getenv("FAKE_CUBLASLT_NONE") ? 0 : 1;
    if (*nanswers == 0) return OK;
    memset(answers, 0, sizeof *answers);
    memset(values, 0, sizeof values);
    answers->algorithm.magic = 0x616c676f;
    answers->status = state ? atoi(state) : OK;
    if (plan) {
        char *rest = (char *)plan;
        for (int i = 0; i < NATTRIBUTES; i++)
            values[i] = (int)strtol(rest, &rest, 10);
        answers->workspace_nbytes = strtoul(rest, &rest, 10);
    }
    return OK;
}

#ifndef FAKE_INCOMPLETE
EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const struct algorithm *algorithm, int attribute,
                                                void *bytes, size_t nbytes, size_t *nwritten);
EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const struct algorithm *algorithm, int attribute,
                                                void *bytes, size_t nbytes, size_t *nwritten) {
    size_t expected = attribute < 7 ? sizeof(int32_t) : sizeof(uint16_t);

    if (fails(__func__)) return FAILED;
    if (algorithm->magic != 0x616c676f || attribute < 0 || attribute >= NATTRIBUTES ||
        nbytes != expected) {
        write_log("not an attribute of an algorithm\n");
        return INVALID;
    }
    uint16_t narrow = (uint16_t)values[attribute];
    memcpy(bytes, attribute < 7 ? (void *)&values[attribute] : (void *)&narrow, nbytes);
    *nwritten = nbytes;
    return OK;
}
#endif

#endif
