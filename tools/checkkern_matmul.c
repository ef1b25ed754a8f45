/* checkkern_matmul.c - random and extreme matmuls, and the quantisation of activations. */
#include "checkkern.h"

#include "kernels/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- weights: rows as a file would have them */

/* Where the binary16 scales of a block lie in the file; -1: none. */
static void find_scales(ramet_dtype dtype, int32_t at[2]) {
    at[0] = 0, at[1] = -1;
    if (dtype == RAMET_Q4_1 || dtype == RAMET_Q5_1 || dtype == RAMET_Q4_K || dtype == RAMET_Q5_K) at[1] = 2;
    if (dtype == RAMET_Q2_K) at[0] = 80, at[1] = 82;
    if (dtype == RAMET_Q3_K) at[0] = 108;
    if (dtype == RAMET_Q6_K) at[0] = 208;
}

static void set_scale(rng *r, uint8_t *p, bool wild) {
    static const uint16_t specials[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7d01};
    uint16_t half = (uint16_t)((rng_next(r) & 0x83ff) | (uint32_t)rng_between(r, 5, 16) << 10); /* 2^-10 .. 2 */
    if (wild) half = specials[rng_below(r, sizeof specials / sizeof *specials)];
    p[0] = (uint8_t)half, p[1] = (uint8_t)(half >> 8);
}

static void fill_row(rng *r, ramet_dtype dtype, uint32_t style, uint8_t *row, size_t bytes) {
    static const uint8_t constants[] = {0x00, 0xff, 0x80, 0x7f};
    for (size_t i = 0; i < bytes; ++i) row[i] = style < 4 ? constants[style] : (uint8_t)rng_next(r);
    if (style == 5) return; /* scales are any bits too */
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    int32_t at[2];
    find_scales(dtype, at);
    for (size_t block = 0; block < bytes; block += info->block_bytes)
        for (int i = 0; i < 2; ++i)
            if (at[i] >= 0) set_scale(r, row + block + at[i], style == 6 && rng_below(r, 4) == 0);
}

static void fill_float_row(rng *r, ramet_dtype dtype, uint8_t *row, size_t n_k) {
    float *values = need(n_k, sizeof *values);
    rng_floats(r, values, n_k);
    for (size_t k = 0; k < n_k; ++k) {
        uint32_t bits;
        memcpy(&bits, &values[k], sizeof bits);
        if (dtype == RAMET_F32) memcpy(row + 4 * k, &bits, 4);
        if (dtype == RAMET_BF16) row[2 * k] = (uint8_t)(bits >> 16), row[2 * k + 1] = (uint8_t)(bits >> 24);
    }
    if (dtype == RAMET_F16)
        for (size_t k = 0; k < n_k; ++k) set_scale(r, row + 2 * k, rng_below(r, 200) == 0);
    free(values);
}

static void fill_panel(rng *r, ramet_dtype dtype, size_t n_k, uint8_t *panel) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    const size_t row_bytes = n_k / info->block * info->block_bytes;
    uint8_t *rows = need(RAMET_LANES, row_bytes);
    const uint8_t *pointers[RAMET_LANES];
    const uint32_t style = r->ordinary ? 7 : rng_below(r, 12); /* above 6: ordinary */
    for (uint32_t i = 0; i < RAMET_LANES; ++i) {
        uint8_t *row = rows + i * row_bytes;
        pointers[i] = row;
        if (info->block == 1)
            fill_float_row(r, dtype, row, n_k);
        else
            fill_row(r, dtype, style, row, row_bytes);
    }
    ramet_panel_pack(dtype, pointers, rng_below(r, 8) ? RAMET_LANES : rng_between(r, 1, 15), n_k, panel);
    free(rows);
}

