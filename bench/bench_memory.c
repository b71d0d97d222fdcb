/* bench_memory.c - encodes and decodes a model's weights from memory to memory, and times it.
 *
 * usage: bench_memory CODEC NTHREADS NRUNS WEIGHTS SHAPES
 *
 * WEIGHTS holds BF16 tensors back to back, SHAPES a line "rows cols" for each. A run encodes all
 * tensors, then decodes all of them, so that caches are as cold as in a real pass over a model;
 * buffers are reused, so that no run pays for fresh pages. One run more goes first, and is not
 * reported; its result is compared with the input. Prints one JSON object.
 */
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#include "binade.h"

struct tensor {
    uint64_t rows, cols;
    const uint8_t *bf16; /* 2 * rows * cols bytes */
    size_t nbytes;
    uint8_t *coded; /* of the codec's bound */
    size_t capacity, coded_nbytes;
    struct binade_parts parts; /* carved out of `coded`; only binade uses it */
};

struct codec {
    const char *name;
    /* Sets t->capacity. */
    void (*bound)(struct tensor *t);
    /* From t->bf16 to t->coded; sets t->coded_nbytes. */
    void (*encode)(struct tensor *t);
    /* From t->coded to out. */
    void (*decode)(const struct tensor *t, uint8_t *out);
};

static unsigned nthreads;
static binade_error error;

static void die(const char *what) {
    fprintf(stderr, "bench_memory: %s\n", what);
    exit(2);
}

static void require(binade_status status) {
    if (status != BINADE_OK) die(error.message);
}

/* ---- Codecs ---- */

static void binade_bound(struct tensor *t, int format) {
    struct binade_parts *p = &t->parts;
    require(binade_encode_bound(format, t->rows, t->cols, p, &error));
    t->capacity =
        p->raw_nbytes + p->table_nbytes + p->meta_nbytes + p->codes_nbytes + p->tail_nbytes;
}

static void binade_run(struct tensor *t, int format) {
    struct binade_parts *p = &t->parts;
    require(binade_encode_bound(format, t->rows, t->cols, p, &error));
    p->raw = t->coded;
    p->table = p->raw + p->raw_nbytes;
    p->meta = p->table + p->table_nbytes;
    p->codes = p->meta + p->meta_nbytes;
    p->tail = p->codes + p->codes_nbytes;
    require(binade_encode(format, t->bf16, t->rows, t->cols, p, nthreads, &error));
    t->coded_nbytes =
        p->raw_nbytes + p->table_nbytes + p->meta_nbytes + p->codes_nbytes + p->tail_nbytes;
}

static void binade1_bound(struct tensor *t) {
    binade_bound(t, 1);
}

static void binade1_encode(struct tensor *t) {
    binade_run(t, 1);
}

static void binade1_decode(const struct tensor *t, uint8_t *out) {
    require(binade_decode(1, &t->parts, t->rows, t->cols, out, nthreads, &error));
}

static void binade2_bound(struct tensor *t) {
    binade_bound(t, 2);
}

static void binade2_encode(struct tensor *t) {
    binade_run(t, 2);
}

static void binade2_decode(const struct tensor *t, uint8_t *out) {
    require(binade_decode(2, &t->parts, t->rows, t->cols, out, nthreads, &error));
}

static void zstd_bound(struct tensor *t) {
    t->capacity = ZSTD_compressBound(t->nbytes);
}

static void zstd_encode(struct tensor *t) {
    static ZSTD_CCtx *context;
    if (!context) context = ZSTD_createCCtx();
    t->coded_nbytes = ZSTD_compressCCtx(context, t->coded, t->capacity, t->bf16, t->nbytes, 1);
    if (ZSTD_isError(t->coded_nbytes)) die(ZSTD_getErrorName(t->coded_nbytes));
}

static void zstd_decode(const struct tensor *t, uint8_t *out) {
    static ZSTD_DCtx *context;
    if (!context) context = ZSTD_createDCtx();
    size_t nbytes = ZSTD_decompressDCtx(context, out, t->nbytes, t->coded, t->coded_nbytes);
    if (nbytes != t->nbytes) die("zstd did not restore a tensor");
}

static void lz4_bound(struct tensor *t) {
    if (t->nbytes > LZ4_MAX_INPUT_SIZE) die("a tensor is too large for one LZ4 block");
    t->capacity = (size_t)LZ4_compressBound((int)t->nbytes);
}

static void lz4_encode(struct tensor *t) {
    int nbytes = LZ4_compress_default((const char *)t->bf16, (char *)t->coded, (int)t->nbytes,
                                      (int)t->capacity);
    if (nbytes <= 0) die("LZ4 failed");
    t->coded_nbytes = (size_t)nbytes;
}

static void lz4_decode(const struct tensor *t, uint8_t *out) {
    int nbytes = LZ4_decompress_safe((const char *)t->coded, (char *)out, (int)t->coded_nbytes,
                                     (int)t->nbytes);
    if (nbytes < 0 || (size_t)nbytes != t->nbytes) die("LZ4 did not restore a tensor");
}

