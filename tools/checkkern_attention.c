/* checkkern_attention.c - what two promises cost attention, timed turn about so that both sides meet the same machine:
 *   pages: the same work over scattered pages and over one flat buffer of K and V, laid out as one page after another
 *   order: the AVX-512 kernel beside the same with its order freed (checkkern_freed_attend_avx512.c)
 * Everything runs on one thread. */
#include "checkkern.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 64, SEGMENT = 64, MAX_QUERIES = 192, HEADS = 3, LAYERS = 12, POSITIONS = 2048 };
enum { TILE = SEGMENT * DIM }; /* floats of K, or V, of a head's segment */

/* The work of a turn: n_q queries over all positions of `n_heads` heads (each layer has its own). */
typedef struct walk {
    const ramet_kernels *table;
    uint32_t n_q, n_heads, n, segment; /* n positions, in calls of `segment` */
    const float *flat;                 /* NULL: pages */
    ramet_kv_layout layout;
    uint8_t **pages;
    float *q, *k_tile, *v_tile, *m, *l, *o;
    uint8_t *lo, *hi;
} walk;

/* Where a head's segment lies in pages that hold it whole. */
static void point_into_page(const walk *w, uint32_t head, uint32_t pos, const float **k, const float **v) {
    const ramet_kv_layout *l = &w->layout;
    const uint8_t *page = w->pages[pos / l->page_tokens];
    const uint32_t slot = pos % l->page_tokens;
    *k = (const float *)(const void *)(page + ramet_kv_k_off(l, head / HEADS, head % HEADS)) + slot;
    *v = (const float *)(const void *)(page + ramet_kv_v_off(l, head / HEADS, head % HEADS)) + (size_t)slot * DIM;
}

/* As forward/attention.c does: into a page that holds the segment, else into tiles. */
static void load_pages(const walk *w, uint32_t head, uint32_t pos, ramet_attend_args *args) {
    const ramet_kv_layout *l = &w->layout;
    const uint32_t layer = head / HEADS, kv_head = head % HEADS;
    if (l->page_tokens >= SEGMENT) {
        args->k_stride = l->page_tokens;
        point_into_page(w, head, pos, &args->k, &args->v);
        if (pos + SEGMENT < w->n) point_into_page(w, head, pos + SEGMENT, &args->next_k, &args->next_v);
        return;
    }
    for (uint32_t done = 0; done < SEGMENT; done += l->page_tokens) {
        const uint8_t *page = w->pages[(pos + done) / l->page_tokens];
        w->table->kv_read_k(l, page, layer, kv_head, 0, l->page_tokens, w->k_tile + done, SEGMENT);
        w->table->kv_read_v(l, page, layer, kv_head, 0, l->page_tokens, w->v_tile + (size_t)done * DIM);
    }
    args->k = w->k_tile;
    args->v = w->v_tile;
}

static void walk_all(void *user) {
    const walk *w = user;
    for (uint32_t head = 0; head < w->n_heads; ++head) {
        for (uint32_t i = 0; i < w->n_q; ++i) w->m[i] = -INFINITY, w->l[i] = 0.0f;
        memset(w->o, 0, (size_t)w->n_q * DIM * sizeof *w->o);
        for (uint32_t pos = 0; pos < w->n; pos += w->segment) {
            const float *at = w->flat ? w->flat + 2 * ((size_t)head * w->n + pos) * DIM : NULL;
            ramet_attend_args args = {w->q,  at,    at,   w->segment, DIM,  w->n_q, w->segment, DIM,
                                      w->lo, w->hi, w->m, w->l,       w->o, NULL,   NULL};
            if (!w->flat) {
                load_pages(w, head, pos, &args);
            } else {
                args.v = at + w->segment * DIM;
                if (pos + w->segment < w->n)
                    args.next_k = args.v + w->segment * DIM, args.next_v = args.next_k + w->segment * DIM;
            }
            w->table->attend(&args);
        }
    }
}

static walk make_walk(const ramet_kernels *table, uint32_t n_heads, uint32_t n) {
    rng r = {.ordinary = true};
    walk w = {.table = table, .n_heads = n_heads, .n = n, .segment = SEGMENT};
    w.q = need(MAX_QUERIES * DIM, 4), w.k_tile = need(TILE, 4), w.v_tile = need(TILE, 4);
    w.m = need(MAX_QUERIES, 4), w.l = need(MAX_QUERIES, 4), w.o = need(MAX_QUERIES * DIM, 4);
    w.lo = need(MAX_QUERIES, 1), w.hi = need(MAX_QUERIES, 1);
    for (uint32_t i = 0; i < MAX_QUERIES * DIM; ++i) w.q[i] = 0.1f * rng_unit(&r);
    return w;
}

