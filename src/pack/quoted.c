/* quoted.c - the texts and bytes that the manifest quotes; see manifest.h. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "pack/manifest.h"

struct expansion {
    char *text;
    uint64_t nbytes, capacity;
};

static binade_status count(void *user, const char *text, size_t nbytes, binade_error *err) {
    uint64_t *total = user;
    (void)text, (void)err;
    *total += nbytes;
    return BINADE_OK;
}

binade_status escaped_text_length(const struct escaped_text *t, uint64_t *nbytes,
                                  binade_error *err) {
    *nbytes = 0;
    return json_unescape(t->text, t->nbytes, count, nbytes, err);
}

static binade_status append(void *user, const char *text, size_t nbytes, binade_error *err) {
    struct expansion *x = user;
    if (nbytes > x->capacity - x->nbytes)
        return fail(err, BINADE_E_DATA, "longer than the recorded %" PRIu64 " bytes", x->capacity);
    memcpy(x->text + x->nbytes, text, nbytes);
    x->nbytes += nbytes;
    return BINADE_OK;
}

binade_status escaped_text_expand(const struct escaped_text *t, uint64_t nbytes, const char *what,
                                  char **text, binade_error *err) {
    /* Unescaping never makes text longer, so a lying size is found before memory is taken for it.
     */
    *text = NULL;
    if (nbytes > t->nbytes)
        return fail(err, BINADE_E_DATA,
                    "%s: recorded with %" PRIu64 " bytes, its text has at most %zu",
                    quote_path(what).text, nbytes, t->nbytes);
    struct expansion x = {malloc((size_t)nbytes + 1), 0, nbytes};
    if (!x.text) return fail_memory(err);
    binade_status status = json_unescape(t->text, t->nbytes, append, &x, err);
    if (!status && x.nbytes != nbytes)
        status =
            fail(err, BINADE_E_DATA, "%s: recorded with %" PRIu64 " bytes, its text has %" PRIu64,
                 quote_path(what).text, nbytes, x.nbytes);
    if (status) {
        free(x.text);
        return status;
    }
    x.text[nbytes] = 0;
    *text = x.text;
    return BINADE_OK;
}

binade_status gap_expand(const struct gap *gap, const char *what, uint8_t **data,
                         binade_error *err) {
    *data = NULL;
    if (!gap->base64.text) return BINADE_OK;
    size_t length = gap->base64.nbytes;
    if (length > INT32_MAX || length % 4 || ceil_div(gap->nbytes, 3) != length / 4)
        return fail(err, BINADE_E_DATA, "%s: a gap of %" PRIu64 " bytes is recorded by %zu digits",
                    quote_path(what).text, gap->nbytes, length);
    uint8_t *out = malloc(length / 4 * 3 + 1);
    if (!out) return fail_memory(err);
    /* It skips white space, and then decodes less. */
    if (EVP_DecodeBlock(out, (const uint8_t *)gap->base64.text, (int)length) !=
        (int)(length / 4 * 3)) {
        free(out);
        return fail(err, BINADE_E_DATA, "%s: a gap is recorded by invalid base64",
                    quote_path(what).text);
    }
    *data = out;
    return BINADE_OK;
}
