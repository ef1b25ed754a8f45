/* checkkern_random.c - random inputs, records of outputs, and the clock of ramet-checkkern. */
#include "checkkern.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t rng_next(rng *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t rng_below(rng *r, uint32_t n) {
    return (uint32_t)((rng_next(r) >> 32) * n >> 32);
}

uint32_t rng_between(rng *r, uint32_t first, uint32_t last) {
    return first + rng_below(r, last - first + 1);
}

float rng_unit(rng *r) {
    return (float)(int32_t)(rng_next(r) >> 32) * 0x1p-31f;
}

static float any_bits(rng *r) {
    uint32_t bits = (uint32_t)rng_next(r);
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float special(rng *r) {
    static const float values[] = {0.0f,  -0.0f,     1.0f,       -1.0f,     INFINITY,  -INFINITY,
                                   NAN,   0x1p-149f, -0x1p-149f, 0x1p-130f, 0x1p-126f, 0x1p127f,
                                   88.7f, -87.3f,    -103.9f,    104.0f,    -3.4e38f,  0x1p-120f};
    uint32_t n = sizeof values / sizeof *values, i = rng_below(r, n + 4);
    return i < n ? values[i] : any_bits(r);
}

void rng_floats(rng *r, float *out, size_t n) {
    const uint32_t kind = r->ordinary ? 0 : rng_below(r, 16);
    const float scale = ldexpf(1.0f, kind < 8 ? (int)rng_below(r, 8) - 4 : (int)rng_below(r, 280) - 150);
    const float constant = kind == 10 ? 0.0f : kind == 11 ? special(r) : scale;
    for (size_t i = 0; i < n; ++i) {
        if (kind >= 10 && kind <= 12) /* one value, or one magnitude with both signs */
            out[i] = kind == 12 && rng_next(r) & 1 ? -constant : constant;
        else if (kind == 13)
            out[i] = special(r);
        else if (kind >= 14 && rng_below(r, kind == 14 ? 50 : 400) == 0)
            out[i] = special(r);
        else
            out[i] = rng_unit(r) * rng_unit(r) * scale;
    }
}

static void record_word(record *out, uint32_t word, bool is_float) {
    if (out->n == out->capacity) {
        out->capacity = out->capacity ? 2 * out->capacity : 4096;
        out->words = realloc(out->words, out->capacity * sizeof *out->words);
        out->is_float = realloc(out->is_float, out->capacity * sizeof *out->is_float);
        if (!out->words || !out->is_float) exit(6);
    }
    out->words[out->n] = word;
    out->is_float[out->n++] = is_float;
}

void record_floats(record *out, const float *p, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        uint32_t word;
        memcpy(&word, &p[i], sizeof word);
        record_word(out, word, true);
    }
}

void record_bytes(record *out, const void *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word = 0;
        memcpy(&word, (const uint8_t *)p + i, bytes - i < 4 ? bytes - i : 4);
        record_word(out, word, false);
    }
}

void record_free(record *r) {
    free(r->words);
    free(r->is_float);
    *r = (record){0};
}

static bool is_nan_word(uint32_t word) {
    return (word & 0x7fffffff) > 0x7f800000;
}

ptrdiff_t record_difference(const record *a, const record *b) {
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; ++i) {
        bool both_nan = a->is_float[i] && is_nan_word(a->words[i]) && is_nan_word(b->words[i]);
        if (a->words[i] != b->words[i] && !both_nan) return (ptrdiff_t)i;
    }
    return a->n == b->n ? -1 : (ptrdiff_t)n;
}

void *need(size_t n, size_t size) {
    void *memory = calloc(n ? n : 1, size);
    if (!memory) {
        fputs("ramet-checkkern: out of memory\n", stderr);
        exit(6);
    }
    return memory;
}

/* Processor time: what else runs on the machine counts less. */
static double time_run(void (*call)(void *user), void *user, uint64_t n) {
    const clock_t start = clock();
    for (uint64_t i = 0; i < n; ++i) call(user);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* How many calls take so long. */
static uint64_t count_calls(void (*call)(void *user), void *user, double seconds) {
    uint64_t n = 1;
    while (time_run(call, user, n) < seconds) n *= 2;
    return n;
}

double time_calls(void (*call)(void *user), void *user) {
    const uint64_t n = count_calls(call, user, 0.02);
    double best = time_run(call, user, n);
    for (int i = 0; i < 7; ++i) {
        const double seconds = time_run(call, user, n);
        if (seconds < best) best = seconds;
    }
    return best / (double)n;
}

static int order_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

comparison compare_calls(void (*call)(void *user), void *a, void *b) {
    enum { TURNS = 201 }; /* short ones: the machine changes from one to the next, seldom within one */
    const uint64_t n = count_calls(call, a, 0.001);
    double seconds[2][TURNS], more[TURNS];
    for (int turn = 0; turn < TURNS; ++turn) {
        for (int i = 0; i < 2; ++i) { /* every other turn in the other order */
            const int side = (turn + i) % 2;
            seconds[side][turn] = time_run(call, side ? b : a, n) / (double)n;
        }
        more[turn] = (seconds[0][turn] / seconds[1][turn] - 1.0) * 100.0;
    }
    qsort(seconds[0], TURNS, sizeof **seconds, order_doubles);
    qsort(seconds[1], TURNS, sizeof **seconds, order_doubles);
    qsort(more, TURNS, sizeof *more, order_doubles);
    return (comparison){.seconds = {seconds[0][TURNS / 2], seconds[1][TURNS / 2]},
                        .more = more[TURNS / 2],
                        .low = more[TURNS / 4],
                        .high = more[TURNS - 1 - TURNS / 4]};
}
