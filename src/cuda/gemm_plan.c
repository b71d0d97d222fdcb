#include "cuda/gemm_plan.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Of cuBLASLt's C interface, whose numbers and structures are the same in CUDA 12 and 13. */
enum {
    TYPE_FP32 = 0,  /* cudaDataType_t */
    TYPE_BF16 = 14, /* the same */
    COMPUTE_FP32 = 68,
    OPERATION_PLAIN = 0,
    OPERATION_TRANSPOSED = 1,
    POINTERS_ON_HOST = 0,
    PRODUCT_POINTERS = 2, /* cublasLtMatmulDescAttributes_t */
    PRODUCT_OPERATION_A = 3,
    PRODUCT_OPERATION_B = 4,
    PREFERENCE_WORKSPACE = 1, /* cublasLtMatmulPreferenceAttributes_t */
};

/* cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t. */
struct algorithm {
    uint64_t data[8];
};
struct answer {
    struct algorithm algorithm;
    size_t workspace_nbytes;
    int status;
    float nwaves;
    int reserved[4];
};

struct cublaslt {
    void *library;
    int (*create)(void **), (*destroy)(void *);
    int (*product_create)(void **, int, int), (*product_destroy)(void *);
    int (*product_set)(void *, int, const void *, size_t);
    int (*layout_create)(void **, int, uint64_t, uint64_t, int64_t), (*layout_destroy)(void *);
    int (*preference_create)(void **), (*preference_destroy)(void *);
    int (*preference_set)(void *, int, const void *, size_t);
    int (*ask)(void *, void *, void *, void *, void *, void *, void *, int, struct answer *, int *);
    int (*get)(const struct algorithm *, int, void *, size_t, size_t *);
};

/* The table of answers is emptied when it is this full: of a model's products only m varies. */
enum { NENTRIES = 1024, NENTRIES_MOST = 768 };

struct entry {
    int m, n, k; /* m is 0 where there is none */
    struct gemm_plan plan;
};

struct gemm_planner {
    struct cublaslt lt;
    int major;
    pthread_mutex_t lock; /* of what follows, and of the library's objects */
    void *handle;
    int nentries;
    struct entry entries[NENTRIES];
};

/* ---- Library --------------------------------------------------------------------------------- */

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

enum { NNAMES = sizeof names / sizeof *names };

/* A handle of libmlx finds what is in the libraries that it is linked to, and in these first: so
 * another cuBLASLt in this process, such as another framework's, is not taken for MLX's. */
static void *open_mlx(const char *folder) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/libmlx.so", folder);
    void *library = NULL;

    if (n > 0 && (size_t)n < sizeof path) library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library && !dlsym(library, "cublasLtCreate")) {
        dlclose(library);
        return NULL;
    }
    return library;
}

/* Where the wheels that MLX's wheel needs put it, seen from site-packages/mlx/lib. */
static void *open_wheel(const char *folder) {
    static const char *const folders[NNAMES] = {"nvidia/cu13/lib", "nvidia/cublas/lib"};

    for (int i = 0; i < NNAMES; i++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/../../%s/%s", folder, folders[i], names[i]);
        void *library = NULL;
        if (n > 0 && (size_t)n < sizeof path) library = dlopen(path, RTLD_LAZY);
        if (library) return library;
    }
    return NULL;
}

static void *open_named(int mode) {
    for (int i = 0; i < NNAMES; i++) {
        void *library = dlopen(names[i], mode);
        if (library) return library;
    }
    return NULL;
}

static void *open_library(const char *mlx_folder) {
    void *library = mlx_folder ? open_mlx(mlx_folder) : NULL;

    if (!library) library = open_named(RTLD_LAZY | RTLD_NOLOAD);
    if (!library && mlx_folder) library = open_wheel(mlx_folder);
    if (!library) library = open_named(RTLD_LAZY);
    return library;
}

static int find_functions(struct cublaslt *lt, char message[GPU_MESSAGE_NBYTES]) {
    struct {
        const char *name;
        void **function;
    } wanted[] = {
        {"cublasLtCreate", (void **)&lt->create},
        {"cublasLtDestroy", (void **)&lt->destroy},
        {"cublasLtMatmulDescCreate", (void **)&lt->product_create},
        {"cublasLtMatmulDescDestroy", (void **)&lt->product_destroy},
        {"cublasLtMatmulDescSetAttribute", (void **)&lt->product_set},
        {"cublasLtMatrixLayoutCreate", (void **)&lt->layout_create},
        {"cublasLtMatrixLayoutDestroy", (void **)&lt->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", (void **)&lt->preference_create},
        {"cublasLtMatmulPreferenceDestroy", (void **)&lt->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", (void **)&lt->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", (void **)&lt->ask},
        {"cublasLtMatmulAlgoConfigGetAttribute", (void **)&lt->get},
    };

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].function = dlsym(lt->library, wanted[i].name);
        if (!*wanted[i].function) {
            snprintf(message, GPU_MESSAGE_NBYTES, "the cuBLASLt of this process has no %s",
                     wanted[i].name);
            return -1;
        }
    }
    return 0;
}

