/* statebench.c - what the state room's operations cost: fork, drop, one more position, prefix match, and use, at several
 * lengths and shapes of the tree. Pages are synthetic (a byte per position), so that a million positions fit.
 *
 *   ramet-statebench [THREADS]     a pool of so many threads finishes a job before each measurement, as an engine's has
 *
 * `warm` rows repeat; before each repetition of a `cold` row other memory has gone through the caches of this core. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/pool.h"
#include "must.h"
#include "state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "ramet-statebench"

enum { PAGE_TOKENS = 64, FORKS = 32, REPS = 301, MAX_POSITIONS = 1 << 20, ENTRIES = 10000, MATCHED = 1 << 15 };
enum { COLD_BYTES = 8 << 20, TURN = 100 };

typedef struct bench {
    ramet_pool *pool;
    ramet_cache *cache;
    int32_t *tokens; /* [MAX_POSITIONS + 1] */
    uint8_t *other;  /* [COLD_BYTES] */
    bool is_cold;
    volatile uint64_t sink;
} bench;

/* ---- one row ---- */

static int compare_u64(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void print_row(const bench *b, const char *what, uint32_t positions, uint64_t *nanoseconds) {
    qsort(nanoseconds, REPS, sizeof *nanoseconds, compare_u64);
    printf("%-34s %9u  %-4s %9.2f %9.2f %9.2f\n", what, positions, b->is_cold ? "cold" : "warm",
           (double)nanoseconds[0] * 1e-3, (double)nanoseconds[REPS / 2] * 1e-3,
           (double)nanoseconds[REPS * 9 / 10] * 1e-3);
}

static void work_a_little(void *user, uint32_t index, uint32_t worker) {
    (void)worker;
    bench *b = user;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4096; i++) sum += b->other[(index * 4096 + i) % COLD_BYTES];
    if (sum == 1) b->sink = sum;
}

static void settle(bench *b) {
    uint64_t sum = 0;
    for (size_t i = 0; b->is_cold && i < COLD_BYTES; i += 64) sum += b->other[i]++;
    b->sink = sum;
    ramet_pool_run(b->pool, 64, work_a_little, b);
}

/* ---- contexts ---- */

enum { N_VOCAB = 64, ROW_BYTES = N_VOCAB * sizeof(float) };

/* And as many rows of logits. */
static void open_paged_cache(bench *b, uint64_t n_pages, const ramet_pager *pager) {
    ramet_cache_options options = {.page_tokens = PAGE_TOKENS,
                                   .page_bytes = PAGE_TOKENS,
                                   .n_ctx = MAX_POSITIONS + PAGE_TOKENS,
                                   .n_vocab = N_VOCAB,
                                   .budget_bytes = n_pages * (PAGE_TOKENS + ROW_BYTES),
                                   .tree_budget_bytes = n_pages * (PAGE_TOKENS + ROW_BYTES),
                                   .pager = pager};
    MUST(ramet_cache_create(&options, &b->cache, error));
}

static void open_cache(bench *b, uint64_t n_pages) {
    open_paged_cache(b, n_pages, NULL);
}

static void enter(ramet_context *context) {
    MUST(ramet_context_enter(context, error));
    MUST(ramet_context_use(context, error));
}

/* A step of an engine, from its begin to its end. */
static void extend(ramet_context *context, const int32_t *tokens, uint32_t n) {
    enter(context);
    MUST(ramet_context_reserve_tail(context, error));
    MUST(ramet_context_writable(context, n, error));
    ramet_context_commit(context, tokens, n);
    if (!ramet_context_logits_writable(context)) exit(1);
    ramet_context_leave(context);
}

static ramet_context *open_context(bench *b, uint32_t n) {
    ramet_context *context;
    MUST(ramet_cache_context_create(b->cache, &context, error));
    extend(context, b->tokens, n);
    return context;
}

static void drop(ramet_context **context) {
    MUST(ramet_context_enter(*context, error));
    ramet_context_destroy(context);
}

static ramet_context *fork_of(ramet_context *context) {
    ramet_context *fork;
    MUST(ramet_context_enter(context, error));
    MUST(ramet_context_share(context, &fork, error));
    ramet_context_leave(context);
    return fork;
}

static void bench_context(bench *b, uint32_t positions) {
    static uint64_t forked[REPS], dropped[REPS], written[REPS], grown[REPS];
    open_cache(b, MAX_POSITIONS / PAGE_TOKENS + 64);
    ramet_context *source = open_context(b, positions), *forks[FORKS];
    for (uint32_t rep = 0; rep < REPS; rep++) {
        settle(b);
        uint64_t t0 = ramet_now_nanoseconds();
        for (uint32_t i = 0; i < FORKS; i++) forks[i] = fork_of(source);
        uint64_t t1 = ramet_now_nanoseconds();
        extend(forks[0], b->tokens, 1);
        uint64_t t2 = ramet_now_nanoseconds();
        extend(forks[0], b->tokens, 1);
        uint64_t t3 = ramet_now_nanoseconds();
        for (uint32_t i = 0; i < FORKS; i++) drop(&forks[i]);
        uint64_t t4 = ramet_now_nanoseconds();
        forked[rep] = t1 - t0, written[rep] = t2 - t1, grown[rep] = t3 - t2, dropped[rep] = t4 - t3;
    }
    print_row(b, "fork x 32", positions, forked);
    print_row(b, "first position written to a fork", positions, written);
    print_row(b, "one more position", positions, grown);
    print_row(b, "drop x 32", positions, dropped);
    drop(&source);
    ramet_cache_destroy(&b->cache);
}

