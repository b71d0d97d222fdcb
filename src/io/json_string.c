/* json_string.c - JSON strings: checked once, then unescaped without further checks of meaning. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "io/json_reader.h"

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* Four hex digits at text, or -1. */
static int32_t decode_hex(const char *text) {
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* The length of the escape at text[0] == '\\' and its code point; 0 if it is not valid. A surrogate
 * pair is one escape of 12 bytes; half a pair is not valid. */
static unsigned decode_escape(const char *text, size_t nbytes, uint32_t *code) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    if (nbytes < 2) return 0;
    if (text[1] != 'u') {
        const char *letter = text[1] ? strchr(letters, text[1]) : NULL;
        if (!letter) return 0;
        *code = (unsigned char)meanings[letter - letters];
        return 2;
    }
    int32_t high = nbytes >= 6 ? decode_hex(text + 2) : -1;
    if (high < 0 || (high >= 0xDC00 && high < 0xE000)) return 0;
    *code = (uint32_t)high;
    if (high < 0xD800 || high >= 0xE000) return 6;
    if (nbytes < 12 || text[6] != '\\' || text[7] != 'u') return 0;
    int32_t low = decode_hex(text + 8);
    if (low < 0xDC00 || low >= 0xE000) return 0;
    *code = 0x10000 + (((uint32_t)high - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
    return 12;
}

/* The length of what stands at r->pos inside a string, not plain and not the closing quote. */
static size_t check_special(struct json_reader *r) {
    const char *text = r->text + r->pos;
    size_t left = r->nbytes - r->pos;
    uint32_t code;
    if (text[0] == '\\') {
        unsigned length = decode_escape(text, left, &code);
        if (!length)
            json_fail(r, "expected a valid escape and whole surrogate pairs, found %s",
                      quote(text, left < 12 ? left : 12).text);
        return length;
    }
    if ((unsigned char)text[0] < 0x20) {
        json_fail(r, "control character %s in a string, expected an escape", quote(text, 1).text);
        return 0;
    }
    unsigned length = utf8_decode(text, left, &code);
    if (!length) json_fail(r, "invalid UTF-8 %s in a string", quote(text, 1).text);
    return length;
}

bool json_skip_string(struct json_reader *r, size_t *begin, size_t *end) {
    if (json_peek(r) != JSON_STRING) return json_fail_expected(r, "a string");
    *begin = ++r->pos;
    for (;;) {
        while (r->pos < r->nbytes && is_plain((unsigned char)r->text[r->pos]))
            r->pos++;
        if (r->pos >= r->nbytes) {
            json_fail(r, "the text ends inside a string");
            return false;
        }
        if (r->text[r->pos] == '"') break;
        size_t length = check_special(r);
        if (length == 0) return false;
        r->pos += length;
    }
    *end = r->pos++;
    return true;
}

static unsigned encode_utf8(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    unsigned length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (unsigned i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[length] | code);
    return length;
}

binade_status json_unescape(const char *text, size_t nbytes, json_sink write, void *user,
                            binade_error *err) {
    /* Gathered, so that text full of escapes does not cost a call for each. */
    char room[4096];
    size_t filled = 0;
    for (size_t at = 0; at < nbytes;) {
        const char *next = memchr(text + at, '\\', nbytes - at);
        size_t run = (next ? (size_t)(next - text) : nbytes) - at;
        if (filled + run > sizeof room - 4) {
            binade_status status = write(user, room, filled, err);
            if (status) return status;
            filled = 0;
            if (run > sizeof room - 4) run = sizeof room - 4;
        }
        memcpy(room + filled, text + at, run);
        filled += run;
        at += run;
        if (at >= nbytes || text[at] != '\\') continue;
        uint32_t code;
        unsigned length = decode_escape(text + at, nbytes - at, &code);
        if (!length) return fail(err, BINADE_E_DATA, "invalid escape in a JSON string");
        filled += encode_utf8(code, room + filled);
        at += length;
    }
    return filled ? write(user, room, filled, err) : BINADE_OK;
}

static binade_status append(void *user, const char *text, size_t nbytes, binade_error *err) {
    (void)err;
    char **end = user;
    memcpy(*end, text, nbytes);
    *end += nbytes;
    return BINADE_OK;
}

bool json_read_string(struct json_reader *r, struct json_string *s) {
    size_t begin, end;
    if (!json_skip_string(r, &begin, &end)) return false;
    /* Unescaping never lengthens: six bytes become at most three, twelve become four. */
    size_t raw = end - begin;
    if (raw >= r->scratch_nbytes) {
        char *scratch = realloc(r->scratch, raw + raw / 2 + 64);
        if (!scratch) {
            json_stop(r, fail_memory(r->err));
            return false;
        }
        r->scratch = scratch;
        r->scratch_nbytes = raw + raw / 2 + 64;
    }
    char *tail = r->scratch;
    if (memchr(r->text + begin, '\\', raw)) {
        binade_status status = json_unescape(r->text + begin, raw, append, &tail, r->err);
        if (status) {
            json_stop(r, status);
            return false;
        }
    } else {
        append(&tail, r->text + begin, raw, NULL);
    }
    *tail = '\0';
    *s = (struct json_string){r->scratch, (size_t)(tail - r->scratch)};
    return true;
}
