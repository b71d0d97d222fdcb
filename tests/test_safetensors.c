/* test_safetensors.c - proves that a good header is read as it is written, in file order, and that
 * every header that lies or that two readers could take differently is refused in one line that
 * names the file and the tensor. */
#include "base/file.h"
#include "io/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Last: it has a macro called fail. */
#include <cmocka.h>

/* Parses a header with `data_nbytes` bytes of data behind it, from memory with no byte to spare. */
static binade_status parse(const char *text, size_t nbytes, uint64_t data_nbytes,
                           struct st_header *h, binade_error *err) {
    char *copy = malloc(nbytes ? nbytes : 1);
    assert_non_null(copy);
    memcpy(copy, text, nbytes);
    binade_status status =
        st_parse_header(copy, nbytes, 8 + nbytes + data_nbytes, "dir/m.safetensors", h, err);
    free(copy);
    return status;
}

static void test_reads(void **state) {
    (void)state;
    static const char text[] =
        " {\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},\n"
        "\"z1\" : {\"shape\":[0,18446744073709551615],\"data_offsets\":[4,4],\"dtype\":\"F32\"},\n"
        "\"__metadata__\":{\"format\":\"pt\",\"\\u0000k\":\"v\\u0000\\n\",\"\":\"\"},\n"
        "\"a\\u0000\\u00e9\":{\"data_offsets\":[0,4],\"dtype\":\"F32\",\"shape\":[]},\n"
        "\"z2\":{\"dtype\":\"odd\",\"shape\":[7],\"data_offsets\":[4,4]},\n"
        "\"f4\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[20,23]},\n"
        "\"f6\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[23,26]},\n"
        "\"u\":{\"dtype\":\"X9\",\"shape\":[3],\"data_offsets\":[26,33]}}   \n";
    static const struct {
        const char *name;
        size_t name_nbytes;
        const char *dtype;
        uint32_t ndim;
        uint64_t begin, end;
    } expected[] = {
        {"a\0\xC3\xA9", 4, "F32", 0, 0, 4}, {"b", 1, "BF16", 2, 4, 16},
        {"z1", 2, "F32", 2, 4, 4},          {"z2", 2, "odd", 1, 4, 4},
        {"f4", 2, "F4", 1, 20, 23},         {"f6", 2, "F6_E2M3", 1, 23, 26},
        {"u", 1, "X9", 1, 26, 33},
    };
    binade_error err = {""};
    struct st_header h;
    if (parse(text, sizeof text - 1, 40, &h, &err)) fail_msg("%s", err.message);
    assert_int_equal(h.header_nbytes, sizeof text - 1);
    assert_int_equal(h.data_nbytes, 40);
    assert_int_equal(h.count, sizeof expected / sizeof *expected);
    assert_int_equal(st_build_lookup(&h, &err), BINADE_OK);
    for (size_t i = 0; i < h.count; i++) {
        const struct st_tensor *t = &h.tensors[i];
        assert_int_equal(t->name_nbytes, expected[i].name_nbytes);
        assert_memory_equal(t->name, expected[i].name, t->name_nbytes + 1);
        assert_string_equal(t->dtype, expected[i].dtype);
        assert_int_equal(t->ndim, expected[i].ndim);
        assert_int_equal(t->begin, expected[i].begin);
        assert_int_equal(t->end, expected[i].end);
        assert_int_equal(st_find(&h, t->name, t->name_nbytes), i);
    }
    assert_int_equal(h.tensors[1].shape[0], 2);
    assert_int_equal(h.tensors[1].shape[1], 3);
    assert_true(h.tensors[2].shape[1] == UINT64_MAX);
    assert_int_equal(st_find(&h, "a", 1), SIZE_MAX);
    assert_int_equal(st_find(&h, "", 0), SIZE_MAX);
    assert_int_equal(h.nmetadata, 3);
    assert_string_equal(h.metadata[0].key, "format");
    assert_string_equal(h.metadata[0].value, "pt");
    assert_int_equal(h.metadata[1].key_nbytes, 2);
    assert_memory_equal(h.metadata[1].key, "\0k", 3);
    assert_int_equal(h.metadata[1].value_nbytes, 3);
    assert_memory_equal(h.metadata[1].value, "v\0\n", 4);
    assert_int_equal(h.metadata[2].key_nbytes + h.metadata[2].value_nbytes, 0);
    st_free_header(&h);
    st_free_header(&h);
}

