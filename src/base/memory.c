/* memory.c - see memory.h. */
#define _GNU_SOURCE
#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic uint64_t fail_countdown;

void ramet_alloc_fail_after(uint64_t n) {
    atomic_store(&fail_countdown, n);
}

static bool must_fail(void) {
    uint64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left != 0)
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) return left == 1;
    return false;
}

void *ramet_alloc(size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || __builtin_mul_overflow(n, size, &bytes)) return NULL;
    return calloc(1, bytes ? bytes : 1);
}

bool ramet_grow(void **array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) return true;
    size_t wanted = *capacity ? *capacity : 16;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2) return false;
        wanted *= 2;
    }
    size_t bytes;
    if (__builtin_mul_overflow(wanted, size, &bytes) || must_fail()) return false;
    void *grown = realloc(*array, bytes);
    if (!grown) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

void *ramet_reserve(size_t bytes) {
    if (bytes == 0) bytes = 1;
    if (must_fail()) return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *ramet_map(size_t bytes) {
    void *memory = ramet_reserve(bytes);
#ifdef MADV_HUGEPAGE
    if (memory && bytes >= (size_t)2 << 20)
        madvise(memory, bytes, MADV_HUGEPAGE); /* advice: a refusal changes nothing */
#endif
    return memory;
}

void ramet_unmap(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes ? bytes : 1);
}
