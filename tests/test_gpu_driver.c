/* test_gpu_driver.c - which compiler is asked, what it is told, and what becomes of its answers and
 * failures. tests/shims/fake_nvrtc.c stands for NVIDIA's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu_driver.h"
#include "fake_library.h"

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const char *const names[] = {"a.h", "cuda/b.cu", "cuda/c.cu"};
static const char *const texts[] = {"text of a", "text of b", "text of c"};
static const struct gpu_sources sources = {names, texts, 3};

static char message[GPU_MESSAGE_NBYTES];

static void refuse(const char *file, const char *defines, const char *expected) {
    char untouched, *image = &untouched;
    size_t nbytes = 1234;

    memset(message, '?', sizeof message);
    assert_int_equal(gpu_compile(&sources, file, defines, 9, 0, &image, &nbytes, message), -1);
    assert_string_equal(message, expected);
    assert_ptr_equal(image, &untouched);
    assert_int_equal(nbytes, 1234);
}

static void check_version(int major, int minor) {
    int found[2] = {-1, -1};
    assert_int_equal(gpu_compiler_version(&found[0], &found[1]), major > 0);
    assert_int_equal(found[0], major);
    assert_int_equal(found[1], minor);
}

/* ---- Which compiler -------------------------------------------------------------------------- */

static void test_no_compiler(void **state) {
    (void)state;
    refuse("cuda/b.cu", "", "NVIDIA's run-time compiler is not there (libnvrtc.so.13 or .12)");
    check_version(0, 0);
}

static void test_incomplete_compiler(void **state) {
    (void)state;
    fake_put(NAME_13, FAKE_INCOMPLETE);
    refuse("cuda/b.cu", "", "NVIDIA's run-time compiler lacks a function: nvrtcGetCUBIN");
    check_version(0, 0);
}

static void test_finds_by_name(void **state) {
    (void)state;
    fake_put(NAME_12, FAKE_12);
    check_version(12, 8);
    fake_put(NAME_13, FAKE_13);
    check_version(13, 8);
}

/* MLX's, whichever is installed. */
static void test_prefers_loaded(void **state) {
    (void)state;
    fake_put(NAME_13, FAKE_13);
    struct fake older = fake_load(FAKE_12, 0);
    check_version(12, 8);
    struct fake newer = fake_load(FAKE_13, 0);
    check_version(13, 8);
    fake_unload(&newer);
    fake_unload(&older);
}

/* The compiler is given back after a success and after a refusal: no test leaves one. */
static void test_gives_back(void **state) {
    char *image = NULL;
    size_t nbytes = 0;
    (void)state;
    fake_put(NAME_13, FAKE_13);
    refuse("cuda/b.cu", "", "cuda/b.cu: no machine code");
    setenv("FAKE_NVRTC_IMAGE", "code", 1);
    assert_int_equal(gpu_compile(&sources, "cuda/b.cu", "", 9, 0, &image, &nbytes, message), 0);
    unsetenv("FAKE_NVRTC_IMAGE");
    free(image);
}

/* ---- What it is told -------------------------------------------------------------------------
 * From here on a compiler is loaded, which gives machine code.
 */

static struct fake fake;

static void forget_answers(void) {
    unsetenv("FAKE_NVRTC_IMAGE");
    unsetenv("FAKE_NVRTC_REFUSAL");
    unsetenv("FAKE_FAIL");
}

static int set_up(void **state) {
    (void)state;
    setenv("FAKE_NVRTC_IMAGE", "machine code", 1);
    fake = fake_load(FAKE_13, 0);
    fake.reset();
    return 0;
}

/* Nothing is left, and nothing was used that was not there. */
static int tear_down(void **state) {
    int status = fake.nlive() > 0 || strstr(fake.log(), "not a");
    forget_answers();
    fake_unload(&fake);
    return status || fake_check_unloaded(state);
}

static void compile(const char *file, const char *defines, int major, int minor) {
    char *image = NULL;
    size_t nbytes = 0;
    if (gpu_compile(&sources, file, defines, major, minor, &image, &nbytes, message))
        fail_msg("%s", message);
    assert_int_equal(nbytes, strlen("machine code"));
    assert_memory_equal(image, "machine code", nbytes);
    free(image);
}