int gemm_planner_open(const char *mlx_folder, int major, struct gemm_planner **planner,
                      char message[GPU_MESSAGE_NBYTES]) {
    struct gemm_planner *p = calloc(1, sizeof *p);

    *planner = NULL;
    if (!p) {
        snprintf(message, GPU_MESSAGE_NBYTES, "out of memory");
        return -1;
    }
    p->major = major;
    p->lt.library = open_library(mlx_folder);
    if (!p->lt.library) {
        snprintf(message, GPU_MESSAGE_NBYTES, "cuBLASLt is not there (%s or .12)", names[0]);
    } else if (find_functions(&p->lt, message)) {
        dlclose(p->lt.library);
    } else if (pthread_mutex_init(&p->lock, NULL)) {
        snprintf(message, GPU_MESSAGE_NBYTES, "the system makes no mutex");
        dlclose(p->lt.library);
    } else {
        *planner = p;
        return 0;
    }
    free(p);
    return -1;
}

void gemm_planner_close(struct gemm_planner *planner) {
    if (!planner) return;
    if (planner->handle) planner->lt.destroy(planner->handle);
    pthread_mutex_destroy(&planner->lock);
    dlclose(planner->lt.library);
    free(planner);
}

/* ---- Question --------------------------------------------------------------------------------
 * cuBLASLt's matrices are stored by columns, so that a row-contiguous W [n, k] is its k x n, and
 * y^T = W x^T is what it computes: its A is W transposed, its B is x, its C and D are y.
 */

struct question {
    void *product, *w, *x, *y, *preference;
};

/* What was created is in *object; where nothing was, NULL. */
static int create_layout(const struct cublaslt *lt, int nrows, int ncols, void **object) {
    int status = lt->layout_create(object, TYPE_BF16, (uint64_t)nrows, (uint64_t)ncols, nrows);
    if (status) *object = NULL;
    return status;
}

/* Returns 0, or the status of the call that failed and its name. */
static int describe_product(const struct cublaslt *lt, void **product, const char **call) {
    const struct {
        int attribute;
        int32_t value;
    } wanted[] = {
        {PRODUCT_POINTERS, POINTERS_ON_HOST},
        {PRODUCT_OPERATION_A, OPERATION_TRANSPOSED},
        {PRODUCT_OPERATION_B, OPERATION_PLAIN},
    };
    int status = lt->product_create(product, COMPUTE_FP32, TYPE_FP32);

    *call = "cublasLtMatmulDescCreate";
    if (status) *product = NULL;
    for (size_t i = 0; !status && i < sizeof wanted / sizeof *wanted; i++) {
        *call = "cublasLtMatmulDescSetAttribute";
        status = lt->product_set(*product, wanted[i].attribute, &wanted[i].value,
                                 sizeof wanted[i].value);
    }
    return status;
}

/* The workspace that NVIDIA recommends, of which MLX lets cuBLASLt use all. */
static int describe_preference(const struct cublaslt *lt, int major, void **preference,
                               const char **call) {
    const uint64_t nbytes = (uint64_t)(major >= 9 ? 32 : 4) << 20;
    int status = lt->preference_create(preference);

    *call = "cublasLtMatmulPreferenceCreate";
    if (status) {
        *preference = NULL;
        return status;
    }
    *call = "cublasLtMatmulPreferenceSetAttribute";
    return lt->preference_set(*preference, PREFERENCE_WORKSPACE, &nbytes, sizeof nbytes);
}

static int describe(const struct gemm_planner *p, int m, int n, int k, struct question *q,
                    const char **call) {
    int status = describe_product(&p->lt, &q->product, call);

    if (status) return status;
    *call = "cublasLtMatrixLayoutCreate";
    status = create_layout(&p->lt, k, n, &q->w);
    if (!status) status = create_layout(&p->lt, k, m, &q->x);
    if (!status) status = create_layout(&p->lt, n, m, &q->y);
    return status ? status : describe_preference(&p->lt, p->major, &q->preference, call);
}

/* A status of these is no reason to refuse the answer. */
static void destroy(const struct cublaslt *lt, const struct question *q) {
    if (q->preference) lt->preference_destroy(q->preference);
    if (q->y) lt->layout_destroy(q->y);
    if (q->x) lt->layout_destroy(q->x);
    if (q->w) lt->layout_destroy(q->w);
    if (q->product) lt->product_destroy(q->product);
}

