/* status.c - the sentence of a failure, and names made safe to appear in it. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"

/* A cut in the middle of a UTF-8 sequence would make the whole message invalid. */
static size_t cut_at_code_point(const char *text, size_t nbytes) {
    size_t end = nbytes;
    while (end > 0 && ((unsigned char)text[end - 1] & 0xC0) == 0x80)
        end--;
    if (end > 0 && (unsigned char)text[end - 1] >= 0xC0) end--;
    uint32_t code;
    unsigned length = end < nbytes ? utf8_decode(text + end, nbytes - end, &code) : 0;
    return length > 0 && end + length == nbytes ? nbytes : end;
}

/* Formats into room[0..capacity) first, since the arguments may point into the message that is to
 * be replaced. Returns the length. */
static size_t format_sentence(char *room, size_t capacity, const char *format, va_list args) {
    int wanted = vsnprintf(room, capacity, format, args);
    if (wanted < 0) wanted = 0;
    if ((size_t)wanted < capacity) return (size_t)wanted;
    size_t kept = cut_at_code_point(room, capacity - 1);
    room[kept] = '\0';
    return kept;
}

binade_status fail(binade_error *err, binade_status status, const char *format, ...) {
    if (!err) return status;
    char room[BINADE_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    size_t nbytes = format_sentence(room, sizeof room, format, args);
    va_end(args);
    memcpy(err->message, room, nbytes + 1);
    return status;
}

static const char *describe_errno(int code, char *room, size_t capacity) {
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
    return strerror_r(code, room, capacity);
#else
    return strerror_r(code, room, capacity) == 0 ? room : "unknown error";
#endif
}

binade_status fail_errno(binade_error *err, int code, const char *format, ...) {
    binade_status status = code == ENOMEM ? BINADE_E_MEMORY : BINADE_E_IO;
    if (!err) return status;
    char reason[128];
    const char *why = describe_errno(code, reason, sizeof reason);
    char room[BINADE_MESSAGE_MAX - sizeof reason - 2];
    va_list args;
    va_start(args, format);
    format_sentence(room, sizeof room, format, args);
    va_end(args);
    snprintf(err->message, sizeof err->message, "%s: %.*s", room, (int)sizeof reason, why);
    return status;
}

binade_status fail_memory(binade_error *err) {
    return fail(err, BINADE_E_MEMORY, "out of memory");
}

/* Writes the printable form of the next code point or bad byte to piece (at most 16 bytes, no NUL)
 * and its length to *npiece; returns the bytes consumed. */
static size_t quote_next(const char *text, size_t nbytes, char *piece, size_t *npiece) {
    uint32_t code;
    unsigned length = utf8_decode(text, nbytes, &code);
    bool bad = length == 0;
    if (bad) length = 1;
    if (!bad && code >= 0x20 && !(code >= 0x7F && code < 0xA0) && code != 0x2028 &&
        code != 0x2029) {
        memcpy(piece, text, length);
        *npiece = length;
        return length;
    }
    static const char digits[] = "0123456789abcdef";
    *npiece = 0;
    for (unsigned i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        const char escape[4] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        memcpy(piece + *npiece, escape, 4);
        *npiece += 4;
    }
    return length;
}

struct quoted quote(const char *text, size_t nbytes) {
    struct quoted q;
    size_t filled = 0, cut = 0; /* cut: where the dots go if it turns out too long */
    for (size_t at = 0; at < nbytes;) {
        char piece[16];
        size_t npiece;
        at += quote_next(text + at, nbytes - at, piece, &npiece);
        if (filled + npiece > QUOTED_MAX) {
            memcpy(q.text + cut, "...", 3);
            filled = cut + 3;
            break;
        }
        memcpy(q.text + filled, piece, npiece);
        filled += npiece;
        if (filled <= QUOTED_MAX - 3) cut = filled;
    }
    q.text[filled] = '\0';
    return q;
}

struct quoted quote_path(const char *path) {
    size_t nbytes = strlen(path), total = 0, npiece, skipped = 0;
    char piece[16];
    for (size_t at = 0; at < nbytes; total += npiece)
        at += quote_next(path + at, nbytes - at, piece, &npiece);
    if (total <= QUOTED_MAX) return quote(path, nbytes);
    for (; total > QUOTED_MAX - 3; total -= npiece)
        skipped += quote_next(path + skipped, nbytes - skipped, piece, &npiece);
    struct quoted rest = quote(path + skipped, nbytes - skipped), q;
    snprintf(q.text, sizeof q.text, "...%.*s", QUOTED_MAX - 3, rest.text);
    return q;
}
