/* test_gemm_plan.c - which cuBLASLt is asked, what, how often, and what becomes of its answers and
 * failures. tests/shims/fake_cublaslt.c stands for it; this program finds libraries by name in
 * BY_NAME alone, where files that are no libraries hide the system's.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/gemm_plan.h"
#include "tree.h"

#include <cmocka.h>

#define NAME_13 "libcublasLt.so.13"
#define NAME_12 "libcublasLt.so.12"
/* Seen from site-packages. */
#define WHEEL_13 "mlx/lib/../../nvidia/cu13/lib/" NAME_13
#define WHEEL_12 "mlx/lib/../../nvidia/cublas/lib/" NAME_12

static char message[GPU_MESSAGE_NBYTES];

/* ---- Libraries -------------------------------------------------------------------------------
 */

struct fake {
    void *library;
    const char *(*log)(void);
    void (*reset)(void);
    int (*ncalls)(void), (*nlive)(void);
};

static struct fake load(const char *path, int mode) {
    struct fake loaded = {.library = dlopen(path, RTLD_NOW | mode)};
    if (!loaded.library) fail_msg("%s", dlerror());
    *(void **)&loaded.log = dlsym(loaded.library, "fake_cublaslt_log");
    *(void **)&loaded.reset = dlsym(loaded.library, "fake_cublaslt_reset");
    *(void **)&loaded.ncalls = dlsym(loaded.library, "fake_cublaslt_ncalls");
    *(void **)&loaded.nlive = dlsym(loaded.library, "fake_cublaslt_nlive");
    return loaded;
}

static bool is_loaded(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (library) dlclose(library);
    return library != NULL;
}

/* What is found by that name: a library, or NULL for none. */
static void put_by_name(const char *name, const char *target) {
    unlink(tree_path(BY_NAME, name));
    if (target)
        tree_link(BY_NAME, name, target);
    else
        tree_put(BY_NAME, name, "This is no library, and the search for one ends here. ........");
}

static int hide_libraries(void **state) {
    (void)state;
    put_by_name(NAME_13, NULL);
    put_by_name(NAME_12, NULL);
    strcpy(message, "nothing was said");
    return 0;
}

/* No test leaves a library to the next. */
static int check_unloaded(void **state) {
    (void)state;
    return is_loaded(NAME_13) || is_loaded(NAME_12);
}

static struct gemm_planner *open_planner(const char *mlx_folder, int major) {
    struct gemm_planner *opened = NULL;
    if (gemm_planner_open(mlx_folder, major, &opened, message)) fail_msg("%s", message);
    assert_non_null(opened);
    return opened;
}

static void refuse_to_open(const char *mlx_folder, const char *expected) {
    struct gemm_planner *opened = (void *)message;
    assert_int_equal(gemm_planner_open(mlx_folder, 9, &opened, message), -1);
    assert_null(opened);
    assert_string_equal(message, expected);
}

/* The library at `path` is the one that a planner asks. */
static void check_asks(const char *mlx_folder, const char *path) {
    struct gemm_planner *opened = open_planner(mlx_folder, 9);
    struct fake asked = load(path, RTLD_NOLOAD);
    struct gemm_plan plan;
    char expected[4200];

    asked.reset();
    snprintf(expected, sizeof expected, "handle %s\n", path);
    assert_int_equal(gemm_planner_ask(opened, 2, 3, 4, &plan, message), 0);
    assert_memory_equal(asked.log(), expected, strlen(expected));
    gemm_planner_close(opened);
    assert_int_equal(asked.nlive(), 0);
    dlclose(asked.library);
}

/* What looks like site-packages; *folder is where libmlx would be. */
static char *make_site(char folder[4096]) {
    char *site = tree_make();
    snprintf(folder, 4096, "%s", tree_path(site, "mlx/lib"));
    tree_mkdir(site, "mlx/lib");
    tree_mkdir(site, "nvidia/cu13/lib");
    tree_mkdir(site, "nvidia/cublas/lib");
    return site;
}

static void test_no_library(void **state) {
    static const char expected[] = "cuBLASLt is not there (libcublasLt.so.13 or .12)";
    char folder[4096], *site = make_site(folder), endless[5000] = "";
    (void)state;
    refuse_to_open(NULL, expected);
    refuse_to_open(folder, expected);
    refuse_to_open("/no/such/folder", expected);
    memset(endless, '/', sizeof endless - 1);
    refuse_to_open(endless, expected);
    tree_remove(site);
}

