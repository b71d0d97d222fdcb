/* binade.h - lossless storage of BF16 checkpoints.
 *
 * A BF16 weight is a sign and mantissa byte, kept as it is, and an 8-bit exponent, coded as its
 * frequency rank within the tensor. docs/FORMAT.md defines every byte.
 *
 * Conventions
 * - A function that can fail returns a binade_status; BINADE_OK is 0. On failure outputs hold no
 *   result unless stated, and `err`, which may be NULL, holds one sentence without a final stop
 *   or newline: which file and tensor, what was found, what was expected.
 * - A path that is needed but NULL is BINADE_E_USAGE.
 * - The library never prints, never exits and installs no signal handler.
 * - Strings are UTF-8. Tensor names may hold any code point, NUL included, so they come with a
 *   length; they are also NUL-terminated.
 * - A weight is seen as R rows of K columns: K is the last dimension, R the product of the others.
 *   Row ranges are half-open.
 * - Options structs start with their own size: set it with the matching BINADE_..._INIT, so that
 *   fields can be added without breaking callers. Other fields zero mean the defaults.
 * - Threads: functions may be called from any thread. A binade_checkpoint may be read by several
 *   threads at once; binade_close must be the last call on it.
 */
#ifndef BINADE_H
#define BINADE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version is written here once; the build reads it. */
#define BINADE_VERSION "1.0.0.dev0"

#if defined(__GNUC__)
#define BINADE_API __attribute__((visibility("default")))
#define BINADE_CHECK __attribute__((warn_unused_result))
#else
#define BINADE_API
#define BINADE_CHECK
#endif

typedef enum binade_status {
    BINADE_OK = 0,
    BINADE_E_DATA = 1,   /* a file is corrupt or malformed, or two things that must agree differ */
    BINADE_E_USAGE = 2,  /* an argument is wrong, or the request makes no sense for this input */
    BINADE_E_IO = 3,     /* the system failed: absent file, full disk, permission */
    BINADE_E_MEMORY = 4, /* out of memory */
    BINADE_E_CANCELLED = 5, /* the event callback asked to stop */
} binade_status;

#define BINADE_MESSAGE_MAX 1024

typedef struct binade_error {
    char message[BINADE_MESSAGE_MAX]; /* NUL-terminated UTF-8; untouched on success */
} binade_error;

/* BINADE_VERSION of the library that is linked, static storage. */
BINADE_API const char *binade_version(void);

/* The name of the kernel set in use, static storage: "avx512", "avx2", "neon" or "plain".
 * BINADE_CPU in the environment (the same words) limits the choice; it is read once. */
BINADE_API const char *binade_cpu(void);

/* ---- Events ---------------------------------------------------------------------------- */

typedef enum binade_event_kind {
    BINADE_EVENT_PROGRESS, /* done and total, in bytes of the original checkpoint */
    BINADE_EVENT_NOTE,     /* text: something the user should know, such as a file left out */
    BINADE_EVENT_TENSOR,   /* text: one line about a finished tensor */
} binade_event_kind;

typedef struct binade_event {
    binade_event_kind kind;
    uint64_t done, total; /* PROGRESS only */
    const char *text;     /* NOTE and TENSOR only; valid during the call */
} binade_event;

/* Called from whichever thread does the work, never from two at once. Returning non-zero cancels:
 * the function undoes what it wrote and returns BINADE_E_CANCELLED. */
typedef int (*binade_event_fn)(void *user, const binade_event *event);

/* ---- Reading a checkpoint ---------------------------------------------------------------- */

typedef enum binade_class {
    BINADE_LINEAR,
    BINADE_EMBED,
    BINADE_PLE,
    BINADE_MM,
    BINADE_OTHER,
    BINADE_NCLASSES
} binade_class;

/* "linear", "embed", "ple", "mm" or "other"; static storage. */
BINADE_API const char *binade_class_name(binade_class c);

typedef struct binade_checkpoint binade_checkpoint;

typedef struct binade_tensor {
    const char *name; /* the original tensor's name; owned by the checkpoint */
    size_t name_nbytes;
    const char *dtype; /* as in the file, for example "BF16" */
    size_t ndim;
    const uint64_t *shape;  /* [ndim] */
    uint64_t rows, cols;    /* the R x K view; 1 x 1 for a scalar */
    uint64_t nbytes;        /* of the original tensor */
    uint64_t stored_nbytes; /* of what the checkpoint holds for it, all parts together */
    int packed;             /* 1: stored as parts, 0: stored byte for byte */
    binade_class cls;
    const char *file; /* the shard that holds it, relative to the directory */
} binade_tensor;

