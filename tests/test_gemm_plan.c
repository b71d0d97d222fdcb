/* test_gemm_plan.c - what cuBLASLt is asked, how often, and what becomes of its answers and
 * failures. tests/shims/fake_cublaslt.c stands for it; test_gemm_plan_lookup.c has how it is found.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gemm_plan.h"
#include "fake_library.h"

#include <cmocka.h>

static char message[GPU_MESSAGE_NBYTES];
static struct fake fake;
static struct gemm_planner *planner;

/* In place of the one before: a planner that knows nothing yet. */
static void open_anew(int major) {
    gemm_planner_close(planner);
    if (gemm_planner_open(NULL, major, &planner, message)) fail_msg("%s", message);
    fake.reset();
}

static void forget_answers(void) {
    static const char *const variables[] = {"FAKE_CUBLASLT_PLAN", "FAKE_FAIL", "FAKE_CUBLASLT_NONE",
                                            "FAKE_CUBLASLT_STATE"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

static int set_up(void **state) {
    (void)state;
    forget_answers();
    fake = fake_load(FAKE_13, 0);
    planner = NULL;
    open_anew(9);
    return 0;
}

/* Nothing is left, and nothing was used that was not there. */
static int tear_down(void **state) {
    forget_answers();
    gemm_planner_close(planner);
    int status = fake.nlive() > 0 || strstr(fake.log(), "not a");
    fake_unload(&fake);
    return status || fake_check_unloaded(state);
}

/* ---- Questions ------------------------------------------------------------------------------- */

static int ask(int m, int n, int k, struct gemm_plan *plan) {
    return gemm_planner_ask(planner, m, n, k, plan, message);
}

static void refuse(int m, int n, int k, const char *expected) {
    struct gemm_plan plan = {.algorithm = 1234};
    *message = 0;
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
        open_anew(majors[g]);
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

/* ---- Answers --------------------------------------------------------------------------------- */

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
        open_anew(9);
        snprintf(text, sizeof text, "%d", i);
        setenv("FAKE_FAIL", text, 1);
        int status = ask(5, 6, 7, &plan);
        unsetenv("FAKE_FAIL");
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

/* ---- What was asked before ------------------------------------------------------------------- */

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
        open_anew(9);
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

#define ASKS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        ASKS(test_questions), ASKS(test_no_product), ASKS(test_answers), ASKS(test_no_answer),
        ASKS(test_failures),  ASKS(test_asks_once),  ASKS(test_forgets), ASKS(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