static void test_incomplete_library(void **state) {
    (void)state;
    put_by_name(NAME_13, FAKE_INCOMPLETE);
    refuse_to_open(NULL,
                   "the cuBLASLt of this process has no cublasLtMatmulAlgoConfigGetAttribute");
}

static void test_finds_by_name(void **state) {
    (void)state;
    put_by_name(NAME_12, FAKE_12);
    check_asks(NULL, BY_NAME "/" NAME_12);
    put_by_name(NAME_13, FAKE_13);
    check_asks(NULL, BY_NAME "/" NAME_13);
}

/* The wheel's, as MLX would load it, even if the system has one. */
static void test_finds_in_wheels(void **state) {
    char folder[4096], *site = make_site(folder);
    (void)state;
    put_by_name(NAME_13, FAKE_13);
    check_asks(folder, BY_NAME "/" NAME_13);
    tree_link(site, "nvidia/cublas/lib/" NAME_12, FAKE_12);
    check_asks(folder, tree_path(site, WHEEL_12));
    tree_link(site, "nvidia/cu13/lib/" NAME_13, FAKE_13);
    check_asks(folder, tree_path(site, WHEEL_13));
    tree_remove(site);
}

static void test_prefers_loaded(void **state) {
    char folder[4096], *site = make_site(folder);
    (void)state;
    tree_link(site, "nvidia/cu13/lib/" NAME_13, FAKE_13);
    put_by_name(NAME_13, FAKE_13);
    struct fake older = load(FAKE_12, 0);
    check_asks(folder, FAKE_12);
    check_asks(NULL, FAKE_12);
    struct fake newer = load(FAKE_13, 0);
    check_asks(folder, FAKE_13);
    dlclose(newer.library);
    dlclose(older.library);
    tree_remove(site);
}

/* Another framework has loaded the newer one. */
static void test_prefers_that_of_mlx(void **state) {
    (void)state;
    struct fake other = load(FAKE_13, 0);
    check_asks(FAKE_MLX_FOLDER, FAKE_13); /* MLX is not loaded */
    void *mlx = dlopen(FAKE_MLX_FOLDER "/libmlx.so", RTLD_NOW);
    if (!mlx) fail_msg("%s", dlerror());
    check_asks(FAKE_MLX_FOLDER, FAKE_12);
    check_asks(NULL, FAKE_13);
    dlclose(mlx);
    dlclose(other.library);
}

/* ---- Questions -------------------------------------------------------------------------------
 * From here on a library is loaded, and a planner for compute capability 9 knows nothing yet.
 */

static struct fake fake;
static struct gemm_planner *planner;

