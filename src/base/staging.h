/* staging.h - a directory that appears whole or not at all.
 *
 * It is built under a hidden name beside its place (hidden_dir.h) and renamed when complete. A
 * killed process leaves only such a hidden directory; the next staging_open for the same place
 * removes it.
 */
#ifndef BINADE_BASE_STAGING_H
#define BINADE_BASE_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct staging {
    char *final;  /* where it will appear */
    char *parent; /* the directory that holds both */
    char *path;   /* where it is built; NULL: not open */
    int lock;     /* descriptor of path, locked while open */
    size_t made;  /* length of the uppermost directory above `final` that had to be made, or 0 */
    bool replace;
};

/* Prepares to make the directory `final`. Refused: an existing non-empty `final` unless `replace`;
 * an existing one that is a mount point or that others alone may replace; `final` equal to, inside
 * of or, when replacing, around the directory `source`. */
binade_status staging_open(struct staging *s, const char *final, const char *source, bool replace,
                           binade_error *err);
/* BINADE_E_IO if the file system of the place has less than nbytes free. */
binade_status staging_require(const struct staging *s, uint64_t nbytes, binade_error *err);
/* Syncs the directories, moves the whole into place, syncs what holds it. A failure leaves the
 * place as it was; staging_discard still applies. */
binade_status staging_commit(struct staging *s, binade_error *err);
/* Removes what was built, if it was not committed, and the directories above that were made for it;
 * accepts a zeroed or committed one. */
void staging_discard(struct staging *s);

/* Makes the directories above the relative file path `name` inside the staged directory. */
binade_status staging_make_parents(const struct staging *s, const char *name, binade_error *err);

#endif
