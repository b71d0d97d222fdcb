/* json_writer.h - JSON text as Python's json module writes it (ensure_ascii), into a growing
 * buffer. */
#ifndef BINADE_IO_JSON_WRITER_H
#define BINADE_IO_JSON_WRITER_H

#include "base/buffer.h"

/* Appends "text" with quotes: escapes " and \, \n \r \t \f \b, and everything outside space..~ as
 * \uXXXX in lowercase hex, with surrogate pairs above U+FFFF. `text` must be valid UTF-8. */
binade_status json_put_string(struct buffer *b, const char *text, size_t nbytes, binade_error *err);

#endif