static void test_reads_empty(void **state) {
    (void)state;
    binade_error err = {""};
    struct st_header h;
    assert_int_equal(parse("{}", 2, 0, &h, &err), BINADE_OK);
    assert_int_equal(h.count, 0);
    assert_int_equal(st_build_lookup(&h, &err), BINADE_OK);
    assert_int_equal(st_find(&h, "a", 1), SIZE_MAX);
    st_free_header(&h);
    static const char no_metadata[] = "{\"__metadata__\":null}"; /* as MLX writes it */
    assert_int_equal(parse(no_metadata, sizeof no_metadata - 1, 0, &h, &err), BINADE_OK);
    assert_int_equal(h.nmetadata, 0);
    st_free_header(&h);
}

#define T(fields) "{\"my.w\":{" fields "}}"
#define GOOD "\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]"

/* The data has 16 bytes. `names`: the sentence must name the tensor my.w. */
static const struct refusal {
    const char *text;
    bool names;
    const char *says;
} refusals[] = {
    {"  ", false, "expected an object, found the end"},
    {"[]", false, "expected an object"},
    {"{}x", false, "expected the end of the text"},
    {"{}\0", false, "expected the end of the text"},
    {"{\"my.w\":{" GOOD "}", false, "found the end"},
    {"{\"my.w\":{" GOOD "},}", false, "expected a key"},
    {"{\"my.w\":[]}", true, "expected an object, found '['"},
    {"{\"my.w\":null}", true, "expected an object"},
    {"{\"my.w\":\"x\"}", true, "expected an object"},
    {"{\"my.w\":{" GOOD "},\"my.w\":{" GOOD "}}", true, "occurs twice"},
    {"{\"my.w\":{" GOOD "},\"my\\u002ew\":{" GOOD "}}", true, "occurs twice"},
    {T(GOOD ",\"dtype\":\"BF16\""), true, "key dtype occurs twice"},
    {T(GOOD ",\"shape\":[2]"), true, "key shape occurs twice"},
    {T(GOOD ",\"data_offsets\":[0,4]"), true, "key data_offsets occurs twice"},
    {T(GOOD ",\"extra\":1"), true, "unknown key extra"},
    {T(GOOD ",\"dtype\\u0000\":1"), true, "unknown key dtype\\x00"},
    {T(""), true, "no dtype"},
    {T("\"shape\":[2],\"data_offsets\":[0,4]"), true, "no dtype"},
    {T("\"dtype\":\"BF16\",\"data_offsets\":[0,4]"), true, "no shape"},
    {T("\"dtype\":\"BF16\",\"shape\":[2]"), true, "no data_offsets"},
    {T("\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,4]"), true, "expected a string"},
    {T("\"dtype\":\"F\\u00004\",\"shape\":[2],\"data_offsets\":[0,4]"), true,
     "F\\x004 holds a NUL"},
    {T("\"dtype\":\"BF16\",\"shape\":2,\"data_offsets\":[0,4]"), true, "expected an array"},
    {T("\"dtype\":\"BF16\",\"shape\":[-2],\"data_offsets\":[0,4]"), true, "found -2"},
    {T("\"dtype\":\"BF16\",\"shape\":[2.0],\"data_offsets\":[0,4]"), true, "found 2.0"},
    {T("\"dtype\":\"BF16\",\"shape\":[2e0],\"data_offsets\":[0,4]"), true, "found 2e0"},
    {T("\"dtype\":\"BF16\",\"shape\":[02],\"data_offsets\":[0,4]"), true, "begins with 0"},
    {T("\"dtype\":\"BF16\",\"shape\":[\"2\"],\"data_offsets\":[0,4]"), true, "expected a number"},
    {T("\"dtype\":\"BF16\",\"shape\":[true],\"data_offsets\":[0,4]"), true, "expected a number"},
    {T("\"dtype\":\"BF16\",\"shape\":[[2]],\"data_offsets\":[0,4]"), true, "expected a number"},
    {T("\"dtype\":\"BF16\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]"), true,
     "found 18446744073709551616"},
    {T("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[]"), true, "has 0 numbers, expected 2"},
    {T("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4]"), true, "has 1 numbers"},
    {T("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4,4]"), true, "has 3 numbers"},
    {T("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,-4]"), true, "found -4"},
    {T("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,0]"), true, "4..0"},
    {T("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[13,17]"), true,
     "13..17, expected a range within the 16 bytes"},
    {T("\"dtype\":\"X\",\"shape\":[2],\"data_offsets\":[0,17]"), true, "within the 16 bytes"},
    {T("\"dtype\":\"BF16\",\"shape\":[0],\"data_offsets\":[17,17]"), true, "within the 16 bytes"},
    {T("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[18446744073709551615,3]"), true,
     "within the 16 bytes"},
    {T("\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,4]"), true,
     "hold 4 bytes, expected 12 for BF16 [2, 3]"},
    {T("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,4]"), true, "expected 2 for"},
    {T("\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,0]"), true, "expected 4 for F32 []"},
    {T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), true, "1 and a fraction for F4"},
    {T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), true, "1 and a fraction"},
    {T("\"dtype\":\"F6_E3M2\",\"shape\":[2],\"data_offsets\":[0,2]"), true, "and a fraction"},
    {T("\"dtype\":\"BF16\",\"shape\":[4294967296,4294967296,2],\"data_offsets\":[0,0]"), true,
     "[4294967296, 4294967296, 2] is too large"},
    {T("\"dtype\":\"BF16\",\"shape\":[9223372036854775808,2],\"data_offsets\":[0,0]"), true,
     "too large"},
    {T("\"dtype\":\"BF16\",\"shape\":[1152921504606846976],\"data_offsets\":[0,0]"), true,
     "too large"},
    {T("\"dtype\":\"X\",\"shape\":[4294967296,4294967296,2],\"data_offsets\":[0,0]"), true,
     "too large"},
    {"{\"my.w\":{" GOOD "},\"o\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}", true,
     "tensor o: data_offsets 3..5 overlap 0..4 of tensor my.w"},
    {"{\"o\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]},\"my.w\":{" GOOD "}}", true,
     "overlap"},
    {"{\"o\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]},"
     "\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
     "\"my.w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}",
     true, "tensor my.w: data_offsets 8..9 overlap 0..9 of tensor o"},
    {"{\"__metadata__\":[]}", false, "expected an object"},
    {"{\"__metadata__\":{\"my.w\":1}}", true, "__metadata__ key my.w: byte"},
    {"{\"__metadata__\":{\"a\":{}}}", false, "expected a string"},
    {"{\"__metadata__\":{\"a\":null}}", false, "expected a string"},
    {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", false, "key a occurs twice in __metadata__"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", false, "__metadata__ occurs twice"},
    {"\xEF\xBB\xBF{}", false, "byte order mark"},
    {"{\"\xFF\":{" GOOD "}}", false, "UTF-8"},
    {"{\"\\ud800\":{" GOOD "}}", false, "surrogate"},
};

