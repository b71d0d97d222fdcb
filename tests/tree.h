/* tree.h - small directory trees for tests, made under the temporary directory and removed again.
 * Every failure of the system ends the test. */
#ifndef BINADE_TESTS_TREE_H
#define BINADE_TESTS_TREE_H

#include <stddef.h>

/* A new directory, its links resolved; tree_remove frees it. */
char *tree_make(void);
void tree_remove(char *root);

/* root/inside in static storage, good until the eighth call after. */
const char *tree_path(const char *root, const char *inside);
/* Makes every directory on the way to root/inside, itself too. */
void tree_mkdir(const char *root, const char *inside);
/* Makes root/inside with that text, and the directories on the way. */
void tree_put(const char *root, const char *inside, const char *text);
/* Makes root/inside a symbolic link to `target`. */
void tree_link(const char *root, const char *inside, const char *target);

#endif
