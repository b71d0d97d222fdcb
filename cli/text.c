#include "text.h"

#include <stdbool.h>

unsigned text_decode(const char *text, size_t nbytes, uint32_t *code) {
    /* The smallest code point that needs each length: anything below is an overlong form. */
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char lead = (unsigned char)text[0];
    unsigned length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : 4;

    if (length == 1) {
        *code = lead;
        return 1;
    }
    if (length > nbytes || (length == 4 && lead >> 3 != 30)) return 0;
    uint32_t value = lead & (0x7fu >> length);
    for (unsigned i = 1; i < length; i++) {
        unsigned char next = (unsigned char)text[i];
        if (next >> 6 != 2) return 0;
        value = value << 6 | (next & 0x3f);
    }
    if (value < least[length] || value > 0x10ffff || value >> 11 == 0xd800 >> 11) return 0;
    *code = value;
    return length;
}

static bool is_unsafe(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void text_print(FILE *out, const char *text, size_t nbytes) {
    for (size_t i = 0; i < nbytes;) {
        uint32_t code;
        unsigned length = text_decode(text + i, nbytes - i, &code);
        if (length == 0)
            fprintf(out, "\\x%02x", (unsigned char)text[i]);
        else if (!is_unsafe(code))
            fwrite(text + i, 1, length, out);
        else
            fprintf(out, code < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned)code);
        i += length ? length : 1;
    }
}
