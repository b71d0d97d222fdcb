/* records.h - the part of binade_pack.json that restores and proves the original files. */
#ifndef BINADE_PACK_RECORDS_H
#define BINADE_PACK_RECORDS_H

#include "pack/manifest.h"

/* Reads the value of "records", an object, into m->records and m->index_xxh3; sets m->has_records.
 * What is wrong is left in r. */
void read_records(struct json_reader *r, struct manifest *m);

void records_free(struct record *records, size_t nrecords);

#endif