static void test_refuses(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *c = &refusals[i];
        size_t nbytes = strlen(c->text);
        if (nbytes == 2 && c->text[1] == '}') nbytes = 3; /* the NUL behind {} */
        binade_error err = {""};
        struct st_header h;
        binade_status status = parse(c->text, nbytes, 16, &h, &err);
        if (status != BINADE_E_DATA || !strstr(err.message, c->says))
            fail_msg("%s: status %d, \"%s\", expected \"%s\"", c->text, status, err.message,
                     c->says);
        if (strncmp(err.message, "dir/m.safetensors: ", 19) != 0 || strchr(err.message, '\n') ||
            (c->names && !strstr(err.message, "my.w")))
            fail_msg("%s: \"%s\" lacks a name", c->text, err.message);
        assert_null(h.tensors);
        assert_null(h.metadata);
        assert_null(h.arena);
        assert_int_equal(h.count, 0);
        assert_int_equal(parse(c->text, nbytes, 16, &h, NULL), BINADE_E_DATA);
    }
}

/* A shape too long for a sentence is cut. */
static void test_long_shape(void **state) {
    (void)state;
    binade_error err = {""};
    struct buffer b = {0};
    struct st_header h;
    assert_int_equal(buffer_put_text(&b, &err, "{\"my.w\":{\"dtype\":\"U8\",\"shape\":["),
                     BINADE_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buffer_put_text(&b, &err, "0,18446744073709551615,"), BINADE_OK);
    assert_int_equal(buffer_put_text(&b, &err, "1],\"data_offsets\":[0,1]}}"), BINADE_OK);
    assert_int_equal(parse(b.data, b.nbytes, 1, &h, &err), BINADE_E_DATA);
    assert_non_null(strstr(err.message, "tensor my.w: "));
    assert_non_null(strstr(err.message, "expected 0 for U8 [0, 18446744073709551615, 0, "));
    assert_non_null(strstr(err.message, ", ...]"));
    buffer_free(&b);
}

