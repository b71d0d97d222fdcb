/* Products go on in a forked child, whose parent's threads are not there, and in the parent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "binade_r4.h"

enum { M = 3, R = 640, K = 256 };

/* Each row of W has one 1, odd rows two, among the seven columns where x is 1. */
static bool product_is_right(const binade_r4 *w) {
    static uint16_t x[M * K], y[M * R];
    for (size_t i = 0; i < M * K; i++)
        x[i] = i % K < 7 ? 0x3f80 : 0;
    memset(y, 0xff, sizeof y);
    binade_r4_matmul(w, 0, x, M, K, NULL, y, R);
    for (size_t i = 0; i < M * R; i++)
        if (y[i] != (i % R % 2 ? 0x4000 : 0x3f80)) return false;
    return true;
}

static void test_fork(void **state) {
    (void)state;
#if !defined(__SANITIZE_THREAD__) /* which allows no threads after a fork */
    static uint16_t weights[R * K];
    static binade_r4 w;
    for (size_t r = 0; r < R; r++) {
        weights[r * K + r % 7] = 0x3f80;
        if (r % 2) weights[r * K + (r + 1) % 7] = 0x3f80;
    }
    assert_int_equal(binade_r4_make(weights, 1, R, K, 1, &w, NULL), BINADE_OK);
    for (unsigned i = 0; i < 20; i++) {
        assert_true(product_is_right(&w));
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) exit(product_is_right(&w) && product_is_right(&w) ? 0 : 1);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_true(product_is_right(&w));
    }
    binade_r4_free(&w);
#endif
}

int main(void) {
    setenv("BINADE_NUM_THREADS", "3", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fork)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
