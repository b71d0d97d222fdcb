/* test_json.c - proves that the JSON reader takes exactly RFC 8259 (with unique keys where it
 * skips, whole surrogate pairs and valid UTF-8), that nothing it refuses is read past its end, and
 * that the writer escapes as Python's json module does. */
#include "io/json_reader.h"
#include "io/json_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Last: it has a macro called fail. */
#include <cmocka.h>

/* Checks a whole text. The copy has no byte to spare, so that a sanitizer sees a read too far. */
static binade_status check(const char *text, size_t nbytes, binade_error *err) {
    char *copy = malloc(nbytes ? nbytes : 1);
    assert_non_null(copy);
    memcpy(copy, text, nbytes);
    struct json_reader r;
    json_open(&r, copy, nbytes, "some/file.json", err);
    bool good = json_skip(&r, NULL, NULL) && json_end(&r);
    binade_status status = json_close(&r);
    assert_int_equal(good, status == BINADE_OK);
    free(copy);
    return status;
}

static void test_accepts(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "0",
        "-0",
        "-12.5e+30",
        "1E5",
        "0.1",
        "null",
        "true",
        "false",
        "\"\"",
        " \t\r\n[ 1 , 2 ]\n ",
        "{\"a\":{\"a\":[{\"a\":1}]},\"b\":{\"a\":2}}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uFFFF\\ud83d\\uDE00\"",
        "\"\xC3\xA9\xF0\x9F\x98\x80\x7F\"",
        "{\"\":0}",
        "[[],[[]],{},\"x\"]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        binade_error err = {""};
        if (check(texts[i], strlen(texts[i]), &err)) fail_msg("%s: %s", texts[i], err.message);
    }
}

static void test_refuses(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "expected a value, found the end"},
        {" ", "found the end"},
        {"{", "expected a key in quotes, found the end"},
        {"[1", "expected ',' or ']', found the end"},
        {"[1,]", "expected a value, found ']'"},
        {"[,1]", "found ','"},
        {"[1 2]", "expected ',' or ']', found '2'"},
        {"{\"a\":1,}", "expected a key in quotes, found '}'"},
        {"{,}", "expected a key in quotes, found ','"},
        {"{a:1}", "found 'a'"},
        {"{1:1}", "found '1'"},
        {"{\"a\" 1}", "expected ':', found '1'"},
        {"{\"a\":}", "expected a value, found '}'"},
        {"{\"a\":1]", "found ']'"},
        {"[1}", "found '}'"},
        {"]", "found ']'"},
        {"{} {}", "expected the end of the text, found '{'"},
        {"1 x", "found 'x'"},
        {"'a'", "found '''"},
        {"01", "begins with 0"},
        {"-01", "begins with 0"},
        {"00", "begins with 0"},
        {"-", "expected a digit"},
        {"+1", "found '+'"},
        {".5", "found '.'"},
        {"5.", "expected a digit"},
        {"1e", "expected a digit"},
        {"1e+", "expected a digit"},
        {"1.e5", "expected a digit"},
        {"0x10", "found 'x'"},
        {"NaN", "found 'N'"},
        {"Infinity", "found 'I'"},
        {"-Infinity", "expected a digit, found 'I'"},
        {"tru", "expected true"},
        {"nul", "expected null"},
        {"True", "found 'T'"},
        {"// c\n1", "found '/'"},
        {"/* c */1", "found '/'"},
        {"\"", "ends inside a string"},
        {"\"abc", "ends inside a string"},
        {"\"a\nb\"", "control character \\x0a in a string"},
        {"\"a\tb\"", "control character"},
        {"\"\x1f\"", "control character \\x1f"},
        {"\"\\", "escape"},
        {"\"\\\"", "ends inside a string"},
        {"\"\\a\"", "escape"},
        {"\"\\x41\"", "escape"},
        {"\"\\u12\"", "escape"},
        {"\"\\u12G4\"", "escape"},
        {"\"\\u123", "escape"},
        {"\"\\U0041\"", "escape"},
        {"\"\\ud800\"", "surrogate pairs, found \\ud800"},
        {"\"\\udc00\"", "surrogate"},
        {"\"\\udc00\\ud800\"", "surrogate"},
        {"\"\\ud800\\ud800\"", "surrogate"},
        {"\"\\ud800\\u0041\"", "surrogate"},
        {"\"\\ud800\\n12345\"", "surrogate"},
        {"\"\\ud83d\\uDE0\"", "surrogate"},
        {"\"\x80\"", "invalid UTF-8 \\x80"},
        {"\"\xC0\x80\"", "invalid UTF-8"},
        {"\"\xC3\"", "invalid UTF-8"},
        {"\"\xE0\x80\x80\"", "invalid UTF-8"},
        {"\"\xED\xA0\x80\"", "invalid UTF-8"},
        {"\"\xF4\x90\x80\x80\"", "invalid UTF-8"},
        {"\"\xF0\x9F\x98", "invalid UTF-8"},
        {"\"\xFF\"", "invalid UTF-8"},
        {"\xEF\xBB\xBF{}", "byte order mark"},
        {"\xC2\xA0{}", "found '\xC2\xA0'"},
        {"\f1", "found '\\x0c'"},
        {"{\"a\":1,\"a\":2}", "byte 6: key a occurs twice"},
        {"{\"a\":1,\"b\":{\"x\":1},\"\\u0061\":2}", "key a occurs twice"},
        {"[{\"b\":{\"a\":1,\"c\":0,\"a\":2}}]", "key a occurs twice"},
        {"{\"\":1,\"\":2}", "key  occurs twice"},
        {"{\"a\\u0000b\":1,\"a\\u0000b\":2}", "key a\\x00b occurs twice"},
        {"{\"0\":0,\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,\"7\":0,\"8\":0,\"4\":0}",
         "key 4 occurs twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        binade_error err = {""};
        binade_status status = check(cases[i].text, strlen(cases[i].text), &err);
        if (status != BINADE_E_DATA || !strstr(err.message, cases[i].says))
            fail_msg("%s: status %d, \"%s\", expected \"%s\"", cases[i].text, status, err.message,
                     cases[i].says);
        assert_true(strncmp(err.message, "some/file.json: byte ", 21) == 0);
        assert_null(strchr(err.message, '\n'));
    }
    assert_int_equal(check("1\0", 2, NULL), BINADE_E_DATA);
    assert_int_equal(check("\"\0\"", 3, NULL), BINADE_E_DATA);
    assert_int_equal(check("\"\\\0\"", 4, NULL), BINADE_E_DATA);
}

