/* test_hub_cache.c - proves where a model's name leads: a directory wins, then the local Hugging
 * Face cache by branch, tag or commit; and that everything else is an error that says what to do.
 */
#include "io/checkpoint_dir.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Last: it has a macro called fail. */
#include <cmocka.h>

#define A "aaaa1111aaaa1111aaaa1111aaaa1111aaaa1111"
#define B "aaaa2222aaaa2222aaaa2222aaaa2222aaaa2222"
#define C "cccc3333cccc3333cccc3333cccc3333cccc3333"

static void clear_environment(void) {
    static const char *const names[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                        "XDG_CACHE_HOME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* A cache at root/hub, current directory root/cwd. */
static char *make_cache(void) {
    char *root = tree_make();
    tree_mkdir(root, "cwd");
    assert_int_equal(chdir(tree_path(root, "cwd")), 0);
    clear_environment();
    setenv("HF_HUB_CACHE", tree_path(root, "hub"), 1);
    tree_put(root, "hub/models--org--name/refs/main", A);
    tree_put(root, "hub/models--org--name/refs/v1.0", B "\n");
    tree_put(root, "hub/models--org--name/refs/refs/pr/1", C);
    tree_put(root, "hub/models--org--name/refs/gone", "dddd");
    tree_put(root, "hub/models--org--name/refs/bad", "../../..");
    tree_put(root, "hub/models--org--name/refs/empty", "");
    tree_put(root, "hub/models--org--name/refs/cccc", B);
    tree_put(root, "hub/models--org--name/snapshots/" A "/f", "");
    tree_put(root, "hub/models--org--name/snapshots/" B "/f", "");
    tree_put(root, "hub/models--org--name/snapshots/" C "/f", "");
    tree_put(root, "hub/models--org--name/snapshots/aaaa9", "a file");
    tree_put(root, "hub/models--pinned/snapshots/" C "/f", "");
    tree_put(root, "hub/models--two/snapshots/" A "/f", "");
    tree_put(root, "hub/models--two/snapshots/" B "/f", "");
    tree_put(root, "hub/models--none/refs/main", A);
    return root;
}

static void remove_cache(char *root) {
    assert_int_equal(chdir("/"), 0);
    tree_remove(root);
}

static void test_finds(void **state) {
    (void)state;
    static const struct {
        const char *model, *revision, *path;
    } cases[] = {
        {"org/name", NULL, "hub/models--org--name/snapshots/" A},
        {"org/name", "main", "hub/models--org--name/snapshots/" A},
        {"org/name", "v1.0", "hub/models--org--name/snapshots/" B},
        {"org/name", "refs/pr/1", "hub/models--org--name/snapshots/" C},
        {"org/name", "cccc", "hub/models--org--name/snapshots/" B}, /* a branch wins */
        {"org/name", "cccc3", "hub/models--org--name/snapshots/" C},
        {"org/name", "aaaa2", "hub/models--org--name/snapshots/" B},
        {"org/name", A, "hub/models--org--name/snapshots/" A},
        {"pinned", NULL, "hub/models--pinned/snapshots/" C},
        {"pinned", "main", "hub/models--pinned/snapshots/" C},
        {"pinned", "cccc", "hub/models--pinned/snapshots/" C},
    };
    char *root = make_cache();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path;
        binade_error err = {""};
        if (hub_resolve(cases[i].model, cases[i].revision, &path, &err))
            fail_msg("%s: %s", cases[i].model, err.message);
        assert_string_equal(path, tree_path(root, cases[i].path));
        free(path);
    }
    remove_cache(root);
}

static void test_refuses(void **state) {
    (void)state;
    static const struct {
        const char *model, *revision;
        binade_status status;
        const char *says;
    } cases[] = {
        {"org/other", NULL, BINADE_E_USAGE, "/hub; download it first: hf download org/other"},
        {"org/other", "v2", BINADE_E_USAGE, "hf download org/other --revision v2"},
        {"org/name", "v2", BINADE_E_USAGE, "hf download org/name --revision v2"},
        {"org/name", "gone", BINADE_E_USAGE, "hf download org/name --revision gone"},
        {"none", NULL, BINADE_E_USAGE, "hf download none"},
        {"org/name", "aaa", BINADE_E_USAGE, "hf download"},
        {"org/name", "aaaa9", BINADE_E_USAGE, "hf download"},
        {"org/name", "refs", BINADE_E_USAGE, "hf download"},
        {"org/name", "aaaa", BINADE_E_USAGE, "ambiguous: 2 commits match: " A ", " B},
        {"two", NULL, BINADE_E_USAGE, "ambiguous: 2 commits match: " A ", " B},
        {"org/name", "../../x", BINADE_E_USAGE, "../../x is not a branch, tag or commit"},
        {"org/name", "/etc/passwd", BINADE_E_USAGE, "is not a branch"},
        {"org/name", "", BINADE_E_USAGE, "is not a branch"},
        {"org/name", "bad", BINADE_E_DATA, "refs/bad: found \"../../..\", expected a commit"},
        {"org/name", "empty", BINADE_E_DATA, "refs/empty: found \"\", expected a commit"},
        {"/no/such", NULL, BINADE_E_USAGE, "/no/such: no such directory"},
        {"./no", NULL, BINADE_E_USAGE, "./no: no such directory"},
        {"../no", NULL, BINADE_E_USAGE, "../no: no such directory"},
        {"~/no", NULL, BINADE_E_USAGE, "~/no: no such directory"},
        {"a/b/c", NULL, BINADE_E_USAGE, "a/b/c: no such directory"},
        {"nope/", NULL, BINADE_E_USAGE, "nope/: no such directory"},
        {"", NULL, BINADE_E_USAGE, "not a hub id"},
        {"a b", NULL, BINADE_E_USAGE, "not a hub id"},
        {"a--b", NULL, BINADE_E_USAGE, "not a hub id"},
        {"nope/..", NULL, BINADE_E_USAGE, "not a hub id"},
        {"a\nb", NULL, BINADE_E_USAGE, "a\\x0ab: no such directory"},
        {"a_file", NULL, BINADE_E_USAGE, "a_file: not a directory"},
        {"org/dir", "main", BINADE_E_USAGE, "org/dir: a directory has no revisions"},
    };
    char *root = make_cache();
    tree_put(root, "cwd/a_file", "");
    tree_mkdir(root, "cwd/org/dir");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = "";
        binade_error err = {""};
        binade_status status = hub_resolve(cases[i].model, cases[i].revision, &path, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].says) ||
            strchr(err.message, '\n'))
            fail_msg("%s: status %d, \"%s\", expected \"%s\"", cases[i].model, status, err.message,
                     cases[i].says);
        assert_null(path);
    }
    remove_cache(root);
}

