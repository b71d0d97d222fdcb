/* team.h - threads that stay awake between short loops.
 *
 * For work of microseconds, where base/threads.h costs too much: no task fails, nothing is in
 * order, and a loop begins without a system call if the last one ended a moment ago. The threads
 * start at the first loop that wants them; where none can start, the caller works alone. After
 * fork the child starts threads of its own.
 */
#ifndef BINADE_BASE_TEAM_H
#define BINADE_BASE_TEAM_H

#include <stddef.h>

/* What each thread has for the tasks' use, aligned to 64 bytes. */
enum { TEAM_SCRATCH_NBYTES = 1 << 17 };

/* The threads of a loop, the caller included: BINADE_NUM_THREADS in the environment (1..256), read
 * once, or one per CPU. */
unsigned team_nthreads(void);

/* Runs task(user, i, scratch) for i < count, in any order, on at most nthreads threads, all in the
 * caller's floating-point environment. Calls from several threads wait for each other; tasks must
 * not call. */
typedef void (*team_task)(void *user, size_t i, void *scratch);
void team_run(unsigned nthreads, size_t count, team_task task, void *user);

#endif