static void forget_answers(void) {
    static const char *const variables[] = {"FAKE_CUBLASLT_PLAN", "FAKE_CUBLASLT_FAIL",
                                            "FAKE_CUBLASLT_NONE", "FAKE_CUBLASLT_STATE"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

static int set_up(void **state) {
    hide_libraries(state);
    forget_answers();
    fake = load(FAKE_13, 0);
    planner = open_planner(NULL, 9);
    fake.reset();
    return 0;
}

/* Nothing is left, and nothing was used that was not there. */
static int tear_down(void **state) {
    forget_answers();
    gemm_planner_close(planner);
    int status = fake.nlive() > 0 || strstr(fake.log(), "not a");
    dlclose(fake.library);
    return status || check_unloaded(state);
}

static int ask(int m, int n, int k, struct gemm_plan *plan) {
    return gemm_planner_ask(planner, m, n, k, plan, message);
}

static void refuse(int m, int n, int k, const char *expected) {
    struct gemm_plan plan = {.algorithm = 1234};
    assert_int_equal(ask(m, n, k, &plan), -1);
    assert_string_equal(message, expected);
    assert_int_equal(plan.algorithm, 1234);
}

/* The line of the log for one question: 32 MiB of workspace from compute capability 9 on. */
static const char *line_of(int m, int n, int k, int major) {
    static char line[500];
    snprintf(line, sizeof line,
             "compute 68 scale 0 2=0/4 3=1/4 4=0/4; A type 14 %d x %d ld %d; "
             "B type 14 %d x %d ld %d; C type 14 %d x %d ld %d; D type 14 %d x %d ld %d; "
             "preference 1=%d/8; 1\n",
             k, n, k, k, m, k, n, m, n, n, m, n, major >= 9 ? 33554432 : 4194304);
    return line;
}

static void test_questions(void **state) {
    static const int majors[] = {7, 8, 9, 10, 12};
    static const int shapes[][3] = {{2, 4096, 4096}, {512, 14336, 4096}, {7, 1, 3}, {1, 2, 100}};
    (void)state;
    for (size_t g = 0; g < sizeof majors / sizeof *majors; g++) {
        gemm_planner_close(planner);
        planner = open_planner(NULL, majors[g]);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int *s = shapes[i];
            struct gemm_plan plan;
            fake.reset();
            assert_int_equal(ask(s[0], s[1], s[2], &plan), 0);
            const char *first = i == 0 ? "handle " FAKE_13 "\n" : "";
            assert_memory_equal(fake.log(), first, strlen(first));
            assert_string_equal(fake.log() + strlen(first), line_of(s[0], s[1], s[2], majors[g]));
            assert_int_equal(fake.nlive(), 1); /* the handle */
        }
    }
}

static void test_no_product(void **state) {
    (void)state;
    refuse(0, 1, 2, "x [0, 2] and W [1, 2] make no product");
    refuse(1, 0, 2, "x [1, 2] and W [0, 2] make no product");
    refuse(1, 2, 0, "x [1, 0] and W [2, 0] make no product");
    refuse(-1, 2, 3, "x [-1, 3] and W [2, 3] make no product");
    assert_int_equal(fake.ncalls(), 0);
    gemm_planner_close(NULL);
}

/* ---- Answers ---------------------------------------------------------------------------------
 */

static void check_plan(const struct gemm_plan *p, const int values[9], size_t workspace_nbytes) {
    const int got[9] = {p->algorithm, p->tile,   p->nsplits,     p->reduction,    p->swizzle,
                        p->custom,    p->stages, p->inner_shape, p->cluster_shape};
    for (int i = 0; i < 9; i++)
        assert_int_equal(got[i], values[i]);
    assert_int_equal(p->workspace_nbytes, workspace_nbytes);
}

static void test_answers(void **state) {
    struct gemm_plan plan;
    (void)state;
    setenv("FAKE_CUBLASLT_PLAN", "66 20 3 2 1 5 35 7 65535 33554432", 1);
    assert_int_equal(ask(2, 4096, 4096, &plan), 0);
    check_plan(&plan, (const int[]){66, 20, 3, 2, 1, 5, 35, 7, 65535}, 33554432);
    setenv("FAKE_CUBLASLT_PLAN", "-1 2147483647 -2 4 0 0 0 0 0 5000000000", 1);
    assert_int_equal(ask(3, 4096, 4096, &plan), 0);
    check_plan(&plan, (const int[]){-1, 2147483647, -2, 4, 0, 0, 0, 0, 0}, 5000000000);
}

static void test_no_answer(void **state) {
    struct gemm_plan plan;
    (void)state;
    setenv("FAKE_CUBLASLT_NONE", "1", 1);
    refuse(5, 6, 7, "cuBLASLt has no plan for x [5, 7], W [6, 7]");
    unsetenv("FAKE_CUBLASLT_NONE");
    setenv("FAKE_CUBLASLT_STATE", "15", 1);
    refuse(5, 6, 7, "cublasLtMatmulAlgoGetHeuristic: status 15 for x [5, 7], W [6, 7]");
    assert_int_equal(fake.nlive(), 1);
    unsetenv("FAKE_CUBLASLT_STATE");
    assert_int_equal(ask(5, 6, 7, &plan), 0); /* a failure is not remembered */
}

/* Every call fails once, and what was made before is undone. */
static void test_failures(void **state) {
    enum { NCALLS = 25 };
    (void)state;
    setenv("FAKE_CUBLASLT_PLAN", "66 20 3 2 1 5 35 7 2 100", 1);
    for (int i = 1; i <= NCALLS; i++) {
        struct gemm_plan plan = {0};
        char text[200];
        gemm_planner_close(planner);
        planner = open_planner(NULL, 9);
        fake.reset();
        snprintf(text, sizeof text, "%d", i);
        setenv("FAKE_CUBLASLT_FAIL", text, 1);
        int status = ask(5, 6, 7, &plan);
        unsetenv("FAKE_CUBLASLT_FAIL");
        const char *end = strstr(fake.log(), " fails\n"), *name = end;
        assert_non_null(end);
        while (name > fake.log() && name[-1] != '\n')
            name--;
        assert_int_equal(fake.nlive(), i > 1);
        if (strstr(fake.log(), "Destroy fails\n")) { /* the answer stands */
            assert_int_equal(status, 0);
            assert_int_equal(fake.ncalls(), NCALLS);
        } else {
            assert_int_equal(status, -1);
            assert_int_equal(plan.algorithm, 0);
            snprintf(text, sizeof text, "%.*s: status 14%s", (int)(end - name), name,
                     i == 1 ? "; cuBLASLt needs an NVIDIA GPU and a driver that fits it"
                            : " for x [5, 7], W [6, 7]");
            assert_string_equal(message, text);
            assert_int_equal(ask(5, 6, 7, &plan), 0);
        }
        check_plan(&plan, (const int[]){66, 20, 3, 2, 1, 5, 35, 7, 2}, 100);
        assert_null(strstr(fake.log(), "not a"));
    }
}

/* ---- What was asked before -------------------------------------------------------------------
 */

static int count(const char *part) {
    int n = 0;
    for (const char *at = fake.log(); (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* The plan says for which shape it is; what is remembered must be that of this shape. */
static void ask_for(int m, int n, int k) {
    struct gemm_plan plan;
    char text[100];
    snprintf(text, sizeof text, "%d %d %d 0 0 0 0 0 0 0", m, n, k);
    setenv("FAKE_CUBLASLT_PLAN", text, 1);
    assert_int_equal(ask(m, n, k, &plan), 0);
    assert_true(plan.algorithm == m && plan.tile == n && plan.nsplits == k);
}

/* As many shapes as are remembered, which differ in one size; a planner for each size. */
static void test_asks_once(void **state) {
    enum { NSHAPES = 768 };
    (void)state;
    for (int size = 0; size < 3; size++) {
        gemm_planner_close(planner);
        planner = open_planner(NULL, 9);
        fake.reset();
        for (int i = 0; i < 3 * NSHAPES; i++) {
            int s[3] = {2, 4096, 4096};
            s[size] = 1 + i % NSHAPES;
            ask_for(s[0], s[1], s[2]);
        }
        assert_int_equal(count("handle"), 1);
        assert_int_equal(count("compute"), NSHAPES);
    }
}

/* More shapes than the table holds: each is right, and one that was just asked is known. */
static void test_forgets(void **state) {
    enum { NSHAPES = 2000 };
    (void)state;
    for (int i = 0; i < 2 * NSHAPES; i++)
        ask_for(1 + i / 2, 14336, 4096);
    assert_int_equal(count("compute"), NSHAPES);
    ask_for(1, 14336, 4096); /* long forgotten */
    assert_int_equal(count("compute"), NSHAPES + 1);
}

enum { NTHREADS = 4, NROUNDS = 20, NSHAPES = 50 };

static void *ask_many(void *user) {
    int *nwrong = user;
    for (int i = 0; i < NROUNDS * NSHAPES; i++) {
        struct gemm_plan plan = {0};
        char text[GPU_MESSAGE_NBYTES];
        *nwrong += gemm_planner_ask(planner, 1 + i % NSHAPES, 100, 200, &plan, text) != 0;
        *nwrong += plan.algorithm != 66 || plan.workspace_nbytes != 9;
    }
    return NULL;
}

static void test_threads(void **state) {
    int nwrong[NTHREADS] = {0};
    pthread_t threads[NTHREADS];
    (void)state;
    setenv("FAKE_CUBLASLT_PLAN", "66 1 2 3 4 5 6 7 8 9", 1);
    for (int i = 0; i < NTHREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_many, &nwrong[i]), 0);
    for (int i = 0; i < NTHREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(nwrong[i], 0);
    }
    assert_int_equal(count("handle"), 1);
    assert_int_equal(count("compute"), NSHAPES);
}

#define FINDS(test) cmocka_unit_test_setup_teardown(test, hide_libraries, check_unloaded)
#define ASKS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        FINDS(test_no_library),     FINDS(test_incomplete_library),
        FINDS(test_finds_by_name),  FINDS(test_finds_in_wheels),
        FINDS(test_prefers_loaded), FINDS(test_prefers_that_of_mlx),
        ASKS(test_questions),       ASKS(test_no_product),
        ASKS(test_answers),         ASKS(test_no_answer),
        ASKS(test_failures),        ASKS(test_asks_once),
        ASKS(test_forgets),         ASKS(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