static void test_directory_wins(void **state) {
    (void)state;
    char *root = make_cache();
    char *path;
    binade_error err = {""};
    tree_mkdir(root, "cwd/org/name");
    static const char *const models[] = {"org/name", "org/name/", "./org/name", "."};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        assert_int_equal(hub_resolve(models[i], NULL, &path, &err), BINADE_OK);
        assert_string_equal(path, models[i]);
        free(path);
    }
    remove_cache(root);
}

/* Each variable where no stronger one is set; empty ones count as not set. */
static void test_environment(void **state) {
    (void)state;
    char *root = make_cache();
    static const struct {
        const char *name, *value, *hub;
    } cases[] = {
        /* Weakest first, since they are set one after another. */
        {"HOME", "home", "home/.cache/huggingface/hub"},
        {"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"},
        {"HF_HOME", "hf", "hf/hub"},
        {"HUGGINGFACE_HUB_CACHE", "old", "old"},
        {"HF_HUB_CACHE", "new", "new"},
    };
    clear_environment();
    const char *home = getenv("HOME");
    char *home_before = home ? strdup(home) : NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char inside[256], *path;
        binade_error err = {""};
        snprintf(inside, sizeof inside, "%s/models--m/snapshots/" A, cases[i].hub);
        tree_mkdir(root, inside);
        setenv(cases[i].name, "", 1);
        if (i > 0) assert_int_equal(hub_resolve("m", NULL, &path, &err), BINADE_OK);
        if (i > 0) free(path);
        setenv(cases[i].name, tree_path(root, cases[i].value), 1);
        if (hub_resolve("m", NULL, &path, &err)) fail_msg("%s", err.message);
        assert_string_equal(path, tree_path(root, inside));
        free(path);
    }
    /* A tilde in a variable means HOME. */
    char *path;
    setenv("HF_HUB_CACHE", "~/.cache/huggingface/hub", 1);
    assert_int_equal(hub_resolve("m", NULL, &path, NULL), BINADE_OK);
    assert_string_equal(path,
                        tree_path(root, "home/.cache/huggingface/hub/models--m/snapshots/" A));
    free(path);
    clear_environment();
    if (home_before) setenv("HOME", home_before, 1);
    free(home_before);
    remove_cache(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_directory_wins),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