/* A tensor's name with a newline in it does not break the sentence. */
static void test_one_line(void **state) {
    (void)state;
    binade_error err;
    struct st_header h;
    static const char text[] = "{\"a\\nb\":{}}";
    assert_int_equal(parse(text, sizeof text - 1, 0, &h, &err), BINADE_E_DATA);
    assert_non_null(strstr(err.message, "tensor a\\x0ab: "));
}

static void test_lengths(void **state) {
    (void)state;
    static const struct {
        uint64_t header_nbytes, file_nbytes;
        const char *says;
    } cases[] = {
        {0, 0, "has 0 bytes, expected at least the 8"},
        {0, 7, "has 7 bytes"},
        {0, 8, "0 bytes, expected at least 2"},
        {1, 9, "1 bytes, expected at least 2"},
        {3, 10, "3 bytes, expected at most the 2 that follow"},
        {UINT64_MAX, 10, "18446744073709551615 bytes, expected at most the 2"},
        {UINT64_MAX - 7, 10, "expected at most the 2"},
        {(uint64_t)1 << 40, (uint64_t)1 << 41, "1099511627776 bytes, expected at most 536870912"},
        {ST_HEADER_MAX_NBYTES + 1, UINT64_MAX, "expected at most 536870912"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        binade_error err = {""};
        struct st_header h;
        /* The text must not be looked at. */
        assert_int_equal(
            st_parse_header(NULL, cases[i].header_nbytes, cases[i].file_nbytes, "f", &h, &err),
            BINADE_E_DATA);
        if (!strstr(err.message, cases[i].says)) fail_msg("%s", err.message);
    }
}

/* Files as they lie on disk; the length is little-endian. */
static void test_files(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t nbytes;
        binade_status status;
        const char *says;
    } cases[] = {
        {"\2\0\0\0\0\0\0\0{}", 10, BINADE_OK, ""},
        {"\2\0\0\0\0\0\0\0{}tail", 14, BINADE_OK, ""},
        {"", 0, BINADE_E_DATA, "has 0 bytes"},
        {"\2\0\0\0", 4, BINADE_E_DATA, "has 4 bytes"},
        {"\2\0\0\0\0\0\0\0", 8, BINADE_E_DATA, "at most the 0 that follow"},
        {"\2\0\0\0\0\0\0\0{", 9, BINADE_E_DATA, "at most the 1 that follow"},
        {"\0\0\0\0\0\1\0\0{}", 10, BINADE_E_DATA, "1099511627776"},
        {"version https://git-lfs", 23, BINADE_E_DATA, "at most the 15 that follow"},
    };
    char path[] = "/tmp/binade_st_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        binade_error err = {""};
        struct file f;
        struct st_header h;
        char *text = NULL;
        unlink(path);
        assert_int_equal(file_create(&f, path, &err), BINADE_OK);
        assert_int_equal(file_write(&f, 0, cases[i].bytes, cases[i].nbytes, &err), BINADE_OK);
        file_close(&f);
        assert_int_equal(file_open(&f, path, &err), BINADE_OK);
        assert_int_equal(st_read_header(&f, &h, &text, &err), cases[i].status);
        if (cases[i].status) {
            assert_null(text);
            assert_true(strncmp(err.message, path, strlen(path)) == 0);
            if (!strstr(err.message, cases[i].says)) fail_msg("%s", err.message);
        } else {
            assert_memory_equal(text, "{}", 2);
            assert_int_equal(h.data_nbytes, cases[i].nbytes - 10);
            st_free_header(&h);
        }
        free(text);
        file_close(&f);
    }
    unlink(path);
}