/* Opens a checkpoint, packed or not. `path` is a directory, or a hub id such as "org/model" that is
 * in the local Hugging Face cache; `revision` (may be NULL: main) a branch, tag or commit prefix
 * of a hub id. Checks every header against the files; does not read weights.
 * On success *out is owned by the caller: binade_close. Keeps one file open per shard. */
BINADE_API BINADE_CHECK binade_status binade_open(const char *path, const char *revision,
                                                  binade_checkpoint **out, binade_error *err);
/* Accepts NULL. */
BINADE_API void binade_close(binade_checkpoint *c);

/* The directory that was opened, after hub look-up. */
BINADE_API const char *binade_path(const binade_checkpoint *c);
/* 0: an ordinary checkpoint; 1 or 2: a pack of that format. */
BINADE_API int binade_format(const binade_checkpoint *c);
/* 1 if a pack carries the records that let unpack restore, and verify prove, whole files. */
BINADE_API int binade_has_records(const binade_checkpoint *c);

/* Tensors in shard order, then file order. */
BINADE_API size_t binade_count(const binade_checkpoint *c);
/* Fills *out for tensor i < binade_count; its pointers live until binade_close. */
BINADE_API void binade_get(const binade_checkpoint *c, size_t i, binade_tensor *out);
/* The index of the named tensor, or SIZE_MAX. */
BINADE_API size_t binade_find(const binade_checkpoint *c, const char *name, size_t name_nbytes);

/* Reads rows [row0, row1) of tensor i as in the original checkpoint: BF16 little-endian for a
 * packed tensor, the stored bytes otherwise. `out` needs (row1 - row0) * nbytes / rows bytes, no
 * alignment. Only the rows asked for are read, except that the first read of a format 1 tensor
 * scans it once. */
BINADE_API BINADE_CHECK binade_status binade_read_rows(const binade_checkpoint *c, size_t i,
                                                       uint64_t row0, uint64_t row1, void *out,
                                                       size_t out_nbytes, binade_error *err);

/* ---- Encoding and decoding in memory ---------------------------------------------------- */

/* One weight as parts. The last two are idx and esc in format 1, bits and roff in format 2; idx,
 * bits and roff hold little-endian 32-bit words at any alignment. Buffers belong to the caller. */
typedef struct binade_parts {
    uint8_t *raw;   /* R*K bytes: sign in bit 7, mantissa below */
    uint8_t *table; /* 256 bytes: exponent by rank */
    uint8_t *meta;  /* R*ceil(K/128) bytes */
    uint8_t *codes; /* format 1: idx; format 2: bits */
    uint8_t *tail;  /* format 1: esc; format 2: roff */
    size_t raw_nbytes, table_nbytes, meta_nbytes, codes_nbytes, tail_nbytes;
} binade_parts;

/* Sets the five sizes in *parts to what binade_encode may need at most; pointers are left alone.
 * format is 1 or 2; rows and cols at least 1. BINADE_E_USAGE if a size passes SIZE_MAX. */
BINADE_API BINADE_CHECK binade_status binade_encode_bound(int format, uint64_t rows, uint64_t cols,
                                                          binade_parts *parts, binade_error *err);

/* Encodes rows x cols BF16 weights (little-endian, any alignment). On entry the sizes in *parts are
 * the capacities, each at least the bound's; on success they are the sizes written. The bytes
 * equal those that packing the same tensor writes. `nthreads` 0: one per CPU. */
BINADE_API BINADE_CHECK binade_status binade_encode(int format, const void *bf16, uint64_t rows,
                                                    uint64_t cols, binade_parts *parts,
                                                    unsigned nthreads, binade_error *err);

/* Decodes to `bf16` (2*rows*cols bytes). Corrupt parts give BINADE_E_DATA and leave `bf16`
 * unspecified; nothing outside the given buffers is read or written. */
BINADE_API BINADE_CHECK binade_status binade_decode(int format, const binade_parts *parts,
                                                    uint64_t rows, uint64_t cols, void *bf16,
                                                    unsigned nthreads, binade_error *err);

/* ---- Pack, unpack, verify --------------------------------------------------------------- */

