/* test_gemm_plan_lookup.c - which cuBLASLt is asked for plans. tests/shims/fake_cublaslt.c stands
 * for it. test_gemm_plan.c has what is asked, and what becomes of the answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda/gemm_plan.h"
#include "fake_library.h"

#include <cmocka.h>

/* Seen from site-packages. */
#define WHEEL_13 "mlx/lib/../../nvidia/cu13/lib/" NAME_13
#define WHEEL_12 "mlx/lib/../../nvidia/cublas/lib/" NAME_12

static char message[GPU_MESSAGE_NBYTES];

static void refuse_to_open(const char *mlx_folder, const char *expected) {
    struct gemm_planner *opened = (void *)message;
    *message = 0;
    assert_int_equal(gemm_planner_open(mlx_folder, 9, &opened, message), -1);
    assert_null(opened);
    assert_string_equal(message, expected);
}

/* The library at `path` is the one that a planner asks. */
static void check_asks(const char *mlx_folder, const char *path) {
    struct gemm_planner *opened;
    struct gemm_plan plan;
    char expected[4200];

    if (gemm_planner_open(mlx_folder, 9, &opened, message)) fail_msg("%s", message);
    struct fake asked = fake_load(path, RTLD_NOLOAD);
    asked.reset();
    snprintf(expected, sizeof expected, "handle %s\n", path);
    assert_int_equal(gemm_planner_ask(opened, 2, 3, 4, &plan, message), 0);
    assert_memory_equal(asked.log(), expected, strlen(expected));
    gemm_planner_close(opened);
    assert_int_equal(asked.nlive(), 0);
    fake_unload(&asked);
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
    fake_put(NAME_13, FAKE_INCOMPLETE);
    refuse_to_open(NULL,
                   "the cuBLASLt of this process has no cublasLtMatmulAlgoConfigGetAttribute");
}

static void test_finds_by_name(void **state) {
    (void)state;
    fake_put(NAME_12, FAKE_12);
    check_asks(NULL, BY_NAME "/" NAME_12);
    fake_put(NAME_13, FAKE_13);
    check_asks(NULL, BY_NAME "/" NAME_13);
}

/* The wheel's, as MLX would load it, even if the system has one. */
static void test_finds_in_wheels(void **state) {
    char folder[4096], *site = make_site(folder);
    (void)state;
    fake_put(NAME_13, FAKE_13);
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
    fake_put(NAME_13, FAKE_13);
    struct fake older = fake_load(FAKE_12, 0);
    check_asks(folder, FAKE_12);
    check_asks(NULL, FAKE_12);
    struct fake newer = fake_load(FAKE_13, 0);
    check_asks(folder, FAKE_13);
    fake_unload(&newer);
    fake_unload(&older);
    tree_remove(site);
}

/* Another framework has loaded the newer one. */
static void test_prefers_that_of_mlx(void **state) {
    (void)state;
    struct fake other = fake_load(FAKE_13, 0);
    check_asks(FAKE_MLX_FOLDER, FAKE_13); /* MLX is not loaded */
    void *mlx = dlopen(FAKE_MLX_FOLDER "/libmlx.so", RTLD_NOW);
    if (!mlx) fail_msg("%s", dlerror());
    check_asks(FAKE_MLX_FOLDER, FAKE_12);
    check_asks(NULL, FAKE_13);
    dlclose(mlx);
    fake_unload(&other);
}

#define FINDS(test) cmocka_unit_test_setup_teardown(test, fake_hide_all, fake_check_unloaded)

int main(void) {
    const struct CMUnitTest tests[] = {
        FINDS(test_no_library),     FINDS(test_incomplete_library),
        FINDS(test_finds_by_name),  FINDS(test_finds_in_wheels),
        FINDS(test_prefers_loaded), FINDS(test_prefers_that_of_mlx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
