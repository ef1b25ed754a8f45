/* pool.h - the worker threads. A job is a function called once for each index in [0, n); which thread runs an index is
 * free, so a job must give the same bits whoever runs it. Workers spin briefly, then sleep; running a job allocates
 * nothing. Owns threads; refuses to know what a job does. */
#ifndef RAMET_BASE_POOL_H
#define RAMET_BASE_POOL_H

#include "base/error.h"

#include <pthread.h>

typedef struct ramet_pool ramet_pool;
/* `worker` is in [0, threads): for per-thread scratch memory. */
typedef void (*ramet_job)(void *user, uint32_t index, uint32_t worker);

/* threads >= 1, the caller of ramet_pool_run counted. */
ramet_status ramet_pool_create(uint32_t threads, ramet_pool **out, ramet_error *error);
void ramet_pool_destroy(ramet_pool **pool);
/* Binds each worker to a processor of its own when the pool has a thread for every processor that the process may use,
 * else does nothing: two smaller pools, or two processes, would be bound to the same processors. */
void ramet_pool_bind(ramet_pool *pool);
uint32_t ramet_pool_threads(const ramet_pool *pool);
/* Returns when all indices are done. One caller at a time. `pool` may be NULL: runs in order on this thread. */
void ramet_pool_run(ramet_pool *pool, uint32_t n, ramet_job job, void *user);

/* A thread that no signal of the process interrupts: those are for the program's own threads. False: no thread. */
bool ramet_thread_start(pthread_t *out, void *(*run)(void *), void *argument);

uint32_t ramet_cpu_count(void);

#endif