/* The last line of the log. */
static void check_options(const char *target, const char *defines) {
    char expected[1000];
    snprintf(expected, sizeof expected,
             "\ncompile [--gpu-architecture=%s] [--std=c++17] [--fmad=false]%s\n", target, defines);
    const char *line = strstr(fake.log(), "\ncompile");
    assert_non_null(line);
    assert_string_equal(line, expected);
    fake.reset();
}

static void test_program(void **state) {
    static const char headers[] = "header a.h: text of a\n"
                                  "header cuda/b.cu: text of b\n"
                                  "header cuda/c.cu: text of c\n"
                                  "compile ";
    char expected[1000];
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(expected, sizeof expected, "%s: %s\n%s", names[i], texts[i], headers);
        compile(names[i], "", 9, 0);
        assert_memory_equal(fake.log(), expected, strlen(expected));
        assert_int_equal(fake.nlive(), 0);
        fake.reset();
    }
}

static void test_targets(void **state) {
    static const struct {
        int major, minor;
        const char *target;
    } gpus[] = {{7, 5, "sm_75"},    {8, 0, "sm_80"},    {8, 9, "sm_89"},   {9, 0, "sm_90a"},
                {10, 0, "sm_100a"}, {10, 3, "sm_103a"}, {12, 0, "sm_120a"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(gpus); i++) {
        compile("cuda/b.cu", "", gpus[i].major, gpus[i].minor);
        check_options(gpus[i].target, "");
    }
}

static void test_defines(void **state) {
    static const char *const given[][2] = {
        {"", ""},
        {"R4_NPARTS=1", " [-DR4_NPARTS=1]"},
        {"A=1 B=2", " [-DA=1] [-DB=2]"},
        {"R4_NX=128 R4_PER_LANE=4 R4_NSPLITS=5",
         " [-DR4_NX=128] [-DR4_PER_LANE=4] [-DR4_NSPLITS=5]"},
        {"A=1 B=2 C=3 D=4", " [-DA=1] [-DB=2] [-DC=3] [-DD=4]"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(given); i++) {
        compile("cuda/b.cu", given[i][0], 8, 0);
        check_options("sm_80", given[i][1]);
    }
}

/* Four of 60 bytes, each of a letter of its own. */
static void test_longest_defines(void **state) {
    char defines[300] = "", options[300] = "", one[61] = "";
    (void)state;
    for (int i = 0; i < 4; i++) {
        memset(one, 'A' + i, 60);
        snprintf(defines + strlen(defines), 62, "%s%s", i ? " " : "", one);
        snprintf(options + strlen(options), 66, " [-D%s]", one);
    }
    compile("cuda/b.cu", defines, 9, 0);
    check_options("sm_90a", options);
}

static void test_refuses_defines(void **state) {
    char too_long[62] = "", endless[3 * GPU_MESSAGE_NBYTES] = "", later[100];
    const char *const given[] = {
        "A=1 B=2 C=3 D=4 E=5", " A=1", "A=1  B=2", too_long, later, endless};
    (void)state;
    memset(too_long, 'A', 61);
    memset(endless, 'A', sizeof endless - 1);
    snprintf(later, sizeof later, "A=1 B=2 C=3 %s", too_long);
    for (size_t i = 0; i < COUNT_OF(given); i++) {
        char expected[4 * GPU_MESSAGE_NBYTES];
        snprintf(expected, sizeof expected,
                 "cuda/b.cu: at most 4 definitions, each of 1 to 60 bytes, can be given, "
                 "not these: %s",
                 given[i]);
        expected[GPU_MESSAGE_NBYTES - 1] = 0;
        refuse("cuda/b.cu", given[i], expected);
    }
    assert_int_equal(fake.ncalls(), 0);
}

static void test_no_source(void **state) {
    (void)state;
    refuse("cuda/d.cu", "", "cuda/d.cu: is no source of this build");
    refuse("b.cu", "", "b.cu: is no source of this build");
    refuse("", "", ": is no source of this build");
    assert_int_equal(fake.ncalls(), 0);
    assert_null(gpu_find_source(&sources, "cuda/d.cu"));
    assert_ptr_equal(gpu_find_source(&sources, "cuda/c.cu"), texts[2]);
}

/* ---- What it answers ------------------------------------------------------------------------- */

static void test_refusal(void **state) {
    static char endless[3 * GPU_MESSAGE_NBYTES], expected[GPU_MESSAGE_NBYTES];
    (void)state;
    setenv("FAKE_NVRTC_REFUSAL", "b.cu(3): error: what is this?\n1 error", 1);
    refuse("cuda/b.cu", "", "cuda/b.cu: b.cu(3): error: what is this?\n1 error");
    setenv("FAKE_NVRTC_REFUSAL", "", 1);
    refuse("cuda/b.cu", "", "cuda/b.cu: is refused by the compiler");
    memset(endless, '!', sizeof endless - 1);
    memset(expected, '!', sizeof expected - 1);
    memcpy(expected, "cuda/b.cu: ", 11);
    setenv("FAKE_NVRTC_REFUSAL", endless, 1);
    refuse("cuda/b.cu", "", expected);
}

static void test_no_machine_code(void **state) {
    (void)state;
    setenv("FAKE_NVRTC_IMAGE", "", 1);
    refuse("cuda/b.cu", "", "cuda/b.cu: no machine code");
}

/* Every call fails once; `expected` is what is said then, or NULL where the machine code stands. */
static void check_failures(const char *const *expected, int n) {
    for (int i = 1; i <= n; i++) {
        char ordinal[20];
        fake.reset();
        snprintf(ordinal, sizeof ordinal, "%d", i);
        setenv("FAKE_FAIL", ordinal, 1);
        if (expected[i - 1])
            refuse("cuda/b.cu", "", expected[i - 1]);
        else
            compile("cuda/b.cu", "", 9, 0);
        unsetenv("FAKE_FAIL");
        assert_non_null(strstr(fake.log(), " fails\n"));
        assert_int_equal(fake.nlive(), 0);
        assert_null(strstr(fake.log(), "not a"));
    }
    fake.reset();
}

static void test_failures(void **state) {
    static const char *const compiling[] = {
        "cuda/b.cu: NVIDIA's run-time compiler makes no program",
        "cuda/b.cu: is refused by the compiler",
        "cuda/b.cu: no machine code",
        "cuda/b.cu: no machine code",
        NULL,
    };
    static const char *const refusing[] = {
        "cuda/b.cu: NVIDIA's run-time compiler makes no program",
        "cuda/b.cu: the compiler's words",
        "cuda/b.cu: is refused by the compiler",
        "cuda/b.cu: is refused by the compiler",
        "cuda/b.cu: the compiler's words",
    };
    (void)state;
    check_failures(compiling, COUNT_OF(compiling));
    compile("cuda/b.cu", "", 9, 0);
    assert_int_equal(fake.ncalls(), COUNT_OF(compiling));
    setenv("FAKE_NVRTC_REFUSAL", "the compiler's words", 1);
    check_failures(refusing, COUNT_OF(refusing));
    refuse("cuda/b.cu", "", "cuda/b.cu: the compiler's words");
    assert_int_equal(fake.ncalls(), COUNT_OF(refusing));
}

static void test_version(void **state) {
    (void)state;
    check_version(13, 8);
    fake.reset();
    setenv("FAKE_FAIL", "1", 1);
    check_version(0, 0);
}

#define FINDS(test) cmocka_unit_test_setup_teardown(test, fake_hide_all, fake_check_unloaded)
#define ASKS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        FINDS(test_no_compiler),    FINDS(test_incomplete_compiler),
        FINDS(test_finds_by_name),  FINDS(test_prefers_loaded),
        FINDS(test_gives_back),     ASKS(test_program),
        ASKS(test_targets),         ASKS(test_defines),
        ASKS(test_longest_defines), ASKS(test_refuses_defines),
        ASKS(test_no_source),       ASKS(test_refusal),
        ASKS(test_no_machine_code), ASKS(test_failures),
        ASKS(test_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
