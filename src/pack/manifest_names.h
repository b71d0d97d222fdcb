/* manifest_names.h - the keys of binade_pack.json that its writer and its reader share. */
#ifndef BINADE_PACK_MANIFEST_NAMES_H
#define BINADE_PACK_MANIFEST_NAMES_H

#define KEY_MARK "binade"
#define KEY_RECORDS "records"

enum { RECORDS_VERSION = 1 };
#define KEY_VERSION "version"
#define KEY_INDEX_XXH3 "index_xxh3"
#define KEY_FILES "files"

#define KEY_PATH "path"
#define KEY_SIZE "size"
#define KEY_SHA256 "sha256"
#define KEY_XXH3 "xxh3"
#define KEY_TEXT "text"
#define KEY_SHARD "shard"
#define KEY_HEADER_XXH3 "header_xxh3"
#define KEY_HEADER "header"
#define KEY_PARTS_XXH3 "parts_xxh3"
#define KEY_GAPS "gaps"

/* The last line, with the XXH3-64 of all text before it in 16 hexadecimal digits between these. */
#define SEAL_BEFORE " \"xxh3\": \""
#define SEAL_BEHIND "\"\n}\n"

#endif