/* n different panels, one after the other. */
static uint8_t *make_panels(rng *r, ramet_dtype dtype, size_t n_k, uint32_t n) {
    const size_t bytes = (size_t)ramet_panel_bytes(dtype, n_k);
    uint8_t *panels = need(n, bytes);
    for (uint32_t i = 0; i < n; ++i) fill_panel(r, dtype, n_k, panels + i * bytes);
    return panels;
}

/* ---- activations: quantised by the C kernel, so that a matmul is judged alone */

typedef struct inputs {
    ramet_acts acts;
    void *memory;
    float *x;
} inputs;

static inputs make_acts(rng *r, ramet_act_kind kind, uint32_t n_k, uint32_t n_cols) {
    ramet_kernels c;
    ramet_kernels_fill_c(&c);
    inputs in = {.memory = aligned_alloc(64, ramet_acts_bytes(n_k, n_cols)), .x = need((size_t)n_k * n_cols, 4)};
    if (!in.memory) exit(6);
    ramet_acts_place(&in.acts, n_k, n_cols, in.x, in.memory);
    for (uint32_t col = 0; col < n_cols; ++col) {
        rng_floats(r, in.x + (size_t)col * n_k, n_k);
        if (kind != RAMET_ACT_F32) c.quantize(&in.acts, col, in.x + (size_t)col * n_k);
    }
    return in;
}

static void free_acts(inputs *in) {
    free(in->memory);
    free(in->x);
}

static bool is_pair(const kernel_case *self) {
    return self->offset >= offsetof(ramet_kernels, matmul_pair[0]);
}

/* Two panels; a table that has no way to take them at once takes one at a time. */
static void multiply_pair(const ramet_kernels *table, ramet_dtype dtype, const uint8_t *panels, const ramet_acts *acts,
                          uint32_t col, uint32_t n_cols, float *out, size_t stride) {
    if (table->matmul_pair[dtype]) {
        table->matmul_pair[dtype](panels, acts, col, n_cols, out, stride);
        return;
    }
    table->matmul[dtype](panels, acts, col, n_cols, out, stride);
    panels += ramet_panel_bytes(dtype, acts->n_k);
    table->matmul[dtype](panels, acts, col, n_cols, out + RAMET_LANES, stride);
}

/* Shapes on both sides of what any version unpacks at once, and of any width of its tiles. */
static void run_matmul(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    const uint32_t block = ramet_dtype_get(self->dtype)->block, n_panels = is_pair(self) ? 2 : 1;
    const uint32_t n_blocks = rng_below(r, 4) ? rng_between(r, 1, 6) : rng_between(r, 7, block == 256 ? 9 : 40);
    const uint32_t n_floats = rng_below(r, 4) ? rng_between(r, 1, 80) : rng_between(r, 81, 400);
    const uint32_t n_k = block == 1 ? n_floats : block * n_blocks;
    const uint32_t n_cols = rng_below(r, 8) ? rng_between(r, 1, 17) : rng_between(r, 18, 41);
    const uint32_t col = rng_below(r, 4), width = RAMET_LANES * n_panels, stride = width + rng_below(r, 8);
    uint8_t *panels = make_panels(r, self->dtype, n_k, n_panels);
    inputs in = make_acts(r, ramet_act_kind_of(self->dtype), n_k, col + n_cols + rng_below(r, 3));
    const size_t n_out = (size_t)(n_cols - 1) * stride + width;
    float *y = need(n_out, sizeof *y);
    for (size_t i = 0; i < n_out; ++i) y[i] = 12345.0f;
    if (is_pair(self))
        multiply_pair(table, self->dtype, panels, &in.acts, col, n_cols, y, stride);
    else
        table->matmul[self->dtype](panels, &in.acts, col, n_cols, y, stride);
    record_floats(out, y, n_out);
    free(y);
    free_acts(&in);
    free(panels);
}

