/* st_parse.h - what safetensors.c and st_parse.c share. */
#ifndef BINADE_IO_ST_PARSE_H
#define BINADE_IO_ST_PARSE_H

#include "io/name_index.h"
#include "io/safetensors.h"

/* Whether a header of that length can stand in a file of that size. */
binade_status st_check_length(uint64_t header_nbytes, uint64_t file_nbytes, const char *file,
                              binade_error *err);
/* A known dtype's name in static storage, or NULL. */
const char *st_dtype_static(const char *dtype);
/* A name_of_item; the owner is a struct st_header. */
struct name st_name_of_tensor(const void *header, size_t item);

#endif