static void test_depth(void **state) {
    (void)state;
    char text[2 * JSON_DEPTH_MAX + 3];
    binade_error err = {""};
    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    assert_int_equal(check(text, 2 * JSON_DEPTH_MAX, &err), BINADE_OK);
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    assert_int_equal(check(text, 2 * JSON_DEPTH_MAX + 2, &err), BINADE_E_DATA);
    assert_non_null(strstr(err.message, "deeper than 64"));
    char *deep = malloc(10000000);
    assert_non_null(deep);
    memset(deep, '[', 10000000);
    assert_int_equal(check(deep, 10000000, &err), BINADE_E_DATA);
    free(deep);
}

/* Every prefix of a valid text is refused, except where it is a text itself. */
static void test_prefixes(void **state) {
    (void)state;
    static const char text[] =
        "{\"a\\u00e9\\ud83d\\ude00\":[1,-2.5e-3,true,false,null,\"\xC3\xA9\"],\"b\":{\"c\":{}}}";
    for (size_t n = 0; n < sizeof text - 1; n++)
        assert_int_equal(check(text, n, NULL), BINADE_E_DATA);
    assert_int_equal(check(text, sizeof text - 1, NULL), BINADE_OK);
}

static void test_reads_values(void **state) {
    (void)state;
    static const char text[] = "{\"s\":\"a\\u0000\\ud83d\\ude00\",\"n\":[0,18446744073709551615],"
                               "\"d\":-2.5e-1,\"b\":true,\"x\":null}";
    binade_error err;
    struct json_reader r;
    struct json_string s;
    uint64_t n;
    double d;
    bool b;
    json_open(&r, text, sizeof text - 1, "f", &err);
    assert_true(json_enter_object(&r) && json_next_key(&r, &s));
    assert_string_equal(s.text, "s");
    assert_true(json_read_string(&r, &s));
    assert_int_equal(s.nbytes, 6);
    assert_memory_equal(s.text, "a\0\xF0\x9F\x98\x80", 7);
    assert_true(json_next_key(&r, &s) && json_enter_array(&r));
    assert_true(json_next_element(&r) && json_read_u64(&r, &n) && n == 0);
    assert_true(json_next_element(&r) && json_read_u64(&r, &n) && n == UINT64_MAX);
    assert_false(json_next_element(&r));
    assert_true(json_next_key(&r, &s) && json_read_double(&r, &d) && d == -0.25);
    assert_true(json_next_key(&r, &s) && json_read_bool(&r, &b) && b);
    assert_true(json_next_key(&r, &s) && json_peek(&r) == JSON_NULL && json_read_null(&r));
    assert_false(json_next_key(&r, &s));
    assert_true(json_end(&r));
    assert_int_equal(json_close(&r), BINADE_OK);
}

static void test_integers(void **state) {
    (void)state;
    static const char *const texts[] = {
        "-1",   "-0",    "1.0", "1e3", "18446744073709551616", "1E0", "99999999999999999999",
        "true", "\"1\"", "[1]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        binade_error err = {""};
        struct json_reader r;
        uint64_t n;
        json_open(&r, texts[i], strlen(texts[i]), "f", &err);
        assert_false(json_read_u64(&r, &n));
        assert_int_equal(json_close(&r), BINADE_E_DATA);
        assert_non_null(strstr(err.message, "expected "));
    }
}

