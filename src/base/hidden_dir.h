/* hidden_dir.h - directories under hidden names, locked by those who fill them.
 *
 * The hidden name for NAME is ".NAME.binade-partial-XXXXXX"; a NAME too long for the file system
 * with that is cut. Who fills one holds an flock on it, so that what a killed process left can be
 * told from what another still fills. Where the file system has no such locks, nothing is ever
 * taken for left.
 */
#ifndef BINADE_BASE_HIDDEN_DIR_H
#define BINADE_BASE_HIDDEN_DIR_H

/* Makes a hidden directory for `name` in `parent`, with mode 0700. Returns its path, malloc'd;
 * NULL, and a code in errno, on failure. *lock gets a descriptor that locks it, or -1. */
char *hidden_dir_make(const char *parent, const char *name, int *lock);
/* Removes the hidden directories for `name` in `parent` that belong to this user and that nobody
 * has locked. */
void hidden_dir_remove_stale(const char *parent, const char *name);

/* A descriptor of the directory that locks it; -1 if it cannot be opened. */
int dir_lock(const char *path);
/* Removes a directory with all it holds; links in it are not followed. */
void dir_remove(const char *path);

#endif
