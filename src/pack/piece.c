/* piece.c - see piece.h. */
#include "pack/piece.h"

static const struct part_form {
    const char *suffix, *dtype;
} forms[2][NPARTS] = {
    {{".raw", "U8"}, {".table", "U8"}, {".meta", "U8"}, {".idx", "U32"}, {".esc", "U8"}},
    {{".raw", "U8"}, {".table", "U8"}, {".meta", "U8"}, {".bits", "U32"}, {".roff", "U32"}},
};

const char *part_suffix(int format, enum part part) {
    return forms[format - 1][part].suffix;
}

const char *part_dtype(int format, enum part part) {
    return forms[format - 1][part].dtype;
}
