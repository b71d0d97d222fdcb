/* sha256.h - SHA-256 by OpenSSL, which uses the CPU's instructions for it. */
#ifndef BINADE_BASE_SHA256_H
#define BINADE_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SHA256_NBYTES = 32 };

struct sha256;

/* NULL when out of memory. */
struct sha256 *sha256_new(void);
void sha256_reset(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t nbytes);
/* Ends the message; reset before the next. */
void sha256_final(struct sha256 *s, uint8_t digest[SHA256_NBYTES]);
/* Accepts NULL. */
void sha256_free(struct sha256 *s);

#endif