/* ---- Answer ---------------------------------------------------------------------------------- */

static int read_plan(const struct cublaslt *lt, const struct answer *answer, struct gemm_plan *plan,
                     const char **call) {
    /* By number in cublasLtMatmulAlgoConfigAttributes_t; the last two are of 16 bits. */
    int *const values[] = {&plan->algorithm, &plan->tile,        &plan->nsplits,
                           &plan->reduction, &plan->swizzle,     &plan->custom,
                           &plan->stages,    &plan->inner_shape, &plan->cluster_shape};

    *call = "cublasLtMatmulAlgoConfigGetAttribute";
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++) {
        int32_t wide = 0;
        uint16_t narrow = 0;
        size_t nbytes = 0;
        int status = i < 7 ? lt->get(&answer->algorithm, i, &wide, sizeof wide, &nbytes)
                           : lt->get(&answer->algorithm, i, &narrow, sizeof narrow, &nbytes);
        if (status) return status;
        *values[i] = i < 7 ? wide : narrow;
    }
    plan->workspace_nbytes = answer->workspace_nbytes;
    return 0;
}

static int ask(struct gemm_planner *p, int m, int n, int k, struct gemm_plan *plan,
               char message[GPU_MESSAGE_NBYTES]) {
    struct question q = {0};
    struct answer answer = {0};
    const char *call = NULL;
    int nanswers = 0, status = describe(p, m, n, k, &q, &call);

    if (!status) {
        call = "cublasLtMatmulAlgoGetHeuristic";
        status = p->lt.ask(p->handle, q.product, q.w, q.x, q.y, q.y, q.preference, 1, &answer,
                           &nanswers);
    }
    if (!status && nanswers > 0) status = answer.status;
    if (!status && nanswers > 0) status = read_plan(&p->lt, &answer, plan, &call);
    destroy(&p->lt, &q);
    if (status) {
        snprintf(message, GPU_MESSAGE_NBYTES, "%s: status %d for x [%d, %d], W [%d, %d]", call,
                 status, m, k, n, k);
        return -1;
    }
    if (nanswers < 1) {
        snprintf(message, GPU_MESSAGE_NBYTES, "cuBLASLt has no plan for x [%d, %d], W [%d, %d]", m,
                 k, n, k);
        return -1;
    }
    return 0;
}

/* ---- What was asked before ------------------------------------------------------------------- */

/* Its entry, or the free one where it belongs. */
static struct entry *find_entry(struct gemm_planner *p, int m, int n, int k) {
    uint32_t hash = (uint32_t)m * 0x9e3779b1u ^ (uint32_t)n * 0x85ebca77u;
    hash = (hash ^ hash >> 15 ^ (uint32_t)k) * 0xc2b2ae3du;
    size_t i = hash >> 22; /* 10 bits */

    while (p->entries[i].m &&
           (p->entries[i].m != m || p->entries[i].n != n || p->entries[i].k != k))
        i = (i + 1) % NENTRIES;
    return &p->entries[i];
}

static void remember(struct gemm_planner *p, int m, int n, int k, const struct gemm_plan *plan) {
    if (p->nentries == NENTRIES_MOST) {
        for (int i = 0; i < NENTRIES; i++)
            p->entries[i].m = 0;
        p->nentries = 0;
    }
    *find_entry(p, m, n, k) = (struct entry){m, n, k, *plan};
    p->nentries++;
}

static int create_handle(struct gemm_planner *p, char message[GPU_MESSAGE_NBYTES]) {
    int status = p->handle ? 0 : p->lt.create(&p->handle);

    if (!status) return 0;
    p->handle = NULL;
    snprintf(message, GPU_MESSAGE_NBYTES,
             "cublasLtCreate: status %d; cuBLASLt needs an NVIDIA GPU and a driver that fits it",
             status);
    return -1;
}

int gemm_planner_ask(struct gemm_planner *planner, int m, int n, int k, struct gemm_plan *plan,
                     char message[GPU_MESSAGE_NBYTES]) {
    struct gemm_plan asked = {0};
    int status = 0;

    if (m < 1 || n < 1 || k < 1) {
        snprintf(message, GPU_MESSAGE_NBYTES, "x [%d, %d] and W [%d, %d] make no product", m, k, n,
                 k);
        return -1;
    }
    pthread_mutex_lock(&planner->lock);
    const struct entry *known = find_entry(planner, m, n, k);
    if (known->m) {
        asked = known->plan;
    } else {
        status = create_handle(planner, message);
        if (!status) status = ask(planner, m, n, k, &asked, message);
        if (!status) remember(planner, m, n, k, &asked);
    }
    pthread_mutex_unlock(&planner->lock);
    if (!status) *plan = asked;
    return status;
}
