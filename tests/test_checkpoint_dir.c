/* test_checkpoint_dir.c - proves that a directory's files are told apart as documented (shards,
 * other files, what is left out and why), and that an index or a tree that cannot be trusted is
 * refused in one line that names the file. */
#include "base/buffer.h"
#include "io/checkpoint_dir.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Last: it has a macro called fail. */
#include <cmocka.h>

#define INDEX(map) "{\"metadata\":{\"total_size\":1},\"weight_map\":{" map "}}"

/* `expected` has the paths in order, each with a | behind it. */
static void check_list(const struct path_list *l, const char *expected) {
    char found[2048] = "";
    for (size_t i = 0; i < l->count; i++) {
        strncat(found, l->paths[i], sizeof found - strlen(found) - 2);
        strcat(found, "|");
    }
    assert_string_equal(found, expected);
}

static void scan(struct checkpoint_dir *d, const char *root) {
    binade_error err = {""};
    if (checkpoint_dir_scan(d, root, &err)) fail_msg("%s", err.message);
}

/* The scan must fail with a sentence that has both texts in it. */
static void check_refused(const char *root, binade_status expected, const char *says,
                          const char *names) {
    struct checkpoint_dir d;
    binade_error err = {""};
    binade_status status = checkpoint_dir_scan(&d, root, &err);
    if (status != expected || !strstr(err.message, says) || !strstr(err.message, names) ||
        strchr(err.message, '\n'))
        fail_msg("status %d, \"%s\", expected \"%s\" and \"%s\"", status, err.message, says, names);
    assert_null(d.path);
    assert_int_equal(d.shards.count + d.others.count + d.left_out.count, 0);
    assert_int_equal(checkpoint_dir_scan(&d, root, NULL), expected);
}

static void test_without_index(void **state) {
    (void)state;
    struct checkpoint_dir d;
    char *root = tree_make();
    tree_put(root, "b.safetensors", "");
    tree_put(root, "B.safetensors", "");
    tree_put(root, ".hidden.safetensors", "");
    tree_put(root, "._b.safetensors", "");
    tree_put(root, "config.json", "{}");
    tree_put(root, "x.safetensors.bak", "");
    tree_put(root, "new\nline", "");
    tree_put(root, "\xC3\xA9", "");
    tree_put(root, "sub/c.safetensors", "");
    tree_put(root, "sub/deep/.dotfile", "");
    tree_put(root, "sub/.cache/huggingface/x", "");
    tree_put(root, ".git/HEAD", "");
    tree_mkdir(root, "empty");
    tree_mkdir(root, "dir.safetensors");
    scan(&d, root);
    assert_string_equal(d.path, root);
    assert_false(d.has_index);
    check_list(&d.shards, ".hidden.safetensors|B.safetensors|b.safetensors|");
    check_list(&d.others, "._b.safetensors|config.json|new\nline|sub/c.safetensors|"
                          "sub/deep/.dotfile|x.safetensors.bak|\xC3\xA9|");
    check_list(&d.left_out, ".git (not part of the checkpoint)|"
                            "sub/.cache (not part of the checkpoint)|");
    checkpoint_dir_free(&d);
    checkpoint_dir_free(&d);
    tree_remove(root);
}

static void test_with_index(void **state) {
    (void)state;
    struct checkpoint_dir d;
    char *root = tree_make();
    tree_put(root, "b.safetensors", "");
    tree_put(root, "a.safetensors", "");
    tree_put(root, "unlisted.safetensors", "");
    tree_put(root, "sub/c.safetensors", "");
    tree_put(root, INDEX_NAME,
             INDEX("\"x\":\"b.safetensors\",\"y\":\"sub\\/c.safetensors\",\"z\":\"b.safetensors\","
                   "\"w\":\"a.safetensors\",\"v\":\"b.safetensors\""));
    scan(&d, root);
    assert_true(d.has_index);
    check_list(&d.shards, "a.safetensors|b.safetensors|sub/c.safetensors|");
    check_list(&d.others, "model.safetensors.index.json|unlisted.safetensors|");
    check_list(&d.left_out, "");
    checkpoint_dir_free(&d);
    tree_remove(root);
}

