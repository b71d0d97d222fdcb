/* json_reader.c - tokens, containers and numbers of JSON text. Strings are in json_string.c. */
#include "io/json_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

void json_open(struct json_reader *r, const char *text, size_t nbytes, const char *file,
               binade_error *err) {
    *r = (struct json_reader){.text = text, .nbytes = nbytes, .file = file, .err = err};
    if (nbytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        json_fail(r, "begins with a byte order mark, which JSON must not");
}

binade_status json_close(struct json_reader *r) {
    free(r->scratch);
    r->scratch = NULL;
    r->scratch_nbytes = 0;
    return r->status;
}

void json_stop(struct json_reader *r, binade_status status) {
    if (!r->status) r->status = status;
}

void json_fail(struct json_reader *r, const char *format, ...) {
    if (r->status) return;
    r->status = BINADE_E_DATA;
    if (!r->err) return;
    char what[BINADE_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    unsigned long long byte = (unsigned long long)(r->base + r->pos);
    if (r->noun)
        fail(r->err, r->status, "%s: %s %s: byte %llu: %s", quote_path(r->file).text, r->noun,
             quote(r->subject, r->subject_nbytes).text, byte, what);
    else
        fail(r->err, r->status, "%s: byte %llu: %s", quote_path(r->file).text, byte, what);
}

bool json_fail_expected(struct json_reader *r, const char *what) {
    if (r->pos >= r->nbytes) {
        json_fail(r, "expected %s, found the end of the text", what);
        return false;
    }
    uint32_t code;
    unsigned length = utf8_decode(r->text + r->pos, r->nbytes - r->pos, &code);
    json_fail(r, "expected %s, found '%s'", what,
              quote(r->text + r->pos, length ? length : 1).text);
    return false;
}

static void skip_space(struct json_reader *r) {
    while (r->pos < r->nbytes) {
        char c = r->text[r->pos];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') break;
        r->pos++;
    }
}

enum json_kind json_peek(struct json_reader *r) {
    if (r->status) return JSON_ERROR;
    skip_space(r);
    if (r->pos >= r->nbytes) return JSON_ERROR;
    char c = r->text[r->pos];
    switch (c) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
        return JSON_TRUE;
    case 'f':
        return JSON_FALSE;
    case 'n':
        return JSON_NULL;
    default:
        return c == '-' || (c >= '0' && c <= '9') ? JSON_NUMBER : JSON_ERROR;
    }
}

static bool enter(struct json_reader *r, enum json_kind kind, const char *what) {
    if (json_peek(r) != kind) return json_fail_expected(r, what);
    if (r->depth >= JSON_DEPTH_MAX) {
        json_fail(r, "objects and arrays nest deeper than %d", JSON_DEPTH_MAX);
        return false;
    }
    r->depth++;
    r->pos++;
    r->first = true;
    return true;
}

bool json_enter_object(struct json_reader *r) {
    return enter(r, JSON_OBJECT, "an object");
}

bool json_enter_array(struct json_reader *r) {
    return enter(r, JSON_ARRAY, "an array");
}

/* Steps to just before the next member; false at `closing`, which is consumed, and on error. */
static bool step(struct json_reader *r, char closing, const char *what) {
    if (r->status) return false;
    skip_space(r);
    if (r->pos < r->nbytes && r->text[r->pos] == closing) {
        r->pos++;
        r->depth--;
        r->first = false;
        return false;
    }
    if (!r->first) {
        if (r->pos >= r->nbytes || r->text[r->pos] != ',') return json_fail_expected(r, what);
        r->pos++;
    }
    r->first = false;
    return true;
}

bool json_next_key(struct json_reader *r, struct json_string *key) {
    if (!step(r, '}', "',' or '}'")) return false;
    if (json_peek(r) != JSON_STRING) return json_fail_expected(r, "a key in quotes");
    if (!json_read_string(r, key)) return false;
    skip_space(r);
    if (r->pos >= r->nbytes || r->text[r->pos] != ':') return json_fail_expected(r, "':'");
    r->pos++;
    return true;
}

bool json_next_element(struct json_reader *r) {
    return step(r, ']', "',' or ']'");
}

bool json_end(struct json_reader *r) {
    if (r->status) return false;
    skip_space(r);
    return r->pos == r->nbytes || json_fail_expected(r, "the end of the text");
}

static bool read_word(struct json_reader *r, const char *word) {
    size_t length = strlen(word);
    if (r->nbytes - r->pos < length || memcmp(r->text + r->pos, word, length) != 0)
        return json_fail_expected(r, word);
    r->pos += length;
    return true;
}

bool json_read_bool(struct json_reader *r, bool *value) {
    enum json_kind kind = json_peek(r);
    if (kind != JSON_TRUE && kind != JSON_FALSE) return json_fail_expected(r, "true or false");
    *value = kind == JSON_TRUE;
    return read_word(r, *value ? "true" : "false");
}

bool json_read_null(struct json_reader *r) {
    if (json_peek(r) != JSON_NULL) return json_fail_expected(r, "null");
    return read_word(r, "null");
}

static bool skip_digits(struct json_reader *r) {
    size_t begin = r->pos;
    while (r->pos < r->nbytes && r->text[r->pos] >= '0' && r->text[r->pos] <= '9')
        r->pos++;
    return r->pos > begin || json_fail_expected(r, "a digit");
}

static bool next_is(const struct json_reader *r, const char *set) {
    return r->pos < r->nbytes && r->text[r->pos] != '\0' && strchr(set, r->text[r->pos]);
}

bool json_skip_number(struct json_reader *r, size_t *begin, size_t *end) {
    if (json_peek(r) != JSON_NUMBER) return json_fail_expected(r, "a number");
    *begin = r->pos;
    if (next_is(r, "-")) r->pos++;
    if (next_is(r, "0")) {
        r->pos++;
        if (next_is(r, "0123456789")) {
            json_fail(r, "a number begins with 0");
            return false;
        }
    } else if (!skip_digits(r)) {
        return false;
    }
    if (next_is(r, ".")) {
        r->pos++;
        if (!skip_digits(r)) return false;
    }
    if (next_is(r, "eE")) {
        r->pos++;
        if (next_is(r, "+-")) r->pos++;
        if (!skip_digits(r)) return false;
    }
    *end = r->pos;
    return true;
}

bool json_read_u64(struct json_reader *r, uint64_t *value) {
    size_t begin, end;
    if (!json_skip_number(r, &begin, &end)) return false;
    uint64_t sum = 0;
    for (size_t at = begin; at < end; at++) {
        unsigned digit = (unsigned)(r->text[at] - '0');
        /* A sign, a point or an exponent is not a digit. */
        if (digit > 9 || sum > (UINT64_MAX - digit) / 10) {
            r->pos = begin;
            json_fail(r, "expected an integer from 0 to 2^64 - 1, found %s",
                      quote(r->text + begin, end - begin).text);
            return false;
        }
        sum = sum * 10 + digit;
    }
    *value = sum;
    return true;
}

/* strtod follows the process's locale, which belongs to the program around this library: the
 * point is replaced by whatever that locale prints. */
bool json_read_double(struct json_reader *r, double *value) {
    size_t begin, end;
    char text[256], probe[16];
    if (!json_skip_number(r, &begin, &end)) return false;
    snprintf(probe, sizeof probe, "%.1f", 0.5);
    size_t npoint = strlen(probe) - 2, length = 0;
    for (size_t at = begin; at < end; at++) {
        if (length + npoint + 1 > sizeof text) {
            r->pos = begin;
            json_fail(r, "a number has more than 250 characters");
            return false;
        }
        bool is_point = r->text[at] == '.';
        memcpy(text + length, is_point ? probe + 1 : r->text + at, is_point ? npoint : 1);
        length += is_point ? npoint : 1;
    }
    text[length] = '\0';
    *value = strtod(text, NULL);
    return true;
}
