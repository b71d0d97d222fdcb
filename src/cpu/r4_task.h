/* r4_task.h - one thread's part of a product: some blocks of one expert, some rows of x. */
#ifndef BINADE_CPU_R4_TASK_H
#define BINADE_CPU_R4_TASK_H

#include "cpu/r4_product.h"

enum {
    R4_TASK_NBLOCKS = 64, /* at most, in a task with one row of x */
    R4_TASK_NROWS = 256,  /* rows of x at most */
};

struct r4_task {
    const struct r4_kernels *set;
    const binade_r4 *w;
    const struct r4_lookup *lookup;
    struct r4_operands operands;
    const uint32_t *items;  /* [nitems], or NULL: first_item, first_item + 1, ... */
    const uint32_t *x_rows; /* by item, or NULL: the item */
    size_t first_item, nitems;
    uint64_t expert;
    size_t block0, nblocks; /* of the expert */
};

/* scratch: TEAM_SCRATCH_NBYTES, aligned to 64 bytes. */
void r4_task_run(const struct r4_task *task, void *scratch);

#endif