typedef struct binade_pack_options {
    size_t size;
    int format;           /* 0 or 2: Rice; 1: fixed width with escapes */
    const char *classes;  /* comma-separated class names; NULL: "linear,embed" */
    const char *revision; /* of a hub id; NULL: main */
    const char *const
        *exclude; /* [nexclude] glob patterns (fnmatch); matching tensors are carried unpacked */
    size_t nexclude;
    int no_hash;           /* write no records: unpack will restore tensors, not files */
    int force;             /* replace `out` if it is a Binade checkpoint */
    unsigned nthreads;     /* 0: one per CPU this process may use */
    binade_event_fn event; /* NULL: none */
    void *user;
} binade_pack_options;
#define BINADE_PACK_OPTIONS_INIT                                                                   \
    { .size = sizeof(binade_pack_options) }

typedef struct binade_pack_report {
    uint64_t input_nbytes;  /* of the original shards */
    uint64_t output_nbytes; /* of the packed shards */
    uint64_t nweights;      /* packed weights */
    uint64_t nbits;         /* their parts, in bits */
    uint64_t npacked, ntensors;
    uint64_t nfiles; /* files of the original that the pack carries */
    double seconds;
} binade_pack_report;

/* Packs the checkpoint at `model` (as for binade_open) into the new directory `out`, which appears
 * whole or not at all: it is built beside its place, synced and renamed. The source is only read.
 * `options` and `report` may be NULL. */
BINADE_API BINADE_CHECK binade_status binade_pack(const char *model, const char *out,
                                                  const binade_pack_options *options,
                                                  binade_pack_report *report, binade_error *err);

typedef struct binade_unpack_options {
    size_t size;
    const char *revision;
    unsigned nthreads;
    binade_event_fn event;
    void *user;
} binade_unpack_options;
#define BINADE_UNPACK_OPTIONS_INIT                                                                 \
    { .size = sizeof(binade_unpack_options) }

typedef struct binade_unpack_report {
    uint64_t input_nbytes, output_nbytes; /* of the packed and of the restored shards */
    uint64_t nfiles, ntensors;
    int whole_files; /* 1: every original file byte for byte; 0: no records, tensor for tensor */
    double seconds;
} binade_unpack_report;

/* Restores the original checkpoint into the new directory `out`; all-or-nothing as binade_pack.
 * Every checksum that the pack records is checked. */
BINADE_API BINADE_CHECK binade_status binade_unpack(const char *packed, const char *out,
                                                    const binade_unpack_options *options,
                                                    binade_unpack_report *report,
                                                    binade_error *err);

typedef struct binade_verify_options {
    size_t size;
    const char *revision;
    const char *against; /* the original to compare with, byte for byte: a directory, or a hub id,
                            at its main revision; NULL: none */
    unsigned nthreads;
    binade_event_fn event;
    void *user;
} binade_verify_options;
#define BINADE_VERIFY_OPTIONS_INIT                                                                 \
    { .size = sizeof(binade_verify_options) }

typedef struct binade_verify_report {
    uint64_t nfiles, ntensors, nbytes; /* checked; nbytes of the original */
    int proven;                        /* 1: the SHA-256 of every original file was proven */
    int compared; /* 1: every file (without records: every tensor) equals the one in `against` */
    double seconds;
} binade_verify_report;

/* Decodes everything, checks every recorded checksum and the SHA-256 of every original file, and
 * compares with `against` if given. BINADE_E_DATA at the first thing that is wrong. */
BINADE_API BINADE_CHECK binade_status binade_verify(const char *packed,
                                                    const binade_verify_options *options,
                                                    binade_verify_report *report,
                                                    binade_error *err);

/* ---- What a checkpoint holds -------------------------------------------------------------- */

/* Exponent statistics of one BF16 tensor, packed or not. */
typedef struct binade_stats {
    uint64_t nweights;
    uint64_t counts[256];    /* weights by exponent */
    double entropy;          /* order-0 entropy of the exponents, bits a weight */
    uint64_t stored_nbits;   /* as the checkpoint holds it */
    uint64_t runtime_nbytes; /* in the R4 layout: 1.5 bytes a weight, a byte a tile, 4 bytes a row,
                                a byte for each exponent outside the 15 most frequent */
} binade_stats;

/* Reads tensor i whole and fills *out. BINADE_E_USAGE if its dtype is not BF16. */
BINADE_API BINADE_CHECK binade_status binade_measure(const binade_checkpoint *c, size_t i,
                                                     binade_stats *out, unsigned nthreads,
                                                     binade_error *err);

#ifdef __cplusplus
}
#endif
#endif
