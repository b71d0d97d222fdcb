#include "base/team.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/threads.h"

enum { NTHREADS_MAX = 256 };

/* How long a thread looks for the next loop, or the caller for the end of this one, before it
 * sleeps. Between two products of a model lie microseconds; waking a thread takes about as long. */
enum { SPIN_NS = 50000 };

/* `state` says which loop it is, whether threads may join it, and how many have and not yet left.
 */
#define NJOINED UINT64_C(0xffff)
#define IS_OPEN UINT64_C(0x10000)
#define NEXT_LOOP UINT64_C(0x20000)

static struct team {
    pthread_mutex_t calls; /* one loop at a time; guards the fields up to `task` */
    pthread_t threads[NTHREADS_MAX];
    unsigned nstarted;
    bool start_failed, is_watching_forks;

    /* The loop. Fixed while any thread has joined. */
    team_task task;
    void *user;
    size_t count;
    fenv_t environment; /* the caller's: how it rounds, and whether subnormals count */
    atomic_size_t next;
    atomic_uint njoin_most;
    _Atomic uint64_t state;

    pthread_mutex_t lock; /* for the sleepers */
    pthread_cond_t work, done;
    atomic_uint nsleeping;
    atomic_bool caller_sleeps, closing;
} team = {
    .calls = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

/* The caller's: its stack may be small. Guarded by team.calls. */
static _Alignas(64) uint8_t caller_scratch[TEAM_SCRATCH_NBYTES];

static unsigned read_nthreads(void) {
    const char *text = getenv("BINADE_NUM_THREADS");
    unsigned long n = text ? strtoul(text, NULL, 10) : 0;
    if (n == 0) n = cpu_count();
    return n < NTHREADS_MAX ? (unsigned)n : NTHREADS_MAX;
}

unsigned team_nthreads(void) {
    static atomic_uint nthreads;
    unsigned n = atomic_load_explicit(&nthreads, memory_order_relaxed);
    if (!n) {
        n = read_nthreads();
        atomic_store_explicit(&nthreads, n, memory_order_relaxed);
    }
    return n;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void pause_briefly(void) {
    for (int i = 0; i < 16; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

static void run_tasks(void *scratch) {
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&team.next, 1, memory_order_relaxed);
        if (i >= team.count) return;
        team.task(team.user, i, scratch);
    }
}

/* ---- The threads ------------------------------------------------------------------------------
 */

static bool may_join(uint64_t state, uint64_t last) {
    return (state & IS_OPEN) && state / NEXT_LOOP != last &&
           (state & NJOINED) < atomic_load(&team.njoin_most);
}

/* Waits for a loop other than `last`. False: the library is being unloaded. */
static bool wait_for_loop(uint64_t last) {
    uint64_t end = now_ns() + SPIN_NS;
    while (now_ns() < end) {
        if (may_join(atomic_load(&team.state), last)) return true;
        pause_briefly();
    }
    pthread_mutex_lock(&team.lock);
    atomic_fetch_add(&team.nsleeping, 1);
    while (!may_join(atomic_load(&team.state), last) && !atomic_load(&team.closing))
        pthread_cond_wait(&team.work, &team.lock);
    atomic_fetch_sub(&team.nsleeping, 1);
    pthread_mutex_unlock(&team.lock);
    return !atomic_load(&team.closing);
}

static void leave_loop(void) {
    uint64_t before = atomic_fetch_sub(&team.state, 1);
    if ((before & (NJOINED | IS_OPEN)) == 1 && atomic_load(&team.caller_sleeps)) {
        pthread_mutex_lock(&team.lock);
        pthread_cond_signal(&team.done);
        pthread_mutex_unlock(&team.lock);
    }
}

static void *serve(void *unused) {
    _Alignas(64) uint8_t scratch[TEAM_SCRATCH_NBYTES];
    uint64_t last = 0;
    (void)unused;
    while (wait_for_loop(last)) {
        uint64_t state = atomic_load(&team.state);
        if (!may_join(state, last)) continue;
        if (!atomic_compare_exchange_strong(&team.state, &state, state + 1)) continue;
        last = state / NEXT_LOOP;
        fesetenv(&team.environment);
        run_tasks(scratch);
        leave_loop();
    }
    return NULL;
}

/* ---- Starting and stopping ----------------------------------------------------------------------
 */

static void before_fork(void) {
    pthread_mutex_lock(&team.calls);
}

static void after_fork_parent(void) {
    pthread_mutex_unlock(&team.calls);
}

static void after_fork_child(void) {
    /* The threads are gone, perhaps while one held the lock. */
    pthread_mutex_init(&team.lock, NULL);
    pthread_cond_init(&team.work, NULL);
    pthread_cond_init(&team.done, NULL);
    team.nstarted = 0;
    atomic_store(&team.nsleeping, 0);
    atomic_store(&team.state, atomic_load(&team.state) & ~(NJOINED | IS_OPEN));
    pthread_mutex_unlock(&team.calls);
}

/* Some systems give threads little: the scratch must fit, and what libraries keep for each thread.
 */
static int set_stack_size(pthread_attr_t *attributes) {
    enum { LEAST_NBYTES = TEAM_SCRATCH_NBYTES + (1 << 20) };
    size_t nbytes = 0;
    int code = pthread_attr_getstacksize(attributes, &nbytes);
    if (code || nbytes >= LEAST_NBYTES) return code;
    return pthread_attr_setstacksize(attributes, LEAST_NBYTES);
}

/* Signals are the program's, not for these threads to handle. */
static bool start_thread(pthread_t *thread) {
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes)) return false;
    sigfillset(&all);
    bool masked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
    bool ok =
        set_stack_size(&attributes) == 0 && pthread_create(thread, &attributes, serve, NULL) == 0;
    if (masked) pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return ok;
}