/* The file is cut between opening and reading. */
static void test_shrinking_file(void **state) {
    (void)state;
    char path[] = "/tmp/binade_st_XXXXXX";
    binade_error err = {""};
    struct file f;
    struct st_header h;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "\2\0\0\0\0\0\0\0{}", 10), 10);
    assert_int_equal(file_open(&f, path, &err), BINADE_OK);
    assert_int_equal(ftruncate(fd, 9), 0);
    assert_int_equal(st_read_header(&f, &h, NULL, &err), BINADE_E_IO);
    assert_non_null(strstr(err.message, "ended at byte 9 while reading bytes 8..10"));
    file_close(&f);
    close(fd);
    unlink(path);
}

static void test_dtypes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        unsigned nbits;
    } cases[] = {
        {"BOOL", 8},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
        {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
        {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
        {"I32", 32},        {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},
        {"I64", 64},        {"U64", 64},        {"bf16", 0},    {"", 0},        {"BF", 0},
        {"BF160", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(st_dtype_nbits(cases[i].name), cases[i].nbits);
}

/* Many tensors, last ones first: sorting and looking up must not take quadratic time. */
static void test_many(void **state) {
    (void)state;
    enum { COUNT = 300000 };
    struct buffer b = {0};
    binade_error err = {""};
    struct st_header h;
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(buffer_put_text(&b, &err,
                                         "%c\"t%u\":{\"dtype\":\"U8\",\"shape\":[1,1],"
                                         "\"data_offsets\":[%u,%u]}",
                                         i ? ',' : '{', i, COUNT - 1 - i, COUNT - i),
                         BINADE_OK);
    assert_int_equal(buffer_put(&b, "}", 1, &err), BINADE_OK);
    if (parse(b.data, b.nbytes, COUNT, &h, &err)) fail_msg("%s", err.message);
    assert_int_equal(h.count, COUNT);
    assert_int_equal(st_build_lookup(&h, &err), BINADE_OK);
    for (unsigned i = 0; i < COUNT; i++) {
        char name[16];
        int length = snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(h.tensors[i].begin, i);
        assert_int_equal(st_find(&h, name, (size_t)length), COUNT - 1 - i);
    }
    st_free_header(&h);
    b.nbytes--;
    assert_int_equal(buffer_put_text(&b, &err,
                                     ",\"t123\":{\"dtype\":\"U8\",\"shape\":[0],"
                                     "\"data_offsets\":[0,0]}}"),
                     BINADE_OK);
    assert_int_equal(parse(b.data, b.nbytes, COUNT, &h, &err), BINADE_E_DATA);
    assert_non_null(strstr(err.message, "tensor t123 occurs twice"));
    buffer_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),   cmocka_unit_test(test_reads_empty),
        cmocka_unit_test(test_refuses), cmocka_unit_test(test_one_line),
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_files),
        cmocka_unit_test(test_dtypes),  cmocka_unit_test(test_shrinking_file),
        cmocka_unit_test(test_many),    cmocka_unit_test(test_long_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