/* What the memory alone allows. */
static void copy_bound(struct tensor *t) {
    t->capacity = t->nbytes;
}

static void copy_encode(struct tensor *t) {
    memcpy(t->coded, t->bf16, t->nbytes);
    t->coded_nbytes = t->nbytes;
}

static void copy_decode(const struct tensor *t, uint8_t *out) {
    memcpy(out, t->coded, t->nbytes);
}

static const struct codec CODECS[] = {
    {"binade1", binade1_bound, binade1_encode, binade1_decode},
    {"binade2", binade2_bound, binade2_encode, binade2_decode},
    {"zstd", zstd_bound, zstd_encode, zstd_decode},
    {"lz4", lz4_bound, lz4_encode, lz4_decode},
    {"copy", copy_bound, copy_encode, copy_decode},
};

static const struct codec *find_codec(const char *name) {
    for (size_t i = 0; i < sizeof CODECS / sizeof *CODECS; i++)
        if (strcmp(CODECS[i].name, name) == 0) return &CODECS[i];
    die("unknown codec");
    return NULL;
}

/* ---- Input, runs, output ---- */

static uint8_t *allocate(size_t nbytes) {
    uint8_t *data = malloc(nbytes ? nbytes : 1);
    if (!data) die("out of memory");
    memset(data, 1, nbytes); /* so that every page is there before the clock runs */
    return data;
}

static uint8_t *read_whole(const char *path, size_t *nbytes) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) die(path);
    *nbytes = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = allocate(*nbytes);
    if (fread(data, 1, *nbytes, f) != *nbytes) die(path);
    fclose(f);
    return data;
}

static size_t read_tensors(const char *weights, const char *shapes, const struct codec *codec,
                           struct tensor **tensors) {
    size_t total, used = 0, count = 0, room = 0;
    const uint8_t *data = read_whole(weights, &total);
    FILE *f = fopen(shapes, "r");
    if (!f) die(shapes);
    unsigned long long rows, cols;
    *tensors = NULL;
    while (fscanf(f, "%llu %llu", &rows, &cols) == 2) {
        if (count == room) {
            room = 2 * room + 64;
            *tensors = realloc(*tensors, room * sizeof **tensors);
            if (!*tensors) die("out of memory");
        }
        struct tensor *t = &(*tensors)[count++];
        *t = (struct tensor){.rows = rows, .cols = cols, .bf16 = data + used};
        t->nbytes = (size_t)(2 * rows * cols);
        used += t->nbytes;
        codec->bound(t);
        t->coded = allocate(t->capacity);
    }
    fclose(f);
    if (used != total || count == 0) die("SHAPES does not describe WEIGHTS");
    return count;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_encode(const struct codec *codec, struct tensor *tensors, size_t count) {
    double started = now();
    for (size_t i = 0; i < count; i++)
        codec->encode(&tensors[i]);
    return now() - started;
}

static double time_decode(const struct codec *codec, const struct tensor *tensors, size_t count,
                          uint8_t *out) {
    double started = now();
    for (size_t i = 0; i < count; i++) {
        codec->decode(&tensors[i], out);
        out += tensors[i].nbytes;
    }
    return now() - started;
}

static void print_times(const char *key, const double *seconds, size_t nruns) {
    printf("\"%s\": [", key);
    for (size_t i = 0; i < nruns; i++)
        printf("%s%.6f", i ? ", " : "", seconds[i]);
    printf("], ");
}

int main(int argc, char **argv) {
    if (argc != 6) die("usage: bench_memory CODEC NTHREADS NRUNS WEIGHTS SHAPES");
    const struct codec *codec = find_codec(argv[1]);
    nthreads = (unsigned)strtoul(argv[2], NULL, 10);
    size_t nruns = strtoul(argv[3], NULL, 10);
    struct tensor *tensors;
    size_t count = read_tensors(argv[4], argv[5], codec, &tensors);
    size_t input_nbytes = 0, coded_nbytes = 0;
    for (size_t i = 0; i < count; i++)
        input_nbytes += tensors[i].nbytes;
    uint8_t *out = allocate(input_nbytes);
    double *encode = calloc(nruns, sizeof *encode), *decode = calloc(nruns, sizeof *decode);
    if (!encode || !decode) die("out of memory");

    time_encode(codec, tensors, count);
    time_decode(codec, tensors, count, out);
    if (memcmp(out, tensors[0].bf16, input_nbytes) != 0) die("the weights did not come back");
    for (size_t i = 0; i < nruns; i++) {
        encode[i] = time_encode(codec, tensors, count);
        decode[i] = time_decode(codec, tensors, count, out);
    }

    for (size_t i = 0; i < count; i++)
        coded_nbytes += tensors[i].coded_nbytes;
    printf("{\"codec\": \"%s\", \"kernels\": \"%s\", ", codec->name, binade_cpu());
    print_times("encode", encode, nruns);
    print_times("decode", decode, nruns);
    printf("\"nbytes\": %zu, \"coded_nbytes\": %zu}\n", input_nbytes, coded_nbytes);
    return 0;
}
