/* r4_build.h - makes an R4 weight from rows of BF16, on the threads of a pool.
 *
 * The weight's blocks are cut into tasks of a pool_run. A task calls r4_build_block for each of
 * its blocks in ascending order and then r4_build_end_task, where its escapes join those of the
 * tasks before.
 */
#ifndef BINADE_CPU_R4_BUILD_H
#define BINADE_CPU_R4_BUILD_H

#include "base/buffer.h"
#include "base/threads.h"
#include "r4/r4_layout.h"

struct r4_builder {
    binade_r4 shape; /* without arrays */
    uint64_t nblocks, task_nblocks;
    size_t ntasks;
    struct pool *pool;
    uint8_t code_of[256]; /* by exponent */
    uint8_t *exponents, *groups;
    uint32_t *escape_starts; /* until the end: block b's number of escapes at b + 1 */
    struct buffer escapes;   /* of tasks whose turn is over */
    struct r4_task_escapes { /* [nthreads], of the task that a thread is at */
        uint8_t *data, *end; /* data[16 * cols * task_nblocks] */
    } * waiting;
};

/* table[256]: exponents by rank. To be closed also on failure. */
binade_status r4_build_open(struct r4_builder *b, uint64_t nexperts, uint64_t rows, uint64_t cols,
                            const uint8_t table[256], struct pool *pool, binade_error *err);
void r4_build_close(struct r4_builder *b);

/* The blocks of task i, numbered through all experts. */
void r4_build_task_blocks(const struct r4_builder *b, size_t i, uint64_t *block0, uint64_t *block1);
/* The rows of a block, numbered through all experts. */
void r4_build_block_rows(const struct r4_builder *b, uint64_t block, uint64_t *row0,
                         uint64_t *row1);

/* The block's rows, of `cols` weights each, are `stride` bytes apart. */
void r4_build_block(struct r4_builder *b, uint64_t block, const uint8_t *bf16, size_t stride,
                    unsigned worker);
binade_status r4_build_end_task(struct r4_builder *b, size_t i, unsigned worker, binade_error *err);

/* After all tasks: hands the arrays over to *out. */
binade_status r4_build_finish(struct r4_builder *b, binade_r4 *out, binade_error *err);

#endif