static void free_walk(walk *w) {
    free(w->q), free(w->k_tile), free(w->v_tile), free(w->m), free(w->l), free(w->o), free(w->lo), free(w->hi);
}

static void *map_floats(size_t n) {
    float *p = ramet_map(n * sizeof *p);
    if (!p) exit(6);
    for (size_t i = 0; i < n; ++i) p[i] = (float)(i % 977) * 0x1p-10f - 0.5f;
    return p;
}

static comparison compare_walks(walk *a, walk *b, uint32_t n_q) {
    a->n_q = b->n_q = n_q;
    memset(a->hi, (int)a->segment, n_q);
    memset(b->hi, (int)b->segment, n_q);
    return compare_calls(walk_all, a, b);
}

static void bench_pages(const ramet_kernels *table, uint32_t page_tokens) {
    const size_t n_floats = 2ull * LAYERS * HEADS * POSITIONS * DIM;
    walk flat = make_walk(table, LAYERS * HEADS, POSITIONS), paged = make_walk(table, LAYERS * HEADS, POSITIONS);
    if (!ramet_kv_layout_init(&paged.layout, RAMET_KV_F32, LAYERS, HEADS, DIM, page_tokens)) exit(6);
    const uint32_t n_pages = POSITIONS / page_tokens;
    float *flat_memory = map_floats(n_floats), *page_memory = map_floats(n_floats);
    flat.flat = flat_memory;
    paged.pages = need(n_pages, sizeof *paged.pages);
    rng r = {.state = 5};
    for (uint32_t i = 0; i < n_pages; ++i) { /* shuffled as they are dealt */
        const uint32_t j = rng_below(&r, i + 1);
        paged.pages[i] = paged.pages[j];
        paged.pages[j] = (uint8_t *)page_memory + i * paged.layout.page_bytes;
    }
    for (uint32_t n_q = 3; n_q <= MAX_QUERIES; n_q *= 8) {
        const comparison c = compare_walks(&paged, &flat, n_q);
        printf("%s, pages of %2u, %3u queries of %u positions: flat %.2f ms, pages %.2f ms: pages cost %+.1f %% "
               "(%+.1f .. %+.1f)\n",
               table->name, page_tokens, n_q, POSITIONS, c.seconds[1] * 1e3, c.seconds[0] * 1e3, c.more, c.low, c.high);
        fflush(stdout);
    }
    free(paged.pages), free_walk(&flat), free_walk(&paged);
    ramet_unmap(flat_memory, n_floats * 4), ramet_unmap(page_memory, n_floats * 4);
}

#if defined(__x86_64__)
/* From memory: every head's positions once. From a cache: one head of four segments, again and again. */
static void bench_order(const ramet_kernels *exact, const ramet_kernels *freed, bool from_memory) {
    const uint32_t n_heads = from_memory ? LAYERS * HEADS : 1, n = from_memory ? POSITIONS : 4 * SEGMENT;
    const size_t n_floats = 2ull * n_heads * n * DIM;
    walk a = make_walk(exact, n_heads, n), b = make_walk(freed, n_heads, n);
    float *memory = map_floats(n_floats);
    a.flat = b.flat = memory;
    b.segment = 2 * SEGMENT;
    static const uint32_t queries[] = {1, 3, 24, MAX_QUERIES};
    for (size_t i = 0; i < sizeof queries / sizeof *queries; ++i) {
        const comparison c = compare_walks(&a, &b, queries[i]);
        printf("attention, %3u queries, K and V from %s: exact %.1f us, order freed %.1f us: exactness costs %+.1f %% "
               "(%+.1f .. %+.1f)\n",
               queries[i], from_memory ? "memory" : "a cache", c.seconds[0] * 1e6, c.seconds[1] * 1e6, c.more, c.low,
               c.high);
        fflush(stdout);
    }
    free_walk(&a), free_walk(&b);
    ramet_unmap(memory, n_floats * 4);
}
#endif

void bench_attention(const char *only) {
    if (only && !strstr("attention", only)) return;
    ramet_kernels table;
    ramet_kernels_init(&table, NULL);
    bench_pages(&table, 64);
    bench_pages(&table, 16);
#if defined(__x86_64__)
    ramet_kernels freed = table;
    if (strcmp(table.name, "avx512") != 0) return;
    ramet_attend_fill_freed(&freed);
    bench_order(&table, &freed, false);
    bench_order(&table, &freed, true);
#endif
}
