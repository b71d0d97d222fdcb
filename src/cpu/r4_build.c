#include "cpu/r4_build.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/r4_kernels.h"

/* A task is about this much, so that its weights are in the cache when they are coded, and that
 * waiting for turns is rare. */
enum { TASK_NWEIGHTS = 1 << 20 };

binade_status binade_r4_groups_nbytes(uint64_t nexperts, uint64_t rows, uint64_t cols,
                                      size_t *nbytes, binade_error *err) {
    uint64_t n;
    if (mul_overflows(ceil_div(rows, R4_NROWS), nexperts, &n) ||
        mul_overflows(n, ceil_div(cols, R4_NCOLS), &n) || mul_overflows(n, R4_NBYTES, &n) ||
        n > SIZE_MAX / 2)
        return fail(err, BINADE_E_USAGE, "%llu x %llu x %llu weights are too many for memory",
                    (unsigned long long)nexperts, (unsigned long long)rows,
                    (unsigned long long)cols);
    *nbytes = (size_t)n;
    return BINADE_OK;
}

/* Codes are the first ranks. Ranks that no exponent has hold 0, which keeps the lowest code. */
static void assign_codes(struct r4_builder *b, const uint8_t table[256]) {
    memset(b->code_of, R4_ESCAPE, sizeof b->code_of);
    for (unsigned code = R4_ESCAPE; code-- > 0;) {
        b->exponents[code] = table[code];
        b->code_of[table[code]] = (uint8_t)code;
    }
    b->exponents[R4_ESCAPE] = 0;
}

/* malloc'd as free() wants it. Large weights get large pages where the system has them: products
 * walk through many blocks at once, and each fresh small page costs a call into the system. */
static void *allocate_aligned(size_t nbytes) {
    enum { ALIGNMENT = 64, PAGE_NBYTES = 1 << 21 };
    bool is_large = nbytes >= PAGE_NBYTES;
    void *memory;
    if (posix_memalign(&memory, is_large ? PAGE_NBYTES : ALIGNMENT, nbytes ? nbytes : 1))
        return NULL;
#ifdef MADV_HUGEPAGE
    /* Whole ones only: of the last, memory may be taken that nothing needs. */
    if (is_large) (void)madvise(memory, nbytes / PAGE_NBYTES * PAGE_NBYTES, MADV_HUGEPAGE);
#endif
    return memory;
}

binade_status r4_build_open(struct r4_builder *b, uint64_t nexperts, uint64_t rows, uint64_t cols,
                            const uint8_t table[256], struct pool *pool, binade_error *err) {
    size_t nbytes = 0;
    *b = (struct r4_builder){.pool = pool};
    binade_status status = binade_r4_groups_nbytes(nexperts, rows, cols, &nbytes, err);
    if (status) return status;

    uint64_t block_nweights = R4_NROWS * cols;
    b->shape = (binade_r4){.nexperts = nexperts, .rows = rows, .cols = cols};
    b->nblocks = nexperts * ceil_div(rows, R4_NROWS);
    b->task_nblocks =
        block_nweights < TASK_NWEIGHTS && block_nweights > 0 ? TASK_NWEIGHTS / block_nweights : 1;
    b->ntasks = (size_t)ceil_div(b->nblocks, b->task_nblocks);
    b->exponents = calloc(16, 1);
    b->groups = allocate_aligned(nbytes);
    b->escape_starts = calloc((size_t)b->nblocks + 1, sizeof *b->escape_starts);
    b->waiting = calloc(pool_nthreads(pool), sizeof *b->waiting);
    if (!b->exponents || !b->groups || !b->escape_starts || !b->waiting) return fail_memory(err);
    for (unsigned i = 0; i < pool_nthreads(pool); i++) {
        struct r4_task_escapes *waiting = &b->waiting[i];
        waiting->data = waiting->end = malloc((size_t)(block_nweights * b->task_nblocks) + 1);
        if (!waiting->data) return fail_memory(err);
    }
    assign_codes(b, table);
    return BINADE_OK;
}

void r4_build_close(struct r4_builder *b) {
    for (unsigned i = 0; b->waiting && i < pool_nthreads(b->pool); i++)
        free(b->waiting[i].data);
    free(b->waiting);
    buffer_free(&b->escapes);
    free(b->escape_starts);
    free(b->groups);
    free(b->exponents);
    *b = (struct r4_builder){0};
}

void r4_build_task_blocks(const struct r4_builder *b, size_t i, uint64_t *block0,
                          uint64_t *block1) {
    *block0 = i * b->task_nblocks;
    *block1 = b->nblocks - *block0 < b->task_nblocks ? b->nblocks : *block0 + b->task_nblocks;
}

void r4_build_block_rows(const struct r4_builder *b, uint64_t block, uint64_t *row0,
                         uint64_t *row1) {
    uint64_t expert_nblocks = ceil_div(b->shape.rows, R4_NROWS);
    uint64_t first = block % expert_nblocks * R4_NROWS, left = b->shape.rows - first;
    *row0 = block / expert_nblocks * b->shape.rows + first;
    *row1 = *row0 + (left < R4_NROWS ? left : R4_NROWS);
}

void r4_build_block(struct r4_builder *b, uint64_t block, const uint8_t *bf16, size_t stride,
                    unsigned worker) {
    struct r4_task_escapes *waiting = &b->waiting[worker];
    uint8_t *before = waiting->end;
    uint64_t row0, row1;

    r4_build_block_rows(b, block, &row0, &row1);
    r4_kernels()->encode(bf16, stride, (size_t)(row1 - row0), (size_t)b->shape.cols, b->code_of,
                         b->groups + (size_t)block * r4_block_nbytes(&b->shape), &waiting->end);
    b->escape_starts[block + 1] = (uint32_t)(waiting->end - before);
}

binade_status r4_build_end_task(struct r4_builder *b, size_t i, unsigned worker,
                                binade_error *err) {
    struct r4_task_escapes *waiting = &b->waiting[worker];
    if (!pool_wait_turn(b->pool, i)) return fail(err, BINADE_E_CANCELLED, "another thread failed");
    binade_status status =
        buffer_put(&b->escapes, waiting->data, (size_t)(waiting->end - waiting->data), err);
    waiting->end = waiting->data;
    if (!status) pool_end_turn(b->pool, i);
    return status;
}

binade_status r4_build_finish(struct r4_builder *b, binade_r4 *out, binade_error *err) {
    if (b->escapes.nbytes > UINT32_MAX)
        return fail(err, BINADE_E_USAGE,
                    "%zu exponents outside the 15 most frequent, R4 has room "
                    "for 4294967295",
                    b->escapes.nbytes);
    for (uint64_t block = 0; block < b->nblocks; block++)
        b->escape_starts[block + 1] += b->escape_starts[block];
    uint8_t *escapes = realloc(b->escapes.data, b->escapes.nbytes ? b->escapes.nbytes : 1);
    if (!escapes) return fail_memory(err);
    *out = b->shape;
    out->exponents = b->exponents;
    out->groups = b->groups;
    out->escape_starts = b->escape_starts;
    out->escapes = escapes;
    b->exponents = b->groups = NULL;
    b->escape_starts = NULL;
    b->escapes = (struct buffer){0};
    return BINADE_OK;
}

void binade_r4_free(binade_r4 *w) {
    free((void *)w->groups);
    free((void *)w->escapes);
    free((void *)w->escape_starts);
    free((void *)w->exponents);
    *w = (binade_r4){0};
}