/* The hub's cache links every file to a blob outside the snapshot. */
static void test_links(void **state) {
    (void)state;
    struct checkpoint_dir d;
    char *root = tree_make();
    tree_put(root, "blobs/1", "");
    tree_put(root, "blobs/2", INDEX("\"x\":\"m.safetensors\""));
    tree_link(root, "snap/m.safetensors", "../blobs/1");
    tree_link(root, "snap/" INDEX_NAME, "../blobs/2");
    tree_link(root, "snap/config.json", tree_path(root, "blobs/1"));
    tree_link(root, "snap/linked", "../blobs");
    tree_link(root, "snap/.git", "nothing");
    tree_link(root, "to_snap", "snap");
    assert_int_equal(mkfifo(tree_path(root, "snap/fifo"), 0666), 0);
    scan(&d, tree_path(root, "to_snap"));
    assert_string_equal(d.path, tree_path(root, "snap"));
    assert_true(d.has_index);
    check_list(&d.shards, "m.safetensors|");
    check_list(&d.others, "config.json|model.safetensors.index.json|");
    check_list(&d.left_out, ".git (not part of the checkpoint)|fifo (neither a file nor a "
                            "directory)|linked (a link to a directory)|");
    checkpoint_dir_free(&d);

    tree_put(root, "snap/real/x", "");
    tree_link(root, "snap/broken", "nowhere");
    check_refused(tree_path(root, "snap"), BINADE_E_DATA, "a link to nothing", "snap/broken");
    unlink(tree_path(root, "snap/broken"));
    tree_link(root, "snap/loop", "loop");
    check_refused(tree_path(root, "snap"), BINADE_E_DATA, "a link to nothing", "snap/loop");
    tree_remove(root);
}

static void test_refused_trees(void **state) {
    (void)state;
    char *root = tree_make();
    check_refused(tree_path(root, "absent"), BINADE_E_IO, "No such file", "absent");
    tree_put(root, "file", "");
    check_refused(tree_path(root, "file"), BINADE_E_IO, "Not a directory", "/file");
    check_refused(root, BINADE_E_USAGE, ": no *.safetensors files", root);
    tree_put(root, "sub/a.safetensors", "");
    check_refused(root, BINADE_E_USAGE, ": no *.safetensors files", root);
    tree_mkdir(root, "m.safetensors");
    check_refused(root, BINADE_E_USAGE, "files: m.safetensors is a directory", root);
    rmdir(tree_path(root, "m.safetensors"));
    mkfifo(tree_path(root, "m.safetensors"), 0600);
    check_refused(root, BINADE_E_USAGE, "files: m.safetensors is no regular file", root);
    unlink(tree_path(root, "m.safetensors"));
    tree_put(root, "a.safetensors", "");
    char deep[3 * 70] = "";
    for (int i = 0; i < 64; i++)
        strcat(deep, "d/");
    tree_mkdir(root, deep);
    struct checkpoint_dir d;
    scan(&d, root);
    checkpoint_dir_free(&d);
    strcat(deep, "d");
    tree_mkdir(root, deep);
    check_refused(root, BINADE_E_DATA, "nest deeper than 64", root);
    tree_remove(root);
}

/* File systems that take any bytes in names; others refuse to make the file. */
static void test_invalid_name(void **state) {
    (void)state;
    char *root = tree_make();
    tree_put(root, "a.safetensors", "");
    FILE *f = fopen(tree_path(root, "bad\xFF"), "w");
    if (f) {
        fclose(f);
        check_refused(root, BINADE_E_DATA, "not valid UTF-8", "bad\\xff");
    }
    tree_remove(root);
}

