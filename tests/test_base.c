/* test_base.c - proves what every sentence and every file access stands on: messages stay one line
 * of valid UTF-8 that fits, reads and writes are whole or say what is wrong, paths that leave their
 * directory are recognised. */
#include "base/buffer.h"
#include "base/file.h"
#include "base/status.h"
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static binade_status fail_with(binade_error *err, const char *text) {
    return fail(err, BINADE_E_DATA, "%s", text);
}

/* Last: it has a macro called fail. */
#include <cmocka.h>

static void test_sentences(void **state) {
    (void)state;
    static char text[4000];
    binade_error err = {""};
    assert_int_equal(fail_with(&err, "short"), BINADE_E_DATA);
    assert_string_equal(err.message, "short");
    assert_int_equal(fail_with(NULL, "short"), BINADE_E_DATA);
    assert_int_equal(fail_with(&err, err.message), BINADE_E_DATA);
    assert_string_equal(err.message, "short");
    /* A cut never splits a code point, wherever it falls. */
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', sizeof text - 1);
        for (size_t i = shift; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 4);
        fail_with(&err, text);
        size_t length = strlen(err.message);
        assert_in_range(length, sizeof err.message - 4, sizeof err.message - 1);
        assert_true(utf8_valid(err.message, length));
    }
    assert_int_equal(fail_errno(&err, ENOSPC, "%s: cannot write", "f"), BINADE_E_IO);
    assert_string_equal(err.message, "f: cannot write: No space left on device");
    assert_int_equal(fail_errno(&err, ENOMEM, "f"), BINADE_E_MEMORY);
    assert_int_equal(fail_errno(NULL, ENOSPC, "f"), BINADE_E_IO);
    memset(text, 'x', sizeof text - 1);
    fail_errno(&err, ENOSPC, "%s", text);
    assert_non_null(strstr(err.message, "x: No space left on device"));
}

static void test_quotes(void **state) {
    (void)state;
    char text[1000];
    assert_string_equal(quote("a\0b\n\x7F\x80\xC2\x85\xE2\x80\xA8\xC3\xA9", 13).text,
                        "a\\x00b\\x0a\\x7f\\x80\\xc2\\x85\\xe2\\x80\\xa8\xC3\xA9");
    assert_string_equal(quote("", 0).text, "");
    memset(text, 'a', sizeof text);
    assert_int_equal(strlen(quote(text, QUOTED_MAX).text), QUOTED_MAX);
    assert_null(strstr(quote(text, QUOTED_MAX).text, "..."));
    assert_int_equal(strlen(quote(text, QUOTED_MAX + 1).text), QUOTED_MAX);
    assert_non_null(strstr(quote(text, QUOTED_MAX + 1).text, "a..."));
    memset(text, '\n', sizeof text);
    assert_in_range(strlen(quote(text, sizeof text).text), QUOTED_MAX - 6, QUOTED_MAX);
    memset(text, 'a', sizeof text);
    strcpy(text + 900, "/the/file");
    struct quoted path = quote_path(text);
    assert_true(strncmp(path.text, "...a", 4) == 0);
    assert_string_equal(path.text + strlen(path.text) - 10, "a/the/file");
    assert_int_equal(strlen(path.text), QUOTED_MAX);
}

