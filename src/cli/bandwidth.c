/* bandwidth.c - see bandwidth.h. */
#define _GNU_SOURCE
#include "cli/bandwidth.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, LANES = 16, PASSES = 3 };

struct ramet_bandwidth {
    ramet_pool *pool;
    uint8_t *memory;
    size_t bytes, part_bytes; /* a thread's part is in two halves: copied from, copied to */
    uint64_t *sums;           /* so that reading cannot be optimised away */
};

/* More than the last cache and at least 256 MiB in each half, but never more than half of the memory. */
static size_t choose_bytes(void) {
    size_t half = (size_t)256 << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && (size_t)cache + (size_t)cache / 4 > half) half = (size_t)cache + (size_t)cache / 4;
#endif
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0) {
        size_t limit = (size_t)pages / 4 * (size_t)page_bytes;
        if (half > limit) half = limit;
    }
    return 2 * half;
}

static void touch_part(void *user, uint32_t index, uint32_t worker) {
    ramet_bandwidth *b = user;
    (void)worker;
    memset(b->memory + index * b->part_bytes, (int)index + 1, b->part_bytes);
}

static void read_part(void *user, uint32_t index, uint32_t worker) {
    ramet_bandwidth *b = user;
    const uint64_t *words = (const uint64_t *)(const void *)(b->memory + index * b->part_bytes);
    uint64_t lanes[LANES] = {0}, sum = 0;
    (void)worker;
    for (size_t i = 0; i < b->part_bytes / sizeof *words; i += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += words[i + l];
    for (size_t l = 0; l < LANES; l++) sum += lanes[l];
    b->sums[index] = sum;
}

static void copy_part(void *user, uint32_t index, uint32_t worker) {
    ramet_bandwidth *b = user;
    uint8_t *from = b->memory + index * b->part_bytes;
    (void)worker;
    memcpy(from + b->part_bytes / 2, from, b->part_bytes / 2);
}

static uint64_t time_pass(ramet_bandwidth *b, ramet_job job) {
    uint64_t start = ramet_now_nanoseconds();
    ramet_pool_run(b->pool, ramet_pool_threads(b->pool), job, b);
    uint64_t elapsed = ramet_now_nanoseconds() - start;
    return elapsed ? elapsed : 1;
}

ramet_status ramet_bandwidth_create(uint32_t threads, ramet_bandwidth **out, ramet_error *error) {
    *out = NULL;
    ramet_bandwidth *b = ramet_alloc(1, sizeof *b);
    if (!b) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory");
    b->part_bytes = choose_bytes() / threads / (2 * PAGE_BYTES) * (2 * PAGE_BYTES);
    b->bytes = b->part_bytes * threads;
    b->sums = ramet_alloc(threads, sizeof *b->sums);
    b->memory = ramet_map(b->bytes);
    ramet_status status = ramet_pool_create(threads, &b->pool, error);
    if (status == RAMET_OK && (!b->sums || !b->memory))
        status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to measure the memory's speed");
    if (status != RAMET_OK) {
        ramet_bandwidth_destroy(&b);
        return status;
    }
    time_pass(b, touch_part);
    *out = b;
    return RAMET_OK;
}

static uint64_t fastest_pass(ramet_bandwidth *b, ramet_job job) {
    uint64_t fastest = UINT64_MAX;
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t elapsed = time_pass(b, job);
        if (elapsed < fastest) fastest = elapsed;
    }
    return fastest;
}

void ramet_bandwidth_measure(ramet_bandwidth *b, double *out_read_per_second, double *out_copy_per_second) {
    *out_read_per_second = (double)b->bytes * 1e9 / (double)fastest_pass(b, read_part);
    *out_copy_per_second = (double)b->bytes / 2 * 1e9 / (double)fastest_pass(b, copy_part);
}

void ramet_bandwidth_destroy(ramet_bandwidth **b) {
    if (!*b) return;
    if ((*b)->pool) ramet_pool_destroy(&(*b)->pool);
    ramet_unmap((*b)->memory, (*b)->bytes);
    free((*b)->sums);
    free(*b);
    *b = NULL;
}
