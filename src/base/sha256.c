/* sha256.c - see sha256.h. */
#include "base/sha256.h"

#include <openssl/evp.h>
#include <stdlib.h>

/* OpenSSL's calls fail only for want of memory or of the algorithm, which sha256_new finds out. */
struct sha256 {
    EVP_MD_CTX *context;
};

struct sha256 *sha256_new(void) {
    struct sha256 *s = malloc(sizeof *s);
    if (!s) return NULL;
    s->context = EVP_MD_CTX_new();
    if (s->context && EVP_DigestInit_ex(s->context, EVP_sha256(), NULL)) return s;
    sha256_free(s);
    return NULL;
}

void sha256_reset(struct sha256 *s) {
    EVP_DigestInit_ex(s->context, EVP_sha256(), NULL);
}

void sha256_update(struct sha256 *s, const void *data, size_t nbytes) {
    EVP_DigestUpdate(s->context, data, nbytes);
}

void sha256_final(struct sha256 *s, uint8_t digest[SHA256_NBYTES]) {
    EVP_DigestFinal_ex(s->context, digest, NULL);
}

void sha256_free(struct sha256 *s) {
    if (!s) return;
    EVP_MD_CTX_free(s->context);
    free(s);
}
