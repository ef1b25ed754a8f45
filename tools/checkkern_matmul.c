/* checkkern_matmul.c - random and extreme matmuls, and the quantisation of activations. */
#include "checkkern.h"

#include "kernels/tables.h"

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

static uint8_t *make_panel(rng *r, ramet_dtype dtype, size_t n_k) {
    const ramet_dtype_info *info = ramet_dtype_get(dtype);
    const size_t row_bytes = n_k / info->block * info->block_bytes;
    uint8_t *rows = need(RAMET_LANES, row_bytes), *panel = need((size_t)ramet_panel_bytes(dtype, n_k), 1);
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
    return panel;
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

static void run_matmul(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    const uint32_t block = ramet_dtype_get(self->dtype)->block;
    const uint32_t n_blocks = rng_below(r, 8) ? rng_between(r, 1, 6) : rng_between(r, 7, block == 256 ? 9 : 40);
    const uint32_t n_k = block == 1 ? rng_between(r, 1, 80) : block * n_blocks;
    const uint32_t n_cols = rng_below(r, 8) ? rng_between(r, 1, 17) : rng_between(r, 18, 41);
    const uint32_t col = rng_below(r, 4), stride = RAMET_LANES + rng_below(r, 8);
    uint8_t *panel = make_panel(r, self->dtype, n_k);
    inputs in = make_acts(r, ramet_act_kind_of(self->dtype), n_k, col + n_cols + rng_below(r, 3));
    const size_t n_out = (size_t)(n_cols - 1) * stride + RAMET_LANES;
    float *y = need(n_out, sizeof *y);
    for (size_t i = 0; i < n_out; ++i) y[i] = 12345.0f;
    table->matmul[self->dtype](panel, &in.acts, col, n_cols, y, stride);
    record_floats(out, y, n_out);
    free(y);
    free_acts(&in);
    free(panel);
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
    const ramet_kernels *table;
    ramet_dtype dtype;
    uint8_t *weights;
    size_t panel_bytes, n_panels, next;
    inputs in;
    uint32_t n_cols;
    float *out;
} matmul_bench;

static void call_matmul(void *user) {
    matmul_bench *b = user;
    b->table->matmul[b->dtype](b->weights + b->next * b->panel_bytes, &b->in.acts, 0, b->n_cols, b->out, RAMET_LANES);
    if (++b->next == b->n_panels) b->next = 0;
}

/* Cached: 4 panels of 16 x 4096, 64 columns. Streamed: one column, weights of 512 MiB, more than most caches. */
static double bench_matmul(const kernel_case *self, const ramet_kernels *table, int kind) {
    const uint32_t n_k = 4096, n_cols = kind == BENCH_CACHED ? 64 : 1;
    rng r = {.ordinary = true};
    matmul_bench b = {.table = table, .dtype = self->dtype, .n_cols = n_cols};
    b.panel_bytes = (size_t)ramet_panel_bytes(self->dtype, n_k);
    b.n_panels = kind == BENCH_CACHED ? 4 : ((size_t)512 << 20) / b.panel_bytes;
    b.weights = need(b.n_panels, b.panel_bytes);
    uint8_t *panel = make_panel(&r, self->dtype, n_k);
    for (size_t i = 0; i < b.n_panels; ++i) memcpy(b.weights + i * b.panel_bytes, panel, b.panel_bytes);
    b.in = make_acts(&r, ramet_act_kind_of(self->dtype), n_k, n_cols);
    b.out = need((size_t)n_cols * RAMET_LANES, sizeof *b.out);
    const double seconds = time_calls(call_matmul, &b);
    const double work = kind == BENCH_CACHED ? (double)n_k * RAMET_LANES * n_cols : (double)b.panel_bytes;
    free(b.out);
    free_acts(&b.in);
    free(panel);
    free(b.weights);
    return work / seconds * 1e-9;
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

#define MATMUL_CASE(type)                                                                                              \
    { "matmul." #type, offsetof(ramet_kernels, matmul[RAMET_##type]), RAMET_##type, 150, run_matmul, bench_matmul }

const kernel_case matmul_cases[] = {
    MATMUL_CASE(F32),
    MATMUL_CASE(F16),
    MATMUL_CASE(BF16),
    MATMUL_CASE(Q4_0),
    MATMUL_CASE(Q4_1),
    MATMUL_CASE(Q5_0),
    MATMUL_CASE(Q5_1),
    MATMUL_CASE(Q8_0),
    MATMUL_CASE(Q2_K),
    MATMUL_CASE(Q3_K),
    MATMUL_CASE(Q4_K),
    MATMUL_CASE(Q5_K),
    MATMUL_CASE(Q6_K),
    {"quantize", offsetof(ramet_kernels, quantize), RAMET_F32, 1000, run_quantize, bench_quantize},
    {0},
};
