/* pool.c - see pool.h. One job at a time: a generation number wakes the workers, indices are claimed from an atomic
 * counter, and the last worker to leave wakes the caller. */
#define _GNU_SOURCE
#include "base/pool.h"
#include "base/memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPIN_ROUNDS = 4000 };

struct worker {
    ramet_pool *pool;
    uint32_t index;
    pthread_t thread;
};

struct ramet_pool {
    uint32_t n_threads; /* immutable, the caller counted */
    uint32_t n_started;
    struct worker *workers;
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    /* the job; written by the caller before `generation` is published */
    ramet_job job;
    void *user;
    uint32_t n;
    _Atomic uint32_t next;       /* next unclaimed index */
    _Atomic uint32_t inside;     /* workers that have not left this job */
    _Atomic uint32_t generation; /* odd or even, it only has to change */
    _Atomic bool stop;
};

static inline void spin_hint(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work(ramet_pool *pool, uint32_t worker) {
    for (;;) {
        uint32_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (index >= pool->n) return;
        pool->job(pool->user, index, worker);
    }
}

/* Waits until the generation is no longer `seen`; returns the new one. */
static uint32_t wait_for_job(ramet_pool *pool, uint32_t seen) {
    for (int round = 0; round < SPIN_ROUNDS; round++) {
        uint32_t now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen) return now;
        spin_hint();
    }
    pthread_mutex_lock(&pool->mutex);
    uint32_t now;
    while ((now = atomic_load_explicit(&pool->generation, memory_order_acquire)) == seen)
        pthread_cond_wait(&pool->wake, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    return now;
}

static void *worker_main(void *argument) {
    struct worker *self = argument;
    ramet_pool *pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_for_job(pool, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
        work(pool, self->index);
        if (atomic_fetch_sub_explicit(&pool->inside, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

static void publish(ramet_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

void ramet_pool_run(ramet_pool *pool, uint32_t n, ramet_job job, void *user) {
    if (!pool || pool->n_started == 0 || n <= 1) {
        for (uint32_t i = 0; i < n; i++) job(user, i, 0);
        return;
    }
    pool->job = job;
    pool->user = user;
    pool->n = n;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->inside, pool->n_started, memory_order_relaxed);
    publish(pool);
    work(pool, 0);
    for (int round = 0; round < SPIN_ROUNDS; round++) {
        if (atomic_load_explicit(&pool->inside, memory_order_acquire) == 0) return;
        spin_hint();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load_explicit(&pool->inside, memory_order_acquire) != 0) pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

ramet_status ramet_pool_create(uint32_t threads, ramet_pool **out, ramet_error *error) {
    *out = NULL;
    if (threads < 1 || threads > 1024)
        return ramet_fail(error, RAMET_E_ARGUMENT, "threads must be 1 to 1024, not %u", threads);
    ramet_pool *pool = ramet_alloc(1, sizeof *pool);
    struct worker *workers = ramet_alloc(threads, sizeof *workers);
    if (!pool || !workers) {
        free(pool);
        free(workers);
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %u worker threads", threads);
    }
    pool->n_threads = threads;
    pool->workers = workers;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (uint32_t i = 1; i < threads; i++) {
        workers[i] = (struct worker){.pool = pool, .index = i};
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0) {
            ramet_pool_destroy(&pool);
            return ramet_fail(error, RAMET_E_NO_MEMORY, "cannot start worker thread %u of %u; use fewer threads (-t)",
                              i, threads);
        }
        pool->n_started++;
    }
    *out = pool;
    return RAMET_OK;
}

void ramet_pool_destroy(ramet_pool **handle) {
    ramet_pool *pool = *handle;
    if (!pool) return;
    *handle = NULL;
    atomic_store_explicit(&pool->stop, true, memory_order_release);
    publish(pool);
    for (uint32_t i = 1; i <= pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->done);
    free(pool->workers);
    free(pool);
}

uint32_t ramet_pool_threads(const ramet_pool *pool) {
    return pool ? pool->n_threads : 1;
}

uint32_t ramet_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int n = CPU_COUNT(&set);
        if (n > 0) return (uint32_t)n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}