/* ---- use ---- */

static ramet_status refuse(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error) {
    (void)user, (void)items, (void)n;
    return ramet_fail(error, RAMET_E_IO, "all of it is in memory, and some is paged");
}
static void forget(void *user, uint64_t name) {
    (void)user, (void)name;
}

/* What a pager costs who does not need it: marks on every block, and their way out of the list of idle ones and back. */
static void bench_use(bench *b, uint32_t positions, bool is_paged) {
    static uint64_t used[REPS], grown[REPS];
    const ramet_pager pager = {.write = refuse, .read = refuse, .forget = forget};
    open_paged_cache(b, MAX_POSITIONS / PAGE_TOKENS + 64, is_paged ? &pager : NULL);
    ramet_context *context = open_context(b, positions);
    for (uint32_t rep = 0; rep < REPS; rep++) {
        settle(b);
        uint64_t t0 = ramet_now_nanoseconds();
        enter(context);
        ramet_context_leave(context);
        uint64_t t1 = ramet_now_nanoseconds();
        extend(context, b->tokens, 1);
        uint64_t t2 = ramet_now_nanoseconds();
        used[rep] = t1 - t0, grown[rep] = t2 - t1;
    }
    print_row(b, is_paged ? "use and leave, with a pager" : "use and leave", positions, used);
    if (is_paged) print_row(b, "  one more position", positions, grown);
    drop(&context);
    ramet_cache_destroy(&b->cache);
}

/* ---- match ---- */

static void retain(ramet_context *context) {
    MUST(ramet_context_enter(context, error));
    MUST(ramet_tree_retain(context, NULL, error));
    ramet_context_leave(context);
}

/* 10,000 entries of one page that differ in their first token, and the one that is hit. */
static void keep_different(bench *b) {
    int32_t tokens[PAGE_TOKENS] = {0};
    for (int32_t i = 1; i < ENTRIES; i++) {
        ramet_context *context;
        MUST(ramet_cache_context_create(b->cache, &context, error));
        tokens[0] = 100 + i;
        extend(context, tokens, PAGE_TOKENS);
        retain(context);
        drop(&context);
    }
}

/* 10,000 entries that share all tokens but the last. */
static void keep_branches(bench *b) {
    ramet_context *trunk = open_context(b, MATCHED - 1);
    for (int32_t i = 1; i < ENTRIES; i++) {
        ramet_context *context = fork_of(trunk);
        int32_t token = 1000 + i;
        extend(context, &token, 1);
        retain(context);
        drop(&context);
    }
    drop(&trunk);
}

/* A conversation of which every turn was kept, and others. */
static void keep_turns(bench *b) {
    for (uint32_t n = TURN; n < MATCHED; n += TURN) {
        ramet_context *context;
        uint32_t matched;
        MUST(ramet_tree_match(b->cache, NULL, b->tokens, n, &context, &matched, error));
        extend(context, b->tokens + matched, n - matched);
        retain(context);
        drop(&context);
    }
    keep_different(b);
}

static void bench_match(bench *b, const char *what, void (*keep)(bench *)) {
    static uint64_t found[REPS], dropped[REPS];
    open_cache(b, 4 * ENTRIES);
    keep(b);
    ramet_context *hit = open_context(b, MATCHED);
    retain(hit);
    drop(&hit);
    for (uint32_t rep = 0; rep < REPS; rep++) {
        uint32_t matched;
        settle(b);
        uint64_t t0 = ramet_now_nanoseconds();
        MUST(ramet_tree_match(b->cache, NULL, b->tokens, MATCHED, &hit, &matched, error));
        uint64_t t1 = ramet_now_nanoseconds();
        drop(&hit);
        uint64_t t2 = ramet_now_nanoseconds();
        if (matched != MATCHED) exit(1);
        found[rep] = t1 - t0, dropped[rep] = t2 - t1;
    }
    print_row(b, what, MATCHED, found);
    print_row(b, "  drop of it", MATCHED, dropped);
    ramet_cache_destroy(&b->cache);
}

int main(int argc, char **argv) {
    uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    bench b = {.tokens = ramet_map((MAX_POSITIONS + 1) * sizeof(int32_t)), .other = ramet_map(COLD_BYTES)};
    if (!b.tokens || !b.other) return 1;
    for (int32_t i = 0; i <= MAX_POSITIONS; i++) b.tokens[i] = i % 49152;
    MUST(ramet_pool_create(threads, &b.pool, error));
    printf("%u thread%s; microseconds          %11s %15s %9s %9s\n", threads, threads == 1 ? "" : "s", "positions",
           "least", "median", "9 in 10");
    for (int cold = 0; cold < 2; cold++) {
        b.is_cold = cold;
        bench_context(&b, 2048);
        bench_context(&b, MATCHED);
        bench_context(&b, MAX_POSITIONS);
        bench_use(&b, MATCHED, false);
        bench_use(&b, MATCHED, true);
        bench_match(&b, "match, 10,000 differ at once", keep_different);
        bench_match(&b, "match, 10,000 differ at the end", keep_branches);
        bench_match(&b, "match, every turn of 100 kept", keep_turns);
    }
    ramet_pool_destroy(&b.pool);
    ramet_unmap(b.tokens, (MAX_POSITIONS + 1) * sizeof(int32_t));
    ramet_unmap(b.other, COLD_BYTES);
    return 0;
}