static void test_refused_shards(void **state) {
    (void)state;
    static const struct {
        const char *map, *says;
    } cases[] = {
        {"\"x\":\"b.safetensors\"",
         ": shard b.safetensors named by model.safetensors.index.json is "
         "absent"},
        {"\"x\":\"sub\"", "ends in .safetensors"},
        {"\"x\":\"sub.safetensors\"", "is no file of the checkpoint"},
        {"\"x\":\"link/a.safetensors\"", "is no file of the checkpoint"},
        {"\"x\":\".cache/a.safetensors\"", "is no file of the checkpoint"},
        {"\"x\":\"config.json\"", "ends in .safetensors"},
        {"\"x\":\"../a.safetensors\"", "stays inside the directory"},
    };
    char *root = tree_make();
    tree_put(root, "m/a.safetensors", "");
    tree_put(root, "m/config.json", "");
    tree_put(root, "m/.cache/a.safetensors", "");
    tree_mkdir(root, "m/sub.safetensors");
    tree_put(root, "other/a.safetensors", "");
    tree_link(root, "m/link", "../other");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char index[512];
        snprintf(index, sizeof index, "{\"weight_map\":{%s}}", cases[i].map);
        tree_put(root, "m/" INDEX_NAME, index);
        check_refused(tree_path(root, "m"), BINADE_E_DATA, cases[i].says, tree_path(root, "m"));
    }
    tree_remove(root);
}

/* Only the index of a pack may name no shard. */
static void test_empty_index(void **state) {
    (void)state;
    struct checkpoint_dir d;
    binade_error err = {""};
    char *root = tree_make();
    tree_put(root, "b.safetensors", "");
    tree_put(root, "a.safetensors", "");
    tree_put(root, INDEX_NAME, "{\"weight_map\":{}}");
    check_refused(root, BINADE_E_DATA, "weight_map is empty", INDEX_NAME);
    assert_int_equal(checkpoint_dir_scan_pack(&d, root, &err), BINADE_OK);
    check_list(&d.shards, "");
    assert_int_equal(checkpoint_dir_add_shard(&d, 1, &err), BINADE_OK);
    assert_int_equal(checkpoint_dir_add_shard(&d, 0, &err), BINADE_OK);
    check_list(&d.shards, "a.safetensors|b.safetensors|");
    check_list(&d.others, INDEX_NAME "|");
    checkpoint_dir_free(&d);
    tree_remove(root);
}

