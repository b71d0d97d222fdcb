/* hex.c - see hex.h. */
#include "base/hex.h"

#include <string.h>

static const char hex_digits[] = "0123456789abcdef";

void hex_encode(const uint8_t *data, size_t nbytes, char *text) {
    for (size_t i = 0; i < nbytes; i++) {
        *text++ = hex_digits[data[i] >> 4];
        *text++ = hex_digits[data[i] & 15];
    }
    *text = 0;
}

/* The value of a digit, or -1; NUL is none although it ends the string. */
static int digit_value(char c) {
    const char *at = c ? strchr(hex_digits, c) : NULL;
    return at ? (int)(at - hex_digits) : -1;
}

bool hex_decode(const char *text, size_t text_nbytes, uint8_t *data, size_t nbytes) {
    if (text_nbytes != 2 * nbytes) return false;
    for (size_t i = 0; i < nbytes; i++) {
        int high = digit_value(text[2 * i]);
        int low = digit_value(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        data[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

void hex_encode_u64(uint64_t value, char text[17]) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (56 - 8 * i));
    hex_encode(bytes, 8, text);
}

bool hex_decode_u64(const char *text, size_t text_nbytes, uint64_t *value) {
    uint8_t bytes[8];
    if (!hex_decode(text, text_nbytes, bytes, 8)) return false;
    *value = 0;
    for (int i = 0; i < 8; i++)
        *value = *value << 8 | bytes[i];
    return true;
}