static void run_quantize(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    (void)self;
    const uint32_t n_k = 32 * rng_between(r, 1, 9), n_cols = rng_between(r, 1, 3), col = rng_below(r, n_cols);
    const size_t bytes = ramet_acts_bytes(n_k, n_cols);
    uint8_t *memory = aligned_alloc(64, bytes);
    float *x = need(n_k, sizeof *x);
    if (!memory) exit(6);
    memset(memory, 0x55, bytes);
    ramet_acts acts;
    ramet_acts_place(&acts, n_k, n_cols, x, memory);
    rng_floats(r, x, n_k);
    if (rng_below(r, 4) == 0) /* ties of the rounding: a range of 254 around 0 */
        for (uint32_t i = 0; i < n_k; ++i)
            x[i] = i % 32 == 0 ? 127.0f : i % 32 == 1 ? -127.0f : (float)rng_below(r, 255) * 0.5f - 63.5f;
    if (rng_below(r, 4) == 0) /* zeros of both signs, and nearly flat blocks */
        for (uint32_t i = 0; i < n_k; ++i) x[i] = rng_below(r, 2) ? -0.0f : rng_below(r, 3) ? 0.0f : 0x1p-101f;
    table->quantize(&acts, col, x);
    const size_t n = (size_t)n_k * n_cols;
    record_bytes(out, acts.q, n);
    record_floats(out, acts.d, n / 32);
    record_floats(out, acts.z, n / 32);
    record_floats(out, acts.s32, n / 32);
    record_floats(out, acts.s16, n / 16);
    record_bytes(out, acts.sum32, n / 32 * 4);
    record_bytes(out, acts.sum16, n / 16 * 4);
    free(x);
    free(memory);
}

/* ---- bench */

typedef struct matmul_bench {
    const kernel_case *self;
    const ramet_kernels *table;
    uint8_t *weights;
    size_t panel_bytes, n_panels, next;
    inputs in;
    uint32_t n_cols;
    float *out;
} matmul_bench;

static void call_matmul(void *user) {
    matmul_bench *b = user;
    const uint8_t *panels = b->weights + b->next * b->panel_bytes;
    if (is_pair(b->self))
        multiply_pair(b->table, b->self->dtype, panels, &b->in.acts, 0, b->n_cols, b->out, 2 * RAMET_LANES);
    else
        b->table->matmul[b->self->dtype](panels, &b->in.acts, 0, b->n_cols, b->out, RAMET_LANES);
    b->next += is_pair(b->self) ? 2 : 1;
    if (b->next == b->n_panels) b->next = 0;
}

enum { BENCH_K = 1536 };

/* Panels of 16 x 1536, passed over again and again. */
static matmul_bench make_bench(const kernel_case *self, const ramet_kernels *table, uint32_t n_cols, size_t n_panels) {
    rng r = {.ordinary = true};
    matmul_bench b = {.self = self, .table = table, .n_panels = n_panels, .n_cols = n_cols};
    b.panel_bytes = (size_t)ramet_panel_bytes(self->dtype, BENCH_K);
    b.weights = need(n_panels, b.panel_bytes);
    fill_panel(&r, self->dtype, BENCH_K, b.weights);
    for (size_t i = 1; i < n_panels; ++i) memcpy(b.weights + i * b.panel_bytes, b.weights, b.panel_bytes);
    b.in = make_acts(&r, ramet_act_kind_of(self->dtype), BENCH_K, n_cols);
    b.out = need((size_t)n_cols * 2 * RAMET_LANES, sizeof *b.out);
    return b;
}

static void free_bench(matmul_bench *b) {
    free(b->out);
    free_acts(&b->in);
    free(b->weights);
}

/* Seconds per panel. */
static double time_matmul(const kernel_case *self, const ramet_kernels *table, uint32_t n_cols, size_t n_panels) {
    matmul_bench b = make_bench(self, table, n_cols, n_panels);
    const double seconds = time_calls(call_matmul, &b);
    free_bench(&b);
    return seconds / (is_pair(self) ? 2 : 1);
}

