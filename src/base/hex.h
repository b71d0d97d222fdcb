/* hex.h - bytes as lowercase hexadecimal text. */
#ifndef BINADE_BASE_HEX_H
#define BINADE_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two lowercase digits a byte and a NUL: text needs 2 * nbytes + 1. */
void hex_encode(const uint8_t *data, size_t nbytes, char *text);
/* False unless text is exactly 2 * nbytes lowercase digits. */
bool hex_decode(const char *text, size_t text_nbytes, uint8_t *data, size_t nbytes);

/* 16 digits, the most significant first. */
void hex_encode_u64(uint64_t value, char text[17]);
bool hex_decode_u64(const char *text, size_t text_nbytes, uint64_t *value);

#endif
