/* text.h - text from files and users, shown safely. */
#ifndef BINADE_CLI_TEXT_H
#define BINADE_CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The length in bytes, 1 to 4, of the UTF-8 sequence at text[0..nbytes) with its code point in
 * *code; 0 if it is not valid. nbytes is at least 1. */
unsigned text_decode(const char *text, size_t nbytes, uint32_t *code);

/* Prints text[0..nbytes) so that it stays on its line and cannot steer a terminal: invalid bytes
 * become \xNN; control characters, line separators and marks that reorder text \xNN or \uNNNN. */
void text_print(FILE *out, const char *text, size_t nbytes);

#endif
