/* checkkern_attend.c - attention over segments with masks of every shape, merging, and the reading of pages. */
#include "checkkern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENT = 64 };

static float *draw_floats(rng *r, size_t n) {
    float *p = need(n, sizeof *p);
    rng_floats(r, p, n);
    return p;
}

static uint32_t draw_head_dim(rng *r) {
    static const uint32_t usual[] = {16, 32, 64, 80, 96, 128, 256};
    return rng_below(r, 3) ? usual[rng_below(r, 7)] : rng_between(r, 1, 100);
}

/* A fresh state, or the one that an earlier segment left. */
static void draw_state(rng *r, uint32_t n_q, uint32_t head_dim, float *m, float *l, float *o) {
    const bool fresh = rng_next(r) & 1;
    for (uint32_t i = 0; i < n_q; ++i) {
        m[i] = fresh ? -INFINITY : rng_unit(r) * 4.0f;
        l[i] = fresh ? 0.0f : 1.0f + rng_unit(r);
        for (uint32_t d = 0; d < head_dim; ++d) o[(size_t)i * head_dim + d] = fresh ? 0.0f : rng_unit(r);
    }
}

static void run_attend(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    (void)self;
    const uint32_t n_q = rng_between(r, 1, 15), n = rng_below(r, 3) ? SEGMENT : rng_between(r, 1, SEGMENT);
    const uint32_t head_dim = draw_head_dim(r);
    const size_t k_stride = n + rng_below(r, 5), v_stride = head_dim + rng_below(r, 5);
    const size_t n_k = (head_dim - 1) * k_stride + n, n_v = (n - 1) * v_stride + head_dim;
    float *q = draw_floats(r, (size_t)n_q * head_dim), *k = draw_floats(r, n_k), *v = draw_floats(r, n_v);
    float *m = need(n_q, 4), *l = need(n_q, 4), *o = need((size_t)n_q * head_dim, 4);
    uint8_t *lo = need(n_q, 1), *hi = need(n_q, 1), first = (uint8_t)n, last = 0;
    draw_state(r, n_q, head_dim, m, l, o);
    for (uint32_t i = 0; i < n_q; ++i) {
        bool all = rng_below(r, 3) == 0;
        lo[i] = all ? 0 : (uint8_t)rng_below(r, n + 1), hi[i] = all ? (uint8_t)n : (uint8_t)rng_below(r, n + 1);
        if (lo[i] < hi[i] && lo[i] < first) first = lo[i];
        if (lo[i] < hi[i] && hi[i] > last) last = hi[i];
    }
    for (uint32_t p = 0; p < n; ++p) /* what nobody sees is NaN */
        if (p < first || p >= last) {
            for (uint32_t d = 0; d < head_dim; ++d) k[d * k_stride + p] = v[p * v_stride + d] = NAN;
        }
    const bool ahead = rng_next(r) & 1; /* whatever lies there is fetched at most */
    ramet_attend_args args = {q, k, v, k_stride,         v_stride,        n_q, n, head_dim, lo, hi,
                              m, l, o, ahead ? k : NULL, ahead ? v : NULL};
    table->attend(&args);
    record_floats(out, m, n_q);
    record_floats(out, l, n_q);
    record_floats(out, o, (size_t)n_q * head_dim);
    free(q), free(k), free(v), free(m), free(l), free(o), free(lo), free(hi);
}

static void run_attend_merge(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    (void)self;
    const uint32_t head_dim = draw_head_dim(r);
    float m[2], l[2], *o = need(2 * (size_t)head_dim, 4), *o2 = o + head_dim;
    draw_state(r, 1, head_dim, m, l, o);
    draw_state(r, 1, head_dim, m + 1, l + 1, o2);
    if (rng_below(r, 4) == 0) rng_floats(r, m, 2), rng_floats(r, l, 2), rng_floats(r, o, 2 * (size_t)head_dim);
    table->attend_merge(m, l, o, m[1], l[1], o2, head_dim);
    record_floats(out, m, 2);
    record_floats(out, l, 2);
    record_floats(out, o, 2 * (size_t)head_dim);
    free(o);
}

static void run_attend_finish(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    (void)self;
    const uint32_t head_dim = draw_head_dim(r);
    float *o = draw_floats(r, head_dim), l;
    rng_floats(r, &l, 1);
    table->attend_finish(o, l, head_dim);
    record_floats(out, o, head_dim);
    free(o);
}

/* A page of random shape and precision, its bytes random too. False: no such layout. */
static bool draw_page(rng *r, ramet_kv_layout *l, uint8_t **out_page) {
    static const int precisions[] = {RAMET_KV_F32, RAMET_KV_F16, RAMET_KV_VQ8, RAMET_KV_Q8, RAMET_KV_ONE_BIT};
    const uint32_t n_layers = rng_between(r, 1, 2), n_heads = rng_between(r, 1, 3), head_dim = draw_head_dim(r);
    const uint32_t page_tokens = 16u << rng_below(r, 4);
    if (!ramet_kv_layout_init(l, precisions[rng_below(r, 5)], n_layers, n_heads, head_dim, page_tokens)) return false;
    uint8_t *page = aligned_alloc(64, l->page_bytes);
    if (!page) exit(6);
    for (size_t i = 0; i < l->page_bytes; ++i) page[i] = (uint8_t)rng_next(r);
    *out_page = page;
    return true;
}

