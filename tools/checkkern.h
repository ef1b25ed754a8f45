/* checkkern.h - inside ramet-checkkern. A case makes random inputs from a seed, calls one kernel of a table and records
 * everything that it may have written; run twice with the same seed and two tables, the records must be equal. */
#ifndef RAMET_CHECKKERN_H
#define RAMET_CHECKKERN_H

#include "kernels/kernels.h"

/* Random numbers that a seed repeats. */
typedef struct rng {
    uint64_t state;
    bool ordinary; /* no extreme inputs, for a bench */
} rng;

uint64_t rng_next(rng *r);
uint32_t rng_below(rng *r, uint32_t n);                      /* 0 .. n - 1 */
uint32_t rng_between(rng *r, uint32_t first, uint32_t last); /* both included */
float rng_unit(rng *r);                                      /* -1 .. 1 */
/* Ordinary numbers, or sparse or dense specials (0, denormals, infinities, NaN, any bits): the kind is drawn once. */
void rng_floats(rng *r, float *out, size_t n);

/* What a kernel wrote, in words of 4 bytes. Floats are equal when their bits are, or when both are NaN. */
typedef struct record {
    uint32_t *words;
    bool *is_float;
    size_t n, capacity;
} record;

void record_floats(record *out, const float *p, size_t n);
void record_bytes(record *out, const void *p, size_t bytes);
void record_free(record *r);
/* Where the first difference is; -1 when there is none. */
ptrdiff_t record_difference(const record *a, const record *b);

/* Zeroed, and exactly n * size bytes, so that a sanitizer sees a read past the end. Exits when there is none. */
void *need(size_t n, size_t size);
/* Seconds per call, the best of some runs of 20 ms or more. */
double time_calls(void (*call)(void *user), void *user);

/* Two ways to do the same, timed turn about so that both meet the same machine: medians of many turns. */
typedef struct comparison {
    double seconds[2];      /* per call of a and of b */
    double more, low, high; /* per cent that a takes more than b in one turn: median, quartiles */
} comparison;
comparison compare_calls(void (*call)(void *user), void *a, void *b);

enum { BENCH_CACHED, BENCH_STREAMED, BENCH_KINDS };

typedef struct kernel_case kernel_case;
struct kernel_case {
    const char *name;
    size_t offset; /* of the function pointer in ramet_kernels */
    ramet_dtype dtype;
    uint32_t rounds; /* of a quick check */
    void (*run)(const kernel_case *self, rng *r, const ramet_kernels *table, record *out);
    /* Work per second: 10^9 multiply-adds or elements (cached), 10^9 bytes of weights (streamed). 0: no such bench. */
    double (*bench)(const kernel_case *self, const ramet_kernels *table, int kind);
};

/* What the order of the sums costs: the AVX-512 matmuls of blocks beside the same with two float chains per output
 * (checkkern_freed_*.c), which the library does not have. */
void bench_freed(const char *only);
void ramet_matmul_fill_freed(ramet_kernels *table);
/* The same of attention, and what its reading through pages costs. */
void bench_attention(const char *only);
void ramet_attend_fill_freed(ramet_kernels *table);

extern const kernel_case matmul_cases[], vector_cases[], attend_cases[]; /* each ends with name = NULL */

#endif
