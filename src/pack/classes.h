/* classes.h - which tensors are packed, by name, shape and dtype (docs/FORMAT.md, "What is
 * packed"). */
#ifndef BINADE_PACK_CLASSES_H
#define BINADE_PACK_CLASSES_H

#include <stdbool.h>

#include "base/status.h"
#include "io/safetensors.h"

binade_class classify(const struct st_tensor *t);

/* A set of classes as bits 1 << class. */
#define DEFAULT_CLASSES (1u << BINADE_LINEAR | 1u << BINADE_EMBED)

/* Reads "linear,embed"; NULL gives the default. BINADE_E_USAGE names an unknown or repeated word.
 */
binade_status classes_parse(const char *list, unsigned *classes, binade_error *err);

/* BF16, 2-D or 3-D, at least one weight, of a class in the set. */
bool is_packable(const struct st_tensor *t, unsigned classes);

#endif