static void run_kv_write(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    (void)self;
    ramet_kv_layout l;
    uint8_t *page;
    if (!draw_page(r, &l, &page)) return;
    const size_t n = (size_t)l.n_kv_heads * l.head_dim;
    for (uint32_t i = 0; i < 3; ++i) {
        float *k = draw_floats(r, n), *v = draw_floats(r, n);
        table->kv_write(&l, page, rng_below(r, l.n_layers), rng_below(r, l.page_tokens), k, v);
        free(k), free(v);
    }
    record_bytes(out, page, l.page_bytes);
    free(page);
}

static void run_kv_read(const kernel_case *self, rng *r, const ramet_kernels *table, record *out) {
    ramet_kv_layout l;
    uint8_t *page;
    if (!draw_page(r, &l, &page)) return;
    const uint32_t n_heads = l.n_kv_heads, head_dim = l.head_dim, page_tokens = l.page_tokens, n_layers = l.n_layers;
    if (rng_next(r) & 1) {
        float *k = draw_floats(r, (size_t)n_heads * head_dim), *v = draw_floats(r, (size_t)n_heads * head_dim);
        for (uint32_t slot = 0; slot < page_tokens; ++slot)
            for (uint32_t layer = 0; layer < n_layers; ++layer) ramet_kv_write(&l, page, layer, slot, k, v);
        free(k), free(v);
    }
    const uint32_t slot = rng_below(r, page_tokens), n = rng_between(r, 1, page_tokens - slot);
    const uint32_t layer = rng_below(r, n_layers), head = rng_below(r, n_heads), stride = n + rng_below(r, 9);
    const bool is_k = self->offset == offsetof(ramet_kernels, kv_read_k);
    const size_t n_out = is_k ? (size_t)(head_dim - 1) * stride + n : (size_t)n * head_dim;
    float *tile = need(n_out, sizeof *tile);
    if (is_k)
        table->kv_read_k(&l, page, layer, head, slot, n, tile, stride);
    else
        table->kv_read_v(&l, page, layer, head, slot, n, tile);
    record_floats(out, tile, n_out);
    free(tile);
    free(page);
}

/* ---- bench: 16 queries over one full segment of head_dim 128; one full f16 page of it */

enum { BENCH_DIM = 128, BENCH_QUERIES = 16 };

typedef struct attend_bench {
    const kernel_case *self;
    const ramet_kernels *table;
    ramet_kv_layout layout;
    uint8_t *page, lo[BENCH_QUERIES], hi[BENCH_QUERIES];
    float q[BENCH_QUERIES * BENCH_DIM], k[SEGMENT * BENCH_DIM], v[SEGMENT * BENCH_DIM];
    float m[BENCH_QUERIES], l[BENCH_QUERIES], o[BENCH_QUERIES * BENCH_DIM];
} attend_bench;

static void call_attend(void *user) {
    attend_bench *b = user;
    const ramet_attend_args args = {b->q,  b->k,  b->v, SEGMENT, BENCH_DIM, BENCH_QUERIES, SEGMENT, BENCH_DIM,
                                    b->lo, b->hi, b->m, b->l,    b->o,      NULL,          NULL};
    const ramet_kernels *t = b->table;
    switch (b->self->offset) {
    case offsetof(ramet_kernels, attend): t->attend(&args); break;
    case offsetof(ramet_kernels, attend_merge): t->attend_merge(b->m, b->l, b->o, 0.0f, 1.0f, b->q, BENCH_DIM); break;
    case offsetof(ramet_kernels, attend_finish): t->attend_finish(b->o, 1.0f, BENCH_DIM); break;
    case offsetof(ramet_kernels, kv_read_k): t->kv_read_k(&b->layout, b->page, 0, 0, 0, SEGMENT, b->k, SEGMENT); break;
    case offsetof(ramet_kernels, kv_read_v): t->kv_read_v(&b->layout, b->page, 0, 0, 0, SEGMENT, b->v); break;
    default: t->kv_write(&b->layout, b->page, 0, 5, b->k, b->v);
    }
}

static double bench_attend(const kernel_case *self, const ramet_kernels *table, int kind) {
    if (kind != BENCH_CACHED) return 0.0;
    rng r = {.ordinary = true};
    attend_bench *b = need(1, sizeof *b);
    b->self = self, b->table = table;
    ramet_kv_layout_init(&b->layout, RAMET_KV_F16, 1, 1, BENCH_DIM, SEGMENT);
    b->page = need(1, b->layout.page_bytes);
    for (int i = 0; i < SEGMENT * BENCH_DIM; ++i) b->k[i] = b->v[i] = rng_unit(&r);
    for (int i = 0; i < BENCH_QUERIES * BENCH_DIM; ++i) b->q[i] = 0.1f * rng_unit(&r);
    for (int i = 0; i < BENCH_QUERIES; ++i) b->hi[i] = SEGMENT;
    const double seconds = time_calls(call_attend, b);
    double work = BENCH_DIM;
    if (self->offset == offsetof(ramet_kernels, attend)) work *= 2 * BENCH_QUERIES * SEGMENT;
    if (self->run == run_kv_read) work *= SEGMENT;
    free(b->page);
    free(b);
    return work / seconds * 1e-9;
}

#define ATTEND_CASE(name, run)                                                                                         \
    { #name, offsetof(ramet_kernels, name), RAMET_F32, 1000, run, bench_attend }

const kernel_case attend_cases[] = {
    ATTEND_CASE(attend, run_attend),
    ATTEND_CASE(attend_merge, run_attend_merge),
    ATTEND_CASE(attend_finish, run_attend_finish),
    ATTEND_CASE(kv_read_k, run_kv_read),
    ATTEND_CASE(kv_read_v, run_kv_read),
    ATTEND_CASE(kv_write, run_kv_write),
    {0},
};