static void test_utf8(void **state) {
    (void)state;
    static const struct {
        const char *text;
        unsigned length;
        uint32_t code;
    } cases[] = {
        {"a", 1, 'a'},
        {"\x7F", 1, 0x7F},
        {"\xC2\x80", 2, 0x80},
        {"\xDF\xBF", 2, 0x7FF},
        {"\xE0\xA0\x80", 3, 0x800},
        {"\xED\x9F\xBF", 3, 0xD7FF},
        {"\xEE\x80\x80", 3, 0xE000},
        {"\xEF\xBF\xBF", 3, 0xFFFF},
        {"\xF0\x90\x80\x80", 4, 0x10000},
        {"\xF4\x8F\xBF\xBF", 4, 0x10FFFF},
        {"", 0, 0},
        {"\x80", 0, 0},
        {"\xC0\x80", 0, 0},
        {"\xC1\xBF", 0, 0},
        {"\xC2", 0, 0},
        {"\xC2x", 0, 0},
        {"\xE0\x9F\xBF", 0, 0},
        {"\xED\xA0\x80", 0, 0},
        {"\xED\xBF\xBF", 0, 0},
        {"\xE2\x82", 0, 0},
        {"\xF0\x8F\xBF\xBF", 0, 0},
        {"\xF4\x90\x80\x80", 0, 0},
        {"\xF5\x80\x80\x80", 0, 0},
        {"\xF0\x9F\x98", 0, 0},
        {"\xFF", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t code = 0;
        size_t nbytes = strlen(cases[i].text);
        assert_int_equal(utf8_decode(cases[i].text, nbytes, &code), cases[i].length);
        assert_int_equal(code, cases[i].code);
        assert_int_equal(utf8_valid(cases[i].text, nbytes), cases[i].length == nbytes);
    }
    assert_int_equal(utf8_length("a\xC3\xA9\xF0\x9F\x98\x80", 7), 3);
}

static void test_buffers(void **state) {
    (void)state;
    struct buffer b = {0};
    binade_error err;
    assert_int_equal(buffer_put(&b, NULL, 0, &err), BINADE_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buffer_put_text(&b, &err, "%03d,", i), BINADE_OK);
    assert_int_equal(b.nbytes, 4000);
    assert_string_equal(b.data + 3996, "999,");
    assert_int_equal(buffer_put(&b, "x", SIZE_MAX, &err), BINADE_E_MEMORY);
    assert_int_equal(b.nbytes, 4000);
    buffer_free(&b);
    buffer_free(&b);
    size_t capacity = 0;
    uint64_t *items = NULL;
    for (size_t i = 0; i < 1000; i++) {
        items = grow_array(items, &capacity, i, sizeof *items);
        assert_non_null(items);
        assert_true(capacity > i);
        items[i] = i;
    }
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(items[i], i);
    free(items);
}

static void test_files(void **state) {
    (void)state;
    char *root = tree_make();
    binade_error err = {""};
    struct file f, g;
    char bytes[16], *data;
    size_t nbytes;
    assert_int_equal(file_create(&f, tree_path(root, "f"), &err), BINADE_OK);
    assert_int_equal(file_create(&g, tree_path(root, "f"), &err), BINADE_E_IO);
    assert_int_equal(g.fd, -1);
    assert_non_null(strstr(err.message, "/f: cannot create: File exists"));
    assert_int_equal(file_write(&f, 4, "efgh", 4, &err), BINADE_OK);
    assert_int_equal(file_write(&f, 0, "abcd", 4, &err), BINADE_OK);
    assert_int_equal(file_write(&f, UINT64_MAX, "x", 1, &err), BINADE_E_IO);
    assert_int_equal(file_sync_close(&f, &err), BINADE_OK);
    assert_int_equal(f.fd, -1);
    file_close(&f);

    assert_int_equal(file_open(&f, tree_path(root, "f"), &err), BINADE_OK);
    assert_int_equal(f.nbytes, 8);
    assert_int_equal(file_read(&f, 2, bytes, 6, &err), BINADE_OK);
    assert_memory_equal(bytes, "cdefgh", 6);
    assert_int_equal(file_read(&f, 8, bytes, 0, &err), BINADE_OK);
    assert_int_equal(file_read(&f, 4, bytes, 9, &err), BINADE_E_IO);
    assert_non_null(strstr(err.message, "/f: ended at byte 8 while reading bytes 4..13: the file "
                                        "changed while it was read"));
    assert_int_equal(file_read(&f, 100, bytes, 1, &err), BINADE_E_IO);
    assert_non_null(strstr(err.message, "ended at byte 8 while reading bytes 100..101"));
    assert_int_equal(file_read(&f, UINT64_MAX, bytes, 1, &err), BINADE_E_IO);
    file_close(&f);

    assert_int_equal(file_slurp(tree_path(root, "f"), 8, &data, &nbytes, &err), BINADE_OK);
    assert_int_equal(nbytes, 8);
    assert_string_equal(data, "abcdefgh");
    free(data);
    assert_int_equal(file_slurp(tree_path(root, "f"), 7, &data, &nbytes, &err), BINADE_E_DATA);
    assert_non_null(strstr(err.message, "/f: has 8 bytes, expected at most 7"));
    tree_remove(root);
}

static void test_refused_files(void **state) {
    (void)state;
    char *root = tree_make();
    binade_error err = {""};
    struct file f;
    assert_int_equal(file_open(&f, tree_path(root, "no\nne"), &err), BINADE_E_IO);
    assert_int_equal(f.fd, -1);
    assert_non_null(strstr(err.message, "/no\\x0ane: cannot open: No such file or directory"));
    assert_int_equal(file_open(&f, root, &err), BINADE_E_IO);
    assert_non_null(strstr(err.message, ": not a regular file"));
    /* Nobody writes to the pipe: opening must not wait. */
    assert_int_equal(mkfifo(tree_path(root, "pipe"), 0666), 0);
    assert_int_equal(file_open(&f, tree_path(root, "pipe"), &err), BINADE_E_IO);
    assert_non_null(strstr(err.message, "/pipe: not a regular file"));
    file_close(&f);
    tree_remove(root);
}

static void test_paths(void **state) {
    (void)state;
    static const struct {
        const char *path;
        bool inside;
    } cases[] = {
        {"a", true},     {"a/b.c", true},   {"...", true},  {"a/..b", true}, {".a", true},
        {"", false},     {"/", false},      {"/a", false},  {"a/", false},   {"a//b", false},
        {".", false},    {"..", false},     {"./a", false}, {"a/.", false},  {"../a", false},
        {"a/..", false}, {"a/../b", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (path_is_inside(cases[i].path, strlen(cases[i].path)) != cases[i].inside)
            fail_msg("%s", cases[i].path);
    assert_false(path_is_inside("a\0b", 3));
    static const char *const joins[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        char *path = path_join(joins[i][0], joins[i][1]);
        assert_string_equal(path, joins[i][2]);
        free(path);
    }
    assert_string_equal(path_base("a/b/c"), "c");
    assert_string_equal(path_base("c"), "c");
    assert_true(path_is_dir("/"));
    assert_false(path_is_dir("/no/such"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentences), cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_utf8),      cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_files),     cmocka_unit_test(test_refused_files),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
