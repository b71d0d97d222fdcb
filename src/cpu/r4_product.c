/* r4_product.c - cuts products into tasks for the team.
 *
 * A product is runs of items that share an expert: rows of x for r4_matmul, one run; rows of x with
 * their experts for r4_gather, ordered by expert, so that a weight is decoded once for all.
 */
#include "cpu/r4_product.h"

#include <string.h>

#include "base/team.h"
#include "cpu/r4_kernels.h"
#include "cpu/r4_task.h"
#include "r4/r4_plain.h"

struct run {
    uint64_t expert;
    size_t first, nitems; /* in task.items */
    size_t task0;         /* the run's first */
};

struct product {
    struct r4_task task; /* what all tasks share */
    const struct run *runs;
    size_t nruns, span; /* blocks of a task */
};

struct r4_means r4_default_means(void) {
    return (struct r4_means){r4_kernels(), team_nthreads()};
}

static size_t run_ntasks(const struct product *p, const struct run *run) {
    return (size_t)(ceil_div(r4_nblocks(p->task.w), p->span) *
                    ceil_div(run->nitems, R4_TASK_NROWS));
}

/* The last run that begins at or before task i. */
static const struct run *find_run(const struct product *p, size_t i) {
    size_t low = 0, high = p->nruns;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p->runs[middle].task0 <= i)
            low = middle;
        else
            high = middle;
    }
    return &p->runs[low];
}

static void run_task(void *user, size_t i, void *scratch) {
    const struct product *p = user;
    const struct run *run = find_run(p, i);
    size_t nspans = (size_t)ceil_div(r4_nblocks(p->task.w), p->span);
    size_t item = (i - run->task0) / nspans * R4_TASK_NROWS;
    struct r4_task task = p->task;

    task.expert = run->expert;
    task.first_item = run->first + item;
    task.nitems = run->nitems - item < R4_TASK_NROWS ? run->nitems - item : R4_TASK_NROWS;
    task.block0 = (i - run->task0) % nspans * p->span;
    task.nblocks = r4_nblocks(p->task.w) - task.block0;
    if (task.nblocks > p->span) task.nblocks = p->span;
    r4_task_run(&task, scratch);
}

/* nblocks: of all runs, those of a run counted once for each R4_TASK_NROWS items. Some tasks for
 * each thread, as threads may be interrupted; but whole panels where there are enough, as kernels
 * work on four blocks at a time. */
static size_t choose_span(size_t nblocks, unsigned nthreads) {
    enum { NTASKS_PER_THREAD = 4 };
    if (nthreads < 2) return R4_TASK_NBLOCKS;
    size_t span = nblocks / (NTASKS_PER_THREAD * nthreads);
    if (span >= R4_TASK_NBLOCKS) return R4_TASK_NBLOCKS;
    if (span >= R4_PANEL_NBLOCKS) return span / R4_PANEL_NBLOCKS * R4_PANEL_NBLOCKS;
    span = (size_t)ceil_div(nblocks, nthreads);
    return span > R4_PANEL_NBLOCKS ? R4_PANEL_NBLOCKS : span;
}

/* Below this, in weights times rows of x, waking a thread takes about as long as the work. */
enum { NTHREADED_LEAST = 1 << 17 };

static void multiply(const struct r4_means *means, struct product *p, struct run *runs,
                     size_t nruns, size_t nitems) {
    size_t nblocks = 0, ntasks = 0;
    struct r4_lookup lookup;
    bool is_small =
        (double)nitems * (double)p->task.w->rows * (double)p->task.w->cols < NTHREADED_LEAST;
    unsigned nthreads = is_small ? 1 : means->nthreads;

    for (size_t r = 0; r < nruns; r++)
        nblocks += r4_nblocks(p->task.w) * (size_t)ceil_div(runs[r].nitems, R4_TASK_NROWS);
    if (nblocks == 0) return;
    r4_lookup_build(p->task.w->exponents, &lookup);
    p->task.set = means->set;
    p->task.lookup = &lookup;
    p->runs = runs;
    p->nruns = nruns;
    p->span = choose_span(nblocks, nthreads);
    for (size_t r = 0; r < nruns; r++) {
        runs[r].task0 = ntasks;
        ntasks += run_ntasks(p, &runs[r]);
    }
    team_run(nthreads, ntasks, run_task, p);
}

