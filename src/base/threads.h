/* threads.h - a pool that runs the tasks of a loop on several threads, in order of their numbers.
 *
 * Tasks are handed out in ascending order. A task whose results must join in order (a running
 * checksum, a growing file) calls pool_wait_turn(p, i) and later pool_end_turn(p, i): turns pass
 * from task 0 to 1 to 2 ..., while everything outside a turn runs in parallel. The loop stops at
 * the first failure, and the failure of the lowest-numbered task that failed is the one reported.
 */
#ifndef BINADE_BASE_THREADS_H
#define BINADE_BASE_THREADS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct pool;

/* CPUs this process may use. */
unsigned cpu_count(void);

/* nthreads 0: cpu_count(). One of them is the caller of pool_run. Where the system refuses threads,
 * there are fewer: pool_nthreads tells. */
binade_status pool_open(struct pool **p, unsigned nthreads, binade_error *err);
/* Waits for background jobs; accepts NULL. */
void pool_close(struct pool *p);
unsigned pool_nthreads(const struct pool *p);

/* Runs task(user, i, worker, err) for i in 0..count-1; worker < pool_nthreads tells whose scratch
 * to use. */
typedef binade_status (*pool_task)(void *user, size_t i, unsigned worker, binade_error *err);
binade_status pool_run(struct pool *p, size_t count, pool_task task, void *user, binade_error *err);

/* Within a task: blocks until tasks 0..i-1 ended their turns. False if the loop is failing: the
 * task should return BINADE_E_CANCELLED. A task that uses turns ends its own exactly once, or
 * fails. */
bool pool_wait_turn(struct pool *p, size_t i);
void pool_end_turn(struct pool *p, size_t i);

/* Hands over a job that runs beside the loops, when a worker is free or at the latest in
 * pool_drain. */
typedef binade_status (*pool_job)(void *user, binade_error *err);
binade_status pool_submit(struct pool *p, pool_job job, void *user, binade_error *err);
/* Runs and waits for every job; the first failure is reported. */
binade_status pool_drain(struct pool *p, binade_error *err);

#endif
