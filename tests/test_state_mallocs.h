/* test_state_mallocs.h - counts every malloc, calloc and realloc of the program while asked to. A test program that
 * includes it replaces the allocator's entry points by ones that count and go on to the C library's own. Not under a
 * sanitizer, which has replaced them already: mallocs_can_be_counted says. */
#ifndef RAMET_TEST_STATE_MALLOCS_H
#define RAMET_TEST_STATE_MALLOCS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MALLOCS_ARE_TAKEN 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MALLOCS_ARE_TAKEN 1
#endif

static _Atomic uint64_t n_mallocs;

#if defined(__GLIBC__) && !defined(MALLOCS_ARE_TAKEN)
enum { mallocs_can_be_counted = true };

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes) {
    atomic_fetch_add(&n_mallocs, 1);
    return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
    atomic_fetch_add(&n_mallocs, 1);
    return __libc_calloc(n, bytes);
}
void *realloc(void *old, size_t bytes) {
    atomic_fetch_add(&n_mallocs, 1);
    return __libc_realloc(old, bytes);
}
#else
enum { mallocs_can_be_counted = false };
#endif

/* Mallocs since the last call. */
static inline uint64_t take_mallocs(void) {
    return atomic_exchange(&n_mallocs, 0);
}

#endif
