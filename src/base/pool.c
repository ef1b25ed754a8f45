/* pool.c - see pool.h. One job at a time, and one word that says which:
 *
 *   state   generation (32 bits) | ... | open (1 bit) | workers inside (16 bits)
 *
 * The caller writes the job and opens it with a new generation; workers that come while it is open enter by raising the
 * count; indices are claimed from an atomic counter. When none is left the caller closes the job and waits for those
 * inside alone: a worker that sleeps, or that the system has taken the processor from, is not waited for. Who waits
 * spins for a time and then sleeps; who wakes looks first whether anybody sleeps, so that a busy pool takes no lock. */
#define _GNU_SOURCE
#include "base/pool.h"
#include "base/clock.h"
#include "base/memory.h"

#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* Longer than the pauses within a token and between two: waking costs tens of microseconds, and 50 here cost decode
 * several per cent. */
enum { SPIN_NANOSECONDS = 300000, SPIN_ROUNDS = 16 };

#define INSIDE_MASK UINT64_C(0xffff)
#define OPEN        (UINT64_C(1) << 16)
#define GENERATION  (UINT64_C(1) << 32)

struct worker {
    ramet_pool *pool;
    uint32_t index;
    pthread_t thread;
};

struct ramet_pool {
    /* immutable, but for the job: written while it is closed and nobody is inside */
    uint32_t n_threads; /* the caller counted */
    uint32_t n_started;
    struct worker *workers;
    ramet_job job;
    void *user;
    uint32_t n;
    atomic_bool stop;
    /* what threads fight for has a line of the processor's cache each */
    alignas(64) _Atomic uint64_t state;
    alignas(64) _Atomic uint32_t next; /* next unclaimed index */
    alignas(64) _Atomic uint32_t n_asleep;
    atomic_bool caller_sleeps;
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
};

/* ---- waiting ---- */

static inline void spin_hint(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Whether it came true within the time to spin. */
static bool spin_until(ramet_pool *pool, bool (*is_true)(const ramet_pool *, uint64_t), uint64_t argument) {
    uint64_t start = 0;
    do {
        for (int round = 0; round < SPIN_ROUNDS; round++) {
            if (is_true(pool, argument)) return true;
            spin_hint();
        }
        if (start == 0) start = ramet_now_nanoseconds();
    } while (ramet_now_nanoseconds() - start < SPIN_NANOSECONDS);
    return false;
}

/* A job that this worker has not seen yet, or the end. */
static bool has_news(const ramet_pool *pool, uint64_t seen) {
    uint64_t state = atomic_load(&pool->state);
    return (state & OPEN && state / GENERATION != seen) || atomic_load(&pool->stop);
}

static bool is_empty(const ramet_pool *pool, uint64_t unused) {
    (void)unused;
    return (atomic_load(&pool->state) & INSIDE_MASK) == 0;
}

/* The sleeper says that it sleeps and then looks again; who changes things changes them and then looks for sleepers
 * (all of it sequentially consistent), so one of the two sees the other. */
static void wait_for_news(ramet_pool *pool, uint64_t seen) {
    if (spin_until(pool, has_news, seen)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_asleep, 1);
    while (!has_news(pool, seen)) pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->n_asleep, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void wait_until_empty(ramet_pool *pool) {
    if (spin_until(pool, is_empty, 0)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true);
    while (!is_empty(pool, 0)) pthread_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

static void wake_workers(ramet_pool *pool) {
    if (atomic_load(&pool->n_asleep) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

static void wake_caller(ramet_pool *pool) {
    if (!atomic_load(&pool->caller_sleeps)) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- working ---- */

static void work(ramet_pool *pool, uint32_t worker) {
    for (;;) {
        uint32_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (index >= pool->n) return;
        pool->job(pool->user, index, worker);
    }
}

/* Enters the open job, if one is; *seen is its generation, also when it has been closed meanwhile. */
static bool enter_job(ramet_pool *pool, uint64_t *seen) {
    uint64_t state = atomic_load(&pool->state);
    while (state & OPEN)
        if (atomic_compare_exchange_weak(&pool->state, &state, state + 1)) break;
    *seen = state / GENERATION;
    return state & OPEN;
}

static void leave_job(ramet_pool *pool) {
    uint64_t before = atomic_fetch_sub(&pool->state, 1);
    if ((before & INSIDE_MASK) == 1 && !(before & OPEN)) wake_caller(pool);
}

static void *worker_main(void *argument) {
    struct worker *self = argument;
    ramet_pool *pool = self->pool;
    for (uint64_t seen = 0;;) {
        wait_for_news(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        if (!enter_job(pool, &seen)) continue;
        work(pool, self->index);
        leave_job(pool);
    }
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
    atomic_store(&pool->state, (atomic_load(&pool->state) & ~(GENERATION - 1)) + GENERATION + OPEN);
    wake_workers(pool);
    work(pool, 0);
    atomic_fetch_and(&pool->state, ~OPEN);
    wait_until_empty(pool);
}

/* ---- life ---- */

/* The first processor is left to the caller. One that is taken away later is the system's business: it then runs the
 * thread elsewhere. */
void ramet_pool_bind(ramet_pool *pool) {
#ifdef __linux__
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    if (pool->n_threads != (uint32_t)CPU_COUNT(&allowed)) return;
    for (uint32_t cpu = 0, i = 0; cpu < CPU_SETSIZE && i < pool->n_threads; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (i > 0) pthread_setaffinity_np(pool->workers[i].thread, sizeof one, &one);
        i++;
    }
#else
    (void)pool;
#endif
}

/* A fault stays the thread's own: blocked, it would end the process without a word from anybody's handler. */
bool ramet_thread_start(pthread_t *out, void *(*run)(void *), void *argument) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before); /* a new thread inherits it */
    bool started = pthread_create(out, NULL, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

ramet_status ramet_pool_create(uint32_t threads, ramet_pool **out, ramet_error *error) {
    *out = NULL;
    if (threads < 1 || threads > 1024)
        return ramet_fail(error, RAMET_E_ARGUMENT, "threads must be 1 to 1024, not %u", threads);
    ramet_pool *pool = ramet_map(sizeof *pool);
    struct worker *workers = ramet_alloc(threads, sizeof *workers);
    if (!pool || !workers) {
        ramet_unmap(pool, sizeof *pool);
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
        if (!ramet_thread_start(&workers[i].thread, worker_main, &workers[i])) {
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
    atomic_store(&pool->stop, true);
    wake_workers(pool);
    for (uint32_t i = 1; i <= pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->done);
    free(pool->workers);
    ramet_unmap(pool, sizeof *pool);
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