/* Cached: 4 panels, 64 columns. Streamed: one column, weights of 512 MiB, more than most caches. */
static double bench_matmul(const kernel_case *self, const ramet_kernels *table, int kind) {
    const size_t panel_bytes = (size_t)ramet_panel_bytes(self->dtype, BENCH_K);
    if (kind == BENCH_CACHED) return 1e-9 * BENCH_K * RAMET_LANES * 64 / time_matmul(self, table, 64, 4);
    if (is_pair(self)) return 0.0;
    return (double)panel_bytes * 1e-9 / time_matmul(self, table, 1, ((size_t)512 << 20) / panel_bytes);
}

#if defined(__x86_64__)
/* The two ways on the same weights and activations. */
static void compare_freed(const kernel_case *k, const ramet_kernels *exact, const ramet_kernels *freed,
                          uint32_t n_cols) {
    matmul_bench a = make_bench(k, exact, n_cols, 4), b = a;
    b.table = freed;
    const comparison c = compare_calls(call_matmul, &a, &b);
    printf("%-16s %2u columns: exact %6.2f us, order freed %6.2f us: exactness costs %+.1f %% (%+.1f .. %+.1f)\n",
           k->name, n_cols, c.seconds[0] * 1e6, c.seconds[1] * 1e6, c.more, c.low, c.high);
    fflush(stdout);
    free_bench(&a);
}
#endif

/* One column is decode, 8 are branches, pairs of panels take many: prefill. */
void bench_freed(const char *only) {
#if defined(__x86_64__)
    ramet_kernels exact, freed;
    if (!ramet_kernels_init(&exact, "avx512")) return;
    freed = exact;
    ramet_matmul_fill_freed(&freed);
    for (const kernel_case *k = matmul_cases; k->run == run_matmul; ++k) {
        if (ramet_act_kind_of(k->dtype) == RAMET_ACT_F32 || (only && !strstr(k->name, only))) continue;
        if (is_pair(k)) {
            compare_freed(k, &exact, &freed, 64);
            continue;
        }
        compare_freed(k, &exact, &freed, 1);
        compare_freed(k, &exact, &freed, 8);
    }
#else
    (void)only;
#endif
}

typedef struct quantize_bench {
    const ramet_kernels *table;
    inputs in;
} quantize_bench;

static void call_quantize(void *user) {
    quantize_bench *b = user;
    b->table->quantize(&b->in.acts, 0, b->in.x);
}

static double bench_quantize(const kernel_case *self, const ramet_kernels *table, int kind) {
    (void)self;
    if (kind != BENCH_CACHED) return 0.0;
    rng r = {.ordinary = true};
    quantize_bench b = {table, make_acts(&r, RAMET_ACT_Q8, 4096, 1)};
    const double seconds = time_calls(call_quantize, &b);
    free_acts(&b.in);
    return 4096 / seconds * 1e-9;
}

#define MATMUL_CASES(type)                                                                                             \
    {"matmul." #type, offsetof(ramet_kernels, matmul[RAMET_##type]), RAMET_##type, 150, run_matmul, bench_matmul},     \
        {"matmul_pair." #type, offsetof(ramet_kernels, matmul_pair[RAMET_##type]), RAMET_##type, 150, run_matmul,      \
         bench_matmul},

const kernel_case matmul_cases[] = {
    MATMUL_CASES(F32) MATMUL_CASES(F16) MATMUL_CASES(BF16) MATMUL_CASES(Q4_0) MATMUL_CASES(Q4_1) MATMUL_CASES(Q5_0)
        MATMUL_CASES(Q5_1) MATMUL_CASES(Q8_0) MATMUL_CASES(Q2_K) MATMUL_CASES(Q3_K) MATMUL_CASES(Q4_K)
            MATMUL_CASES(Q5_K) MATMUL_CASES(Q6_K){"quantize", offsetof(ramet_kernels, quantize), RAMET_F32, 1000,
                                                  run_quantize, bench_quantize},
    {0},
};