static void test_refused_indexes(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "expected an object"},
        {"[]", "expected an object"},
        {"{}", "there is no weight_map"},
        {"{\"weight_map\":[]}", "expected an object"},
        {"{\"weight_map\":null}", "expected an object"},
        {"{\"Weight_map\":{\"a\":\"a.safetensors\"}}", "there is no weight_map"},
        {INDEX("\"t.w\":1"), "tensor t.w: byte 49: expected a string, found '1'"},
        {INDEX("\"t.w\":null"), "tensor t.w"},
        {INDEX("\"t.w\":[\"a.safetensors\"]"), "tensor t.w"},
        {INDEX("\"t.w\":\"\""), "tensor t.w"},
        {INDEX("\"t.w\":\"/a.safetensors\""), "found shard /a.safetensors, expected a path that"},
        {INDEX("\"t.w\":\"../a.safetensors\""), "found shard ../a.safetensors"},
        {INDEX("\"t.w\":\"b/../../a.safetensors\""), "stays inside"},
        {INDEX("\"t.w\":\"b/..\""), "stays inside"},
        {INDEX("\"t.w\":\"./a.safetensors\""), "stays inside"},
        {INDEX("\"t.w\":\"b//a.safetensors\""), "stays inside"},
        {INDEX("\"t.w\":\"a.safetensors/\""), "stays inside"},
        {INDEX("\"t.w\":\"a.safetensors\\u0000\""), "found shard a.safetensors\\x00"},
        {INDEX("\"t.w\":\"a.bin\""), "found shard a.bin, expected a name that ends in"},
        {INDEX("\"t.w\":\"a.safetensors\",\"t.w\":\"a.safetensors\""), "key t.w occurs twice"},
        {INDEX("\"t.w\":\"a.safetensors\",\"t\\u002ew\":\"b.safetensors\""),
         "key t.w occurs twice"},
        {"{\"weight_map\":{\"t\":\"a.safetensors\"},\"weight_map\":{\"t\":\"b.safetensors\"}}",
         "key weight_map occurs twice"},
        {"{\"weight_map\":{\"t\":\"a.safetensors\"},\"metadata\":{\"x\":1,\"x\":2}}",
         "key x occurs twice"},
        {"{\"weight_map\":{\"t\":\"a.safetensors\"},\"x\":1,\"x\":2}", "key x occurs twice"},
        {INDEX("\"t\":\"a.safetensors\","), "expected a key"},
        {INDEX("\"t\":\"a.safetensors\"") "x", "expected the end"},
        {"{\"weight_map\":{\"t\":\"a.safetensors\"}", "found the end"},
        {"\xEF\xBB\xBF{}", "byte order mark"},
        {INDEX("\"t\":\"\xFF.safetensors\""), "UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t nbytes = strlen(cases[i].text);
        char *copy = malloc(nbytes ? nbytes : 1);
        assert_non_null(copy);
        memcpy(copy, cases[i].text, nbytes);
        struct path_list shards;
        binade_error err = {""};
        binade_status status = index_list_shards(copy, nbytes, "dir/i.json", &shards, &err);
        free(copy);
        if (status != BINADE_E_DATA || !strstr(err.message, cases[i].says) ||
            strncmp(err.message, "dir/i.json: ", 12) != 0 || strchr(err.message, '\n'))
            fail_msg("%s: status %d, \"%s\", expected \"%s\"", cases[i].text, status, err.message,
                     cases[i].says);
        assert_null(shards.paths);
    }
}

/* Many tensors whose shards alternate: each shard is listed once, a repeated tensor is found. */
static void test_large_index(void **state) {
    (void)state;
    struct buffer b = {0};
    struct path_list shards;
    binade_error err = {""};
    assert_int_equal(buffer_put_text(&b, &err, "{\"weight_map\":{"), BINADE_OK);
    for (int i = 0; i < 300000; i++)
        assert_int_equal(buffer_put_text(&b, &err, "%s\"t%d\":\"%03d.safetensors\"", i ? "," : "",
                                         i, i * 7 % 100),
                         BINADE_OK);
    size_t all = b.nbytes;
    assert_int_equal(buffer_put_text(&b, &err, "}}"), BINADE_OK);
    assert_int_equal(index_list_shards(b.data, b.nbytes, "f", &shards, &err), BINADE_OK);
    assert_int_equal(shards.count, 100);
    assert_string_equal(shards.paths[0], "000.safetensors");
    assert_string_equal(shards.paths[99], "099.safetensors");
    path_list_free(&shards);
    b.nbytes = all;
    assert_int_equal(buffer_put_text(&b, &err, ",\"t5\":\"000.safetensors\"}}"), BINADE_OK);
    assert_int_equal(index_list_shards(b.data, b.nbytes, "f", &shards, &err), BINADE_E_DATA);
    assert_non_null(strstr(err.message, "key t5 occurs twice"));
    buffer_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_index), cmocka_unit_test(test_with_index),
        cmocka_unit_test(test_links),         cmocka_unit_test(test_refused_trees),
        cmocka_unit_test(test_invalid_name),  cmocka_unit_test(test_refused_shards),
        cmocka_unit_test(test_empty_index),   cmocka_unit_test(test_refused_indexes),
        cmocka_unit_test(test_large_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
