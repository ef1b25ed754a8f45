/* checkkern_vector.c - norm, rotation, gates and sums on random lengths, in place and not. */
#include "checkkern.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_N = 300 };

static uint32_t draw_length(rng *r) {
    return rng_below(r, 10) ? rng_between(r, 1, MAX_N) : rng_between(r, 1, 20) * 128;
}

static float *draw_floats(rng *r, size_t n) {
    float *p = need(n, sizeof *p);
    rng_floats(r, p, n);
    return p;
}

static void run_rms_norm(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    (void)self;
    static const float eps[] = {1e-5f, 1e-6f, 0.0f};
    const uint32_t n = draw_length(r);
    float *x = draw_floats(r, n), *w = draw_floats(r, n), *y = need(n, sizeof *y);
    const bool in_place = rng_next(r) & 1;
    table->rms_norm(x, w, n, eps[rng_below(r, 3)], in_place ? x : y);
    record_floats(out, x, n);
    record_floats(out, y, n);
    free(x), free(w), free(y);
}

static void run_rope(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    (void)self;
    const uint32_t n_pairs = rng_between(r, 1, 140);
    float *x = draw_floats(r, 2 * (size_t)n_pairs), *cos = draw_floats(r, n_pairs), *sin = draw_floats(r, n_pairs);
    table->rope(x, cos, sin, n_pairs, rng_next(r) & 1);
    record_floats(out, x, 2 * (size_t)n_pairs);
    free(x), free(cos), free(sin);
}

typedef void (*gate_fn)(const float *gate, const float *up, uint32_t n, float *out);

static gate_fn take_gate(const kernel_case *self, const ramet_kernels *table) {
    return self->offset == offsetof(ramet_kernels, silu_mul) ? table->silu_mul : table->gelu_mul;
}

static void run_gate(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    const uint32_t n = draw_length(r);
    float *gate = draw_floats(r, n), *up = draw_floats(r, n), *y = need(n, sizeof *y);
    const bool in_place = rng_next(r) & 1;
    take_gate(self, table)(gate, up, n, in_place ? gate : y);
    record_floats(out, gate, n);
    record_floats(out, y, n);
    free(gate), free(up), free(y);
}

static void run_sum(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    const uint32_t n = draw_length(r);
    float *x = draw_floats(r, n), *y = draw_floats(r, n), factor = rng_unit(r);
    if (self->offset == offsetof(ramet_kernels, add)) table->add(x, y, n);
    if (self->offset == offsetof(ramet_kernels, scale)) table->scale(x, factor, n);
    if (self->offset == offsetof(ramet_kernels, axpy)) table->axpy(x, factor, y, n);
    record_floats(out, x, n);
    free(x), free(y);
}

/* ---- bench: vectors of 4096 */

enum { BENCH_N = 4096 };

typedef struct vector_bench {
    const kernel_case *self;
    const ramet_kernels *table;
    float x[BENCH_N], y[BENCH_N], z[BENCH_N];
} vector_bench;

static void call_vector(void *user) {
    vector_bench *b = user;
    switch (b->self->offset) {
    case offsetof(ramet_kernels, rms_norm): b->table->rms_norm(b->x, b->y, BENCH_N, 1e-5f, b->z); break;
    case offsetof(ramet_kernels, rope): b->table->rope(b->z, b->x, b->y, BENCH_N / 2, false); break;
    case offsetof(ramet_kernels, add): b->table->add(b->z, b->x, BENCH_N); break;
    case offsetof(ramet_kernels, scale): b->table->scale(b->z, 1.0f, BENCH_N); break;
    case offsetof(ramet_kernels, axpy): b->table->axpy(b->z, 0.0f, b->x, BENCH_N); break;
    default: take_gate(b->self, b->table)(b->x, b->y, BENCH_N, b->z);
    }
}

static double bench_vector(const kernel_case *self, const ramet_kernels *table, int kind) {
    if (kind != BENCH_CACHED) return 0.0;
    rng r = {.ordinary = true};
    vector_bench *b = need(1, sizeof *b);
    b->self = self, b->table = table;
    for (int i = 0; i < BENCH_N; ++i) b->x[i] = rng_unit(&r), b->y[i] = rng_unit(&r);
    const double seconds = time_calls(call_vector, b);
    free(b);
    return BENCH_N / seconds * 1e-9;
}

#define VECTOR_CASE(name, run)                                                                                         \
    { #name, offsetof(ramet_kernels, name), RAMET_F32, 1000, run, bench_vector }

const kernel_case vector_cases[] = {
    VECTOR_CASE(rms_norm, run_rms_norm), VECTOR_CASE(rope, run_rope),
    VECTOR_CASE(silu_mul, run_gate),     VECTOR_CASE(gelu_mul, run_gate),
    VECTOR_CASE(add, run_sum),           VECTOR_CASE(scale, run_sum),
    VECTOR_CASE(axpy, run_sum),          {0},
};
