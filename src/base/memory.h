/* memory.h - sizes that cannot overflow, aligned blocks, and anonymous mappings for the large ones.
 * Owns no memory itself. Every size that came from a file passes through the checked operations. */
#ifndef RAMET_BASE_MEMORY_H
#define RAMET_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True, and *out set, when the result fits. */
static inline bool ramet_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool ramet_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline uint32_t ramet_min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static inline uint32_t ramet_max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* Zeroed memory for n elements; NULL when n * size overflows or there is none. n = 0 gives a unique pointer. Free with free. */
void *ramet_alloc(size_t n, size_t size);
/* Grows an array to hold at least `need` elements, doubling; false leaves everything as it was. */
bool ramet_grow(void **array, size_t *capacity, size_t need, size_t size);

/* Zeroed, 64-byte aligned or better, asking for huge pages from 2 MiB on. NULL when there is none. */
void *ramet_map(size_t bytes);
/* The same without huge pages: addresses of which a small part may ever be touched. */
void *ramet_reserve(size_t bytes);
void ramet_unmap(void *memory, size_t bytes);

/* Test hook: the nth allocation from now (1 = next) through this header fails; 0 switches it off. */
void ramet_alloc_fail_after(uint64_t n);

#endif
