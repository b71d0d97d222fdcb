#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { NTHREADS_MAX = 1024 };

struct job {
    pool_job run;
    void *user;
    struct job *next;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work;  /* there may be something to run */
    pthread_cond_t done;  /* a task or job ended */
    pthread_cond_t turns; /* a turn ended or a task failed */
    pthread_t *threads;   /* [nthreads - 1] */
    unsigned nthreads, nstarted, nnamed;
    bool closing;

    pool_task task; /* NULL: no loop is running */
    void *task_user;
    size_t count, next, nrunning, turn;
    size_t failed; /* lowest task that failed, or SIZE_MAX */
    binade_status status;
    binade_error error;

    struct job *jobs, **jobs_end;
    size_t njobs_running;
    binade_status job_status;
    binade_error job_error;
};

unsigned cpu_count(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int n = CPU_COUNT(&set);
        if (n > 0) return (unsigned)n;
    }
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

/* Called with the lock held; releases it while the job runs. */
static void run_job(struct pool *p) {
    struct job *job = p->jobs;
    p->jobs = job->next;
    if (!p->jobs) p->jobs_end = &p->jobs;
    p->njobs_running++;
    pthread_mutex_unlock(&p->lock);

    binade_error error = {""};
    binade_status status = job->run(job->user, &error);
    free(job);

    pthread_mutex_lock(&p->lock);
    if (status && !p->job_status) {
        p->job_status = status;
        p->job_error = error;
    }
    p->njobs_running--;
    pthread_cond_broadcast(&p->done);
}

static bool has_task(const struct pool *p) {
    return p->task && p->next < p->count && p->failed == SIZE_MAX;
}

/* Called with the lock held; releases it while the task runs. */
static void run_task(struct pool *p, unsigned worker) {
    size_t i = p->next++;
    p->nrunning++;
    pthread_mutex_unlock(&p->lock);

    binade_error error = {""};
    binade_status status = p->task(p->task_user, i, worker, &error);

    pthread_mutex_lock(&p->lock);
    if (status && i < p->failed) {
        p->failed = i;
        p->status = status;
        p->error = error;
        pthread_cond_broadcast(&p->turns);
    }
    p->nrunning--;
    if (p->nrunning == 0) pthread_cond_broadcast(&p->done);
}

static void *serve(void *user) {
    struct pool *p = user;
    pthread_mutex_lock(&p->lock);
    unsigned worker = ++p->nnamed;
    for (;;) {
        if (p->jobs && !p->closing)
            run_job(p);
        else if (has_task(p))
            run_task(p, worker);
        else if (p->closing)
            break;
        else
            pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

binade_status pool_open(struct pool **out, unsigned nthreads, binade_error *err) {
    *out = NULL;
    struct pool *p = calloc(1, sizeof *p);
    if (!p) return fail_memory(err);
    p->nthreads = nthreads ? nthreads : cpu_count();
    if (p->nthreads > NTHREADS_MAX) p->nthreads = NTHREADS_MAX;
    p->failed = SIZE_MAX;
    p->jobs_end = &p->jobs;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    pthread_cond_init(&p->turns, NULL);
    p->threads = calloc(p->nthreads, sizeof *p->threads);
    if (!p->threads) {
        pool_close(p);
        return fail_memory(err);
    }
    while (p->nstarted + 1 < p->nthreads) {
        if (pthread_create(&p->threads[p->nstarted], NULL, serve, p)) break;
        p->nstarted++;
    }
    /* Where the system gives no more threads, those that there are do the work. */
    pthread_mutex_lock(&p->lock);
    p->nthreads = p->nstarted + 1;
    pthread_mutex_unlock(&p->lock);
    *out = p;
    return BINADE_OK;
}

void pool_close(struct pool *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->nstarted; i++)
        pthread_join(p->threads[i], NULL);
    while (p->jobs) {
        struct job *job = p->jobs;
        p->jobs = job->next;
        free(job);
    }
    pthread_cond_destroy(&p->turns);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p);
}

unsigned pool_nthreads(const struct pool *p) {
    return p->nthreads;
}

binade_status pool_run(struct pool *p, size_t count, pool_task task, void *user,
                       binade_error *err) {
    pthread_mutex_lock(&p->lock);
    p->task = task;
    p->task_user = user;
    p->count = count;
    p->next = p->nrunning = p->turn = 0;
    p->failed = SIZE_MAX;
    p->status = BINADE_OK;
    if (count > 1) pthread_cond_broadcast(&p->work);
    while (has_task(p))
        run_task(p, 0);
    while (p->nrunning)
        pthread_cond_wait(&p->done, &p->lock);
    p->task = NULL;
    binade_status status = p->status;
    if (status && err) *err = p->error;
    pthread_mutex_unlock(&p->lock);
    return status;
}

bool pool_wait_turn(struct pool *p, size_t i) {
    pthread_mutex_lock(&p->lock);
    while (p->turn != i && p->failed > i)
        pthread_cond_wait(&p->turns, &p->lock);
    bool mine = p->turn == i;
    pthread_mutex_unlock(&p->lock);
    return mine;
}

void pool_end_turn(struct pool *p, size_t i) {
    pthread_mutex_lock(&p->lock);
    p->turn = i + 1;
    pthread_cond_broadcast(&p->turns);
    pthread_mutex_unlock(&p->lock);
}

binade_status pool_submit(struct pool *p, pool_job run, void *user, binade_error *err) {
    struct job *job = malloc(sizeof *job);
    if (!job) return fail_memory(err);
    *job = (struct job){run, user, NULL};
    pthread_mutex_lock(&p->lock);
    *p->jobs_end = job;
    p->jobs_end = &job->next;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return BINADE_OK;
}

binade_status pool_drain(struct pool *p, binade_error *err) {
    pthread_mutex_lock(&p->lock);
    while (p->jobs || p->njobs_running) {
        if (p->jobs)
            run_job(p);
        else
            pthread_cond_wait(&p->done, &p->lock);
    }
    binade_status status = p->job_status;
    if (status && err) *err = p->job_error;
    p->job_status = BINADE_OK;
    pthread_mutex_unlock(&p->lock);
    return status;
}
