/* json_writer.c - JSON strings in pure ASCII. */
#include "io/json_writer.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static binade_status put_escape(struct buffer *b, uint32_t code, binade_error *err) {
    static const char codes[] = "\"\\\n\r\t\f\b";
    static const char letters[] = "\"\\nrtfb";
    const char *known = code != 0 && code < 0x80 ? strchr(codes, (int)code) : NULL;
    if (known) {
        const char escape[2] = {'\\', letters[known - codes]};
        return buffer_put(b, escape, 2, err);
    }
    char escape[16];
    int length;
    if (code < 0x10000)
        length = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
    else
        length = snprintf(escape, sizeof escape, "\\u%04x\\u%04x",
                          0xD800 + (unsigned)((code - 0x10000) >> 10),
                          0xDC00 + (unsigned)((code - 0x10000) & 0x3FF));
    return buffer_put(b, escape, (size_t)length, err);
}

binade_status json_put_string(struct buffer *b, const char *text, size_t nbytes,
                              binade_error *err) {
    binade_status status = buffer_put(b, "\"", 1, err);
    for (size_t at = 0; at < nbytes && !status;) {
        size_t run = at;
        while (run < nbytes && text[run] >= ' ' && text[run] <= '~' && text[run] != '"' &&
               text[run] != '\\')
            run++;
        status = buffer_put(b, text + at, run - at, err);
        at = run;
        if (status || at == nbytes) break;
        uint32_t code;
        unsigned length = utf8_decode(text + at, nbytes - at, &code);
        if (!length)
            return fail(err, BINADE_E_DATA, "%s: not valid UTF-8, expected for JSON",
                        quote(text, nbytes).text);
        status = put_escape(b, code, err);
        at += length;
    }
    return status ? status : buffer_put(b, "\"", 1, err);
}