static void start_threads(unsigned nthreads) {
    if (team.start_failed) return;
    if (!team.is_watching_forks) {
        team.is_watching_forks =
            pthread_atfork(before_fork, after_fork_parent, after_fork_child) == 0;
        team.start_failed = !team.is_watching_forks;
    }
    while (!team.start_failed && team.nstarted + 1 < nthreads) {
        if (start_thread(&team.threads[team.nstarted]))
            team.nstarted++;
        else
            team.start_failed = true;
    }
}

/* At exit, and before the code of the threads is unloaded. */
__attribute__((destructor)) static void stop_threads(void) {
    pthread_mutex_lock(&team.calls);
    pthread_mutex_lock(&team.lock);
    atomic_store(&team.closing, true);
    pthread_cond_broadcast(&team.work);
    pthread_mutex_unlock(&team.lock);
    for (unsigned i = 0; i < team.nstarted; i++)
        pthread_join(team.threads[i], NULL);
    team.nstarted = 0;
    team.start_failed = true;
    pthread_mutex_unlock(&team.calls);
}

/* ---- A loop -------------------------------------------------------------------------------------
 */

static void wake_threads(size_t count) {
    if (atomic_load(&team.nsleeping) == 0) return;
    pthread_mutex_lock(&team.lock);
    if (count > 2)
        pthread_cond_broadcast(&team.work);
    else
        pthread_cond_signal(&team.work);
    pthread_mutex_unlock(&team.lock);
}

static void wait_until_left(void) {
    uint64_t end = now_ns() + SPIN_NS;
    while (atomic_load(&team.state) & NJOINED) {
        if (now_ns() < end) {
            pause_briefly();
            continue;
        }
        pthread_mutex_lock(&team.lock);
        atomic_store(&team.caller_sleeps, true);
        while (atomic_load(&team.state) & NJOINED)
            pthread_cond_wait(&team.done, &team.lock);
        atomic_store(&team.caller_sleeps, false);
        pthread_mutex_unlock(&team.lock);
    }
}

void team_run(unsigned nthreads, size_t count, team_task task, void *user) {
    pthread_mutex_lock(&team.calls);
    if (nthreads > count) nthreads = (unsigned)count;
    if (nthreads > 1) start_threads(nthreads);
    bool alone = nthreads < 2 || team.nstarted == 0;

    team.task = task;
    team.user = user;
    team.count = count;
    atomic_store(&team.next, 0);
    if (!alone) {
        fegetenv(&team.environment);
        atomic_store(&team.njoin_most, nthreads - 1);
        atomic_store(&team.state, (atomic_load(&team.state) / NEXT_LOOP + 1) * NEXT_LOOP | IS_OPEN);
        wake_threads(count);
    }
    run_tasks(caller_scratch);
    if (!alone) {
        /* Threads that did not join in time are not waited for. */
        atomic_fetch_and(&team.state, ~IS_OPEN);
        wait_until_left();
    }
    pthread_mutex_unlock(&team.calls);
}
