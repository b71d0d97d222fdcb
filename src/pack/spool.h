/* spool.h - bytes that must wait for their place in a file: in memory, past a limit in a nameless
 * temporary file. The last part of a tensor waits here until the length of the one before it is
 * known.
 */
#ifndef BINADE_PACK_SPOOL_H
#define BINADE_PACK_SPOOL_H

#include "base/buffer.h"
#include "base/file.h"

/* Memory a spool takes at most. */
enum { SPOOL_MEMORY_NBYTES = 32 << 20 };

struct spool {
    const char *dir; /* for the temporary file; NULL: all stays in memory */
    struct buffer memory;
    struct file file; /* holds [0, file.nbytes), memory what comes behind */
    uint64_t nbytes;
};

void spool_open(struct spool *s, const char *dir);
binade_status spool_put(struct spool *s, const void *data, size_t nbytes, binade_error *err);
/* Copies `nbytes` from `offset` into `data`. */
binade_status spool_get(const struct spool *s, uint64_t offset, void *data, size_t nbytes,
                        binade_error *err);
/* Empties it for reuse. */
void spool_clear(struct spool *s);
void spool_close(struct spool *s);

#endif