void r4_matmul(const struct r4_means *means, const binade_r4 *w, uint64_t expert,
               const struct r4_operands *operands, size_t m) {
    struct product p = {.task = {.w = w, .operands = *operands}};
    struct run run = {.expert = expert, .nitems = m};
    multiply(means, &p, &run, 1, m);
}

/* ---- Gather -------------------------------------------------------------------------------- */

/* On the stack, about 56 KB, so that nothing can fail. */
enum { NSORTED_MOST = 4096, NRUNS_MOST = 512 };

/* Orders items first..first+n-1 by expert, a byte of it at a time; equal ones keep their order. */
static void sort_items(const uint32_t *experts, uint32_t first, size_t n, uint32_t *items) {
    uint32_t other[NSORTED_MOST];

    for (size_t i = 0; i < n; i++)
        items[i] = first + (uint32_t)i;
    for (unsigned shift = 0; shift < 32; shift += 8) {
        size_t starts[257] = {0};
        for (size_t i = 0; i < n; i++)
            starts[(experts[items[i]] >> shift & 255) + 1]++;
        if (starts[(experts[first] >> shift & 255) + 1] == n) continue;
        for (size_t digit = 0; digit < 256; digit++)
            starts[digit + 1] += starts[digit];
        for (size_t i = 0; i < n; i++)
            other[starts[experts[items[i]] >> shift & 255]++] = items[i];
        memcpy(items, other, n * sizeof *items);
    }
}

/* Runs of equal experts among n items, of which item i of `items`, or i, is the i-th from *first
 * on. Stops when there is no room for more runs; *first is where. */
static size_t find_runs(const uint32_t *experts, const uint32_t *items, size_t *first, size_t n,
                        struct run *runs) {
    size_t nruns = 0, i = *first;

    while (i < n && nruns < NRUNS_MOST) {
        struct run *run = &runs[nruns++];
        *run = (struct run){.expert = experts[items ? items[i] : i], .first = i};
        while (i < n && experts[items ? items[i] : i] == run->expert)
            i++;
        run->nitems = i - run->first;
    }
    *first = i;
    return nruns;
}

/* n items, in this order. */
static void multiply_ordered(const struct r4_means *means, struct product *p,
                             const uint32_t *experts, size_t n) {
    struct run runs[NRUNS_MOST];

    for (size_t first = 0; first < n;) {
        size_t before = first, nruns = find_runs(experts, p->task.items, &first, n, runs);
        multiply(means, p, runs, nruns, first - before);
    }
}

static bool is_sorted(const uint32_t *experts, size_t n) {
    for (size_t i = 1; i < n; i++)
        if (experts[i - 1] > experts[i]) return false;
    return true;
}

void r4_gather(const struct r4_means *means, const binade_r4 *w, const struct r4_operands *operands,
               const uint32_t *x_rows, const uint32_t *experts, size_t n) {
    struct product p = {.task = {.w = w, .operands = *operands, .x_rows = x_rows}};
    uint32_t items[NSORTED_MOST];

    if (is_sorted(experts, n)) {
        multiply_ordered(means, &p, experts, n);
        return;
    }
    p.task.items = items;
    for (size_t first = 0; first < n; first += NSORTED_MOST) {
        size_t nsorted = n - first < NSORTED_MOST ? n - first : NSORTED_MOST;
        sort_items(experts, (uint32_t)first, nsorted, items);
        multiply_ordered(means, &p, experts, nsorted);
    }
}

/* ---- The public functions ---------------------------------------------------------------------
 */

void binade_r4_matmul(const binade_r4 *w, uint64_t expert, const uint16_t *x, size_t m, size_t ldx,
                      const uint16_t *bias, uint16_t *y, size_t ldy) {
    struct r4_means means = r4_default_means();
    struct r4_operands operands = {.x = x, .bias = bias, .y = y, .ldx = ldx, .ldy = ldy};
    r4_matmul(&means, w, expert, &operands, m);
}

void binade_r4_gather(const binade_r4 *w, const uint16_t *x, size_t ldx, const uint32_t *x_rows,
                      const uint32_t *experts, size_t n, uint16_t *y, size_t ldy) {
    struct r4_means means = r4_default_means();
    struct r4_operands operands = {.x = x, .y = y, .ldx = ldx, .ldy = ldy};
    r4_gather(&means, w, &operands, x_rows, experts, n);
}