/* The first failure stays, whatever is tried after it. */
static void test_errors_stick(void **state) {
    (void)state;
    binade_error err = {""};
    struct json_reader r;
    struct json_string s;
    uint64_t n;
    json_open(&r, "[x, 1]", 6, "f", &err);
    r.noun = "tensor";
    r.subject = "a\nb";
    r.subject_nbytes = 3;
    assert_true(json_enter_array(&r) && json_next_element(&r));
    assert_false(json_read_u64(&r, &n));
    assert_string_equal(err.message, "f: tensor a\\x0ab: byte 1: expected a number, found 'x'");
    assert_false(json_next_element(&r) || json_read_string(&r, &s) || json_end(&r) ||
                 json_skip(&r, NULL, NULL) || json_enter_object(&r) || json_next_key(&r, &s));
    json_fail(&r, "another");
    assert_string_equal(err.message, "f: tensor a\\x0ab: byte 1: expected a number, found 'x'");
    assert_int_equal(json_close(&r), BINADE_E_DATA);
}

static binade_status collect(void *user, const char *text, size_t nbytes, binade_error *err) {
    return buffer_put(user, text, nbytes, err);
}

/* What the writer makes of a string, and back, by both ways of reading. */
static void check_round_trip(const char *text, size_t nbytes) {
    binade_error err;
    struct buffer b = {0}, back = {0};
    struct json_reader r;
    struct json_string s;
    size_t begin, end;
    assert_int_equal(json_put_string(&b, text, nbytes, &err), BINADE_OK);
    json_open(&r, b.data, b.nbytes, "f", &err);
    assert_true(json_read_string(&r, &s) && json_end(&r));
    assert_int_equal(s.nbytes, nbytes);
    assert_memory_equal(s.text, text, nbytes);
    r.pos = 0;
    assert_true(json_skip_string(&r, &begin, &end));
    assert_int_equal(json_unescape(b.data + begin, end - begin, collect, &back, &err), BINADE_OK);
    assert_int_equal(back.nbytes, nbytes);
    if (nbytes) assert_memory_equal(back.data, text, nbytes);
    json_close(&r);
    buffer_free(&b);
    buffer_free(&back);
}

static void test_round_trips(void **state) {
    (void)state;
    static char text[70000];
    check_round_trip("", 0);
    check_round_trip("a\0b\"\\/\n\x7F", 8);
    /* Escapes at every distance from the ends of the pieces that are handed out. */
    for (size_t shift = 0; shift < 16; shift++) {
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = 'x';
        for (size_t i = shift; i + 4 < sizeof text; i += 4091)
            memcpy(text + i, "\xF0\x9F\x98\x80", 4);
        check_round_trip(text, sizeof text);
    }
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i % 3 ? '\n' : '\0');
    check_round_trip(text, sizeof text);
    for (size_t i = 0; i < sizeof text; i += 4)
        memcpy(text + i, "\xF0\x9F\x98\x80", 4);
    check_round_trip(text, sizeof text);
}

static void test_writer(void **state) {
    (void)state;
    static const char text[] = "~ \"\\/\n\r\t\f\b\x01\x7F\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80";
    binade_error err;
    struct buffer b = {0};
    assert_int_equal(json_put_string(&b, text, sizeof text, &err), BINADE_OK);
    static const char expected[] = "\"~ \\\"\\\\/\\n\\r\\t\\f\\b\\u0001\\u007f\\u00e9\\u2028"
                                   "\\ud83d\\ude00\\u0000\"";
    assert_int_equal(b.nbytes, sizeof expected - 1);
    assert_memory_equal(b.data, expected, b.nbytes);
    assert_int_equal(json_put_string(&b, "\xFF", 1, &err), BINADE_E_DATA);
    buffer_free(&b);
}

/* A million keys in one object: quadratic work would take hours. */
static void test_many_keys(void **state) {
    (void)state;
    struct buffer b = {0};
    binade_error err;
    for (int i = 0; i < 1000000; i++)
        assert_int_equal(buffer_put_text(&b, &err, "%c\"key%d\":0", i ? ',' : '{', i), BINADE_OK);
    assert_int_equal(buffer_put_text(&b, &err, "}"), BINADE_OK);
    assert_int_equal(check(b.data, b.nbytes, &err), BINADE_OK);
    b.nbytes--;
    assert_int_equal(buffer_put_text(&b, &err, ",\"key77\":0}"), BINADE_OK);
    assert_int_equal(check(b.data, b.nbytes, &err), BINADE_E_DATA);
    assert_non_null(strstr(err.message, "key key77 occurs twice"));
    buffer_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),      cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_depth),        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_reads_values), cmocka_unit_test(test_integers),
        cmocka_unit_test(test_errors_stick), cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_writer),       cmocka_unit_test(test_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
