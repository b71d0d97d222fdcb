#include "json_out.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "text.h"

static void put_string(FILE *out, const char *text, size_t nbytes) {
    putc('"', out);
    for (size_t i = 0; i < nbytes;) {
        uint32_t code = 0xfffd;
        unsigned length = text_decode(text + i, nbytes - i, &code);
        if (code == '"' || code == '\\')
            fprintf(out, "\\%c", (int)code);
        else if (code >= ' ' && code <= '~')
            putc((int)code, out);
        else if (code < 0x10000)
            fprintf(out, "\\u%04x", (unsigned)code);
        else
            fprintf(out, "\\u%04x\\u%04x", 0xd800 + (unsigned)((code - 0x10000) >> 10),
                    0xdc00 + (unsigned)(code & 0x3ff));
        i += length ? length : 1;
    }
    putc('"', out);
}

/* Writes what stands in front of a value: the comma and the key. */
static void begin_value(struct json_out *j, const char *key) {
    if (j->comma) fputs(", ", j->out);
    j->comma = true;
    if (!key) return;
    put_string(j->out, key, strlen(key));
    fputs(": ", j->out);
}

static void begin_container(struct json_out *j, const char *key, char bracket) {
    begin_value(j, key);
    putc(bracket, j->out);
    j->comma = false;
}

static void end_container(struct json_out *j, char bracket) {
    putc(bracket, j->out);
    j->comma = true;
}

void json_begin_object(struct json_out *j, const char *key) {
    begin_container(j, key, '{');
}

void json_end_object(struct json_out *j) {
    end_container(j, '}');
}

void json_begin_array(struct json_out *j, const char *key) {
    begin_container(j, key, '[');
}

void json_end_array(struct json_out *j) {
    end_container(j, ']');
}

void json_text(struct json_out *j, const char *key, const char *text, size_t nbytes) {
    begin_value(j, key);
    put_string(j->out, text, nbytes);
}

void json_string(struct json_out *j, const char *key, const char *text) {
    json_text(j, key, text, strlen(text));
}

void json_u64(struct json_out *j, const char *key, uint64_t value) {
    begin_value(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_double(struct json_out *j, const char *key, double value) {
    begin_value(j, key);
    if (isfinite(value))
        fprintf(j->out, "%.10g", value);
    else
        fputs("null", j->out);
}

void json_bool(struct json_out *j, const char *key, bool value) {
    begin_value(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_null(struct json_out *j, const char *key) {
    begin_value(j, key);
    fputs("null", j->out);
}

void json_finish(struct json_out *j) {
    putc('\n', j->out);
}
