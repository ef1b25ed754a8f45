/* test_state_lockstep.c - the state room beside its stupid twin: random operations, and after every single one the
 * tokens, bytes, logits and lengths of all contexts, the statistics, the shared and exclusive pages and the order of
 * the tree are equal, and ramet_cache_check passes. Allocations fail now and then: the twin then does nothing, and nor
 * may ramet.
 *
 *   test_state_lockstep [seed]      RAMET_SEED, RAMET_SEEDS (how many, one after the other), RAMET_OPS (per seed) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/twin.c" /* one program per source, and the twin is a part of this one */
#include "state/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program;
static uint64_t base_seed = 1, n_seeds = 96, n_ops = 250;
static uint64_t seed, step;
static const char *operation = "nothing";

/* ---- failing with the command that replays ---- */

static void print_replay(void) {
    fprintf(stderr, "\nstep %llu (%s); replay: RAMET_SEEDS=1 RAMET_OPS=%llu %s %llu\n", (unsigned long long)step,
            operation, (unsigned long long)n_ops, program, (unsigned long long)seed);
}

static void on_crash(int signal_number) { /* after a RAMET_ASSERT its text is out already */
    print_replay();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

#define require(condition, ...)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            ramet_alloc_fail_after(0);                                                                                 \
            fprintf(stderr, "\n" __VA_ARGS__);                                                                         \
            print_replay();                                                                                            \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

/* ---- randomness ---- */

static uint64_t rng;

static uint32_t draw(uint32_t below) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)((rng * UINT64_C(0x2545f4914f6cdd1d) >> 33) % below);
}

/* Few different tokens and long equal runs, so that prefixes meet. */
static void draw_tokens(int32_t *out, uint32_t n) {
    static const int32_t alphabet[] = {7, -3, 0, 50000};
    uint32_t noise = draw(3) == 0 ? 2 : 60;
    for (uint32_t i = 0; i < n; i++) out[i] = draw(noise) == 0 ? alphabet[draw(4)] : 7;
}

/* Small, or at a page boundary, one before or one after, or anything. */
static uint32_t draw_length(uint32_t page_tokens, uint32_t max) {
    uint32_t n;
    switch (draw(4)) {
    case 0: n = draw(4); break;
    case 1: n = draw(5) * page_tokens + draw(3); break;
    case 2: n = (draw(4) + 1) * page_tokens - 1; break;
    default: n = draw(max + 1); break;
    }
    return n < max ? n : max;
}

/* ---- the pair ---- */

typedef struct pair {
    ramet_cache *cache;
    twin *twin;
    ramet_context *contexts[TWIN_MAX_CONTEXTS];
    bool injects;
} pair;

static uint8_t *bytes_at(ramet_context *context, uint32_t pos) {
    uint32_t page_tokens = ramet_cache_get_options(ramet_context_cache(context))->page_tokens;
    return ramet_context_page_write(context, pos) + pos % page_tokens * TWIN_BYTES;
}

/* What differs between a context and its twin, or NULL. */
static const char *compare_context(pair *p, uint32_t i) {
    ramet_context *context = p->contexts[i];
    const twin_context *c = &p->twin->contexts[i];
    const twin_text *text = &c->text;
    static int32_t tokens[TWIN_MAX_TOKENS];
    if (ramet_context_length(context) != text->n) return "length";
    ramet_context_read_tokens(context, 0, text->n, tokens);
    if (memcmp(tokens, text->tokens, text->n * sizeof *tokens) != 0) return "tokens";
    if (ramet_context_common_prefix(context, text->tokens, text->n) != text->n) return "common prefix";
    if (!ramet_context_where(context) != !c->is_spilled) return "where (K9)";
    uint32_t page_tokens = p->twin->options.page_tokens;
    for (uint32_t pos = 0; pos < text->n && !c->is_spilled; pos++) {
        const uint8_t *page = ramet_context_page_read(context, pos);
        if (memcmp(page + pos % page_tokens * TWIN_BYTES, text->bytes[pos], TWIN_BYTES) != 0) return "bytes (K4)";
    }
    const float *logits = ramet_context_peek_logits(context);
    if (!logits != (text->row == 0)) return "presence of logits";
    if (logits && memcmp(logits, text->logits, sizeof text->logits) != 0) return "logits";
    uint64_t reachable, exclusive;
    ramet_context_count_pages(context, &reachable, &exclusive);
    if (reachable != text->n_pages) return "number of pages";
    if (exclusive != twin_count_exclusive(p->twin, c)) return "number of exclusive pages (K1)";
    return NULL;
}

typedef struct listing {
    const twin *twin;
    uint32_t n;
    bool differs;
} listing;

static void compare_entry(void *user, const int32_t *tokens, uint32_t n) {
    listing *l = user;
    const twin_entry *entry = twin_entry_by_age(l->twin, l->n++);
    l->differs =
        l->differs || !entry || entry->text.n != n || memcmp(entry->text.tokens, tokens, n * sizeof *tokens) != 0;
}

static const char *compare_tree(pair *p) {
    listing l = {.twin = p->twin};
    if (ramet_tree_each(p->cache, compare_entry, &l, NULL) != RAMET_OK) return "no memory";
    return l.differs || l.n != p->twin->n_entries ? "entries or their order (K6)" : NULL;
}

static const char *compare_stats(pair *p) {
    ramet_engine_stats a, b;
    ramet_cache_get_stats(p->cache, &a);
    twin_get_stats(p->twin, &b);
    if (a.pages_allocated - a.pages_freed != a.pages_live) return "allocated - freed = live (K2)";
    if (a.pages_live != b.pages_live) return "live pages";
    if (a.pages_allocated != b.pages_allocated || a.pages_freed != b.pages_freed) return "allocated or freed pages";
    if (a.pages_copied != b.pages_copied) return "copied pages";
    if (a.contexts != b.contexts || a.tree_entries != b.tree_entries) return "contexts or entries";
    if (a.tree_pages != b.tree_pages || a.tree_bytes != b.tree_bytes) return "pages or bytes of the tree (K11)";
    if (a.tree_evictions != b.tree_evictions) return "evictions";
    return NULL;
}

static const char *compare_all(pair *p, uint32_t *out_context) {
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++) {
        const char *difference = p->contexts[i] ? compare_context(p, i) : NULL;
        *out_context = i;
        if (difference) return difference;
    }
    const char *difference = compare_stats(p);
    return difference ? difference : compare_tree(p);
}

static void require_equal(pair *p) {
    ramet_error error = {0};
    uint32_t i;
    require(ramet_cache_check(p->cache, &error) == RAMET_OK, "%s", error.message);
    const char *difference = compare_all(p, &i);
    require(!difference, "differs from the twin (context %u): %s", i, difference);
}

/* ---- operations; each does the same to both ---- */

static uint32_t free_slot_of(const pair *p) {
    uint32_t i = draw(TWIN_MAX_CONTEXTS);
    while (p->contexts[i]) i = (i + 1) % TWIN_MAX_CONTEXTS;
    return i;
}

static void inject(const pair *p) {
    if (p->injects && draw(6) == 0) ramet_alloc_fail_after(1 + draw(5));
}

/* True when both did it; statuses must agree unless ramet had no memory. */
static bool agree(ramet_status is, const ramet_error *error, ramet_status should) {
    require(is == should, "got %s (%s), the twin got %s", ramet_status_name(is), error->message,
            ramet_status_name(should));
    return is == RAMET_OK;
}

#define BOTH(call, twin_call)                                                                                          \
    (inject(p), status = (call), ramet_alloc_fail_after(0),                                                            \
     status != RAMET_E_NO_MEMORY && agree(status, &error, (twin_call)))

static void draw_bytes(pair *p, uint32_t i, uint32_t pos, uint32_t n) {
    for (uint32_t at = pos; at < pos + n; at++) {
        for (uint32_t b = 0; b < TWIN_BYTES; b++) p->twin->contexts[i].text.bytes[at][b] = (uint8_t)draw(256);
        memcpy(bytes_at(p->contexts[i], at), p->twin->contexts[i].text.bytes[at], TWIN_BYTES);
    }
}

static void do_create(pair *p) {
    ramet_error error = {0};
    ramet_status status;
    uint32_t i = free_slot_of(p);
    if (!BOTH(ramet_cache_context_create(p->cache, &p->contexts[i], &error), RAMET_OK)) return;
    p->twin->contexts[i] = (twin_context){.is_open = true};
}

static void do_logits(pair *p, uint32_t i) {
    inject(p);
    float *row = ramet_context_logits_writable(p->contexts[i]);
    ramet_alloc_fail_after(0);
    twin_context *c = &p->twin->contexts[i];
    c->text.row = 0;
    if (!row) return;
    twin_logits_writable(p->twin, c);
    for (uint32_t v = 0; v < TWIN_VOCAB; v++) row[v] = c->text.logits[v] = (float)draw(1000);
}

static void do_extend(pair *p, uint32_t i) {
    ramet_error error = {0};
    ramet_status status;
    twin_context *c = &p->twin->contexts[i];
    uint32_t n = draw_length(p->twin->options.page_tokens, p->twin->options.n_ctx / (1 + draw(8)) + 1);
    if (!BOTH(ramet_context_writable(p->contexts[i], n, &error), twin_writable(p->twin, c, n))) return;
    if (draw(6) == 0) n = draw(n + 1); /* fewer than were made writable, perhaps none */
    static int32_t tokens[TWIN_MAX_TOKENS];
    draw_tokens(tokens, n);
    draw_bytes(p, i, c->text.n, n);
    ramet_context_commit(p->contexts[i], tokens, n);
    twin_commit(p->twin, c, tokens, n);
    if (draw(2)) do_logits(p, i);
}

static void do_cut(pair *p, uint32_t i) {
    ramet_error error = {0};
    ramet_status status;
    twin_context *c = &p->twin->contexts[i];
    uint32_t n = draw(12) == 0 ? c->text.n + draw(2) : draw_length(p->twin->options.page_tokens, c->text.n);
    (void)BOTH(ramet_context_cut(p->contexts[i], n, &error), twin_cut(p->twin, c, n));
}

static void do_rewrite(pair *p, uint32_t i) {
    ramet_error error = {0};
    ramet_status status;
    twin_context *c = &p->twin->contexts[i];
    uint32_t pos = draw(c->text.n + 1),
             n = draw_length(p->twin->options.page_tokens, c->text.n - pos) + (draw(20) == 0);
    if (BOTH(ramet_context_rewrite(p->contexts[i], pos, n, &error), twin_rewrite(p->twin, c, pos, n)))
        draw_bytes(p, i, pos, n);
}

/* ramet keeps shedding pages made writable ahead apart from the rest: it has happened even when the fork then fails. */
static void shed_ahead(pair *p, uint32_t i, ramet_status status) {
    uint64_t reachable, exclusive;
    ramet_context_count_pages(p->contexts[i], &reachable, &exclusive);
    twin_context *c = &p->twin->contexts[i];
    if (status == RAMET_E_NO_MEMORY && !c->is_spilled && reachable < c->text.n_pages) twin_cut(p->twin, c, c->text.n);
}

static void do_fork(pair *p, uint32_t i) {
    ramet_error error = {0};
    ramet_status status;
    uint32_t child = free_slot_of(p);
    twin_context *c = &p->twin->contexts[i];
    (void)BOTH(ramet_context_share(p->contexts[i], &p->contexts[child], &error),
               twin_share(p->twin, c, &p->twin->contexts[child]));
    shed_ahead(p, i, status);
}

static void do_close(pair *p, uint32_t i) {
    ramet_context_destroy(&p->contexts[i]);
    p->twin->contexts[i].is_open = false;
}

static void do_retain(pair *p, uint32_t i) {
    ramet_error error = {0};
    ramet_status status;
    (void)BOTH(ramet_tree_retain(p->contexts[i], &error), twin_retain(p->twin, &p->twin->contexts[i]));
    shed_ahead(p, i, status);
}

/* A query made from the tokens of some context or entry: cut, with one token changed, with some appended. */
static uint32_t draw_query(const pair *p, int32_t *out) {
    const twin_text *text = &p->twin->contexts[draw(TWIN_MAX_CONTEXTS)].text;
    if (p->twin->n_entries > 0 && draw(3)) text = &p->twin->entries[draw(p->twin->n_entries)]->text;
    uint32_t n = draw(3) ? text->n : draw(text->n + 1);
    memcpy(out, text->tokens, n * sizeof *out);
    if (n > 0 && draw(3) == 0) out[draw(n)] = 1 + (int32_t)draw(3);
    uint32_t more = draw(3) ? 0 : draw(20);
    if (more > TWIN_MAX_TOKENS - n) more = TWIN_MAX_TOKENS - n;
    draw_tokens(out + n, more);
    return n + more;
}

static void do_match(pair *p) {
    ramet_error error = {0};
    static int32_t tokens[TWIN_MAX_TOKENS];
    uint32_t i = free_slot_of(p), n = draw_query(p, tokens), matched;
    inject(p);
    ramet_status status = ramet_tree_match(p->cache, tokens, n, &p->contexts[i], &matched, &error);
    ramet_alloc_fail_after(0);
    if (status == RAMET_E_NO_MEMORY) return;
    require(status == RAMET_OK, "match: %s", error.message);
    uint32_t should = twin_match(p->twin, tokens, n, &p->twin->contexts[i]);
    require(matched == should, "matched %u of %u tokens, the twin %u", matched, n, should);
}

static void do_drop(pair *p, uint32_t i) {
    ramet_error error = {0};
    ramet_status status;
    (void)BOTH(ramet_context_drop(p->contexts[i], "somewhere", &error), twin_drop(p->twin, &p->twin->contexts[i]));
}

static void do_refill(pair *p, uint32_t i) {
    static const uint8_t zeros[TWIN_BYTES];
    ramet_error error = {0};
    ramet_status status;
    twin_context *c = &p->twin->contexts[i];
    if (!BOTH(ramet_context_refill(p->contexts[i], NULL, &error), twin_refill(p->twin, c))) return;
    for (uint32_t pos = 0; pos < c->text.n; pos++) {
        require(memcmp(bytes_at(p->contexts[i], pos), zeros, TWIN_BYTES) == 0, "position %u is not zero after a refill",
                pos);
        memcpy(bytes_at(p->contexts[i], pos), c->text.bytes[pos], TWIN_BYTES);
    }
}

/* ---- the walk ---- */

/* The seed says everything: page size, budgets, operations. */
static void open_pair(pair *p) {
    static const uint32_t sizes[] = {16, 64, 256};
    uint32_t page_tokens = sizes[seed % 3];
    bool is_tight = seed / 3 % 2, is_tree_tight = seed / 6 % 2;
    uint64_t page_bytes = page_tokens * TWIN_BYTES;
    ramet_cache_options options = {
        .page_tokens = page_tokens,
        .page_bytes = page_bytes,
        .n_ctx = page_tokens == 256  ? 1550
                 : page_tokens == 64 ? 600
                                     : 70 * 16 + 5, /* 16: past the fan-out of a table */
        .n_vocab = TWIN_VOCAB,
        .budget_bytes = (is_tight ? (page_tokens == 16 ? 90 : 14) : 2000) * page_bytes + 5,
        .tree_budget_bytes = (is_tree_tight ? 6 : 1000) * page_bytes + (seed % 2 ? 20 : 0), /* 20: a row and a bit */
    };
    ramet_error error = {0};
    *p = (pair){.twin = twin_create(&options), .injects = seed % 5 != 0};
    require(ramet_cache_create(&options, &p->cache, &error) == RAMET_OK, "%s", error.message);
}

static void close_pair(pair *p) {
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++)
        if (p->contexts[i]) do_close(p, i);
    ramet_tree_clear(p->cache);
    twin_clear(p->twin);
    operation = "closing all";
    require_equal(p); /* K7 */
    ramet_cache_destroy(&p->cache);
    twin_destroy(p->twin);
}

static void one_step(pair *p) {
    uint32_t open = 0, i = draw(TWIN_MAX_CONTEXTS), what = draw(100);
    for (uint32_t k = 0; k < TWIN_MAX_CONTEXTS; k++) open += p->contexts[k] != NULL;
    if (open == 0) {
        operation = "create";
        do_create(p);
        return;
    }
    while (!p->contexts[i]) i = (i + 1) % TWIN_MAX_CONTEXTS;
#define STEP(chance, name, call)                                                                                       \
    do {                                                                                                               \
        if (what < (chance)) {                                                                                         \
            operation = name;                                                                                          \
            call;                                                                                                      \
            return;                                                                                                    \
        }                                                                                                              \
        what -= (chance);                                                                                              \
    } while (0)
    if (open < TWIN_MAX_CONTEXTS) {
        STEP(3, "create", do_create(p));
        STEP(16, "fork", do_fork(p, i));
        STEP(12, "match", do_match(p));
    } else {
        STEP(12, "close", do_close(p, i));
    }
    if (p->twin->contexts[i].is_spilled) STEP(30, "refill", do_refill(p, i));
    STEP(30, "extend", do_extend(p, i));
    STEP(10, "cut", do_cut(p, i));
    STEP(6, "rewrite", do_rewrite(p, i));
    STEP(10, "close", do_close(p, i));
    STEP(12, "retain", do_retain(p, i));
    STEP(3, "drop", do_drop(p, i));
    STEP(2, "logits", do_logits(p, i));
    operation = "refill";
    do_refill(p, i);
}

static void random_walks_equal_the_twin(void **state) {
    (void)state;
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    ramet_engine_stats sum = {0};
    for (seed = base_seed; seed < base_seed + n_seeds; seed++) {
        rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
        pair p;
        open_pair(&p);
        for (step = 0; step < n_ops; step++) {
            one_step(&p);
            require_equal(&p);
        }
        ramet_engine_stats stats;
        ramet_cache_get_stats(p.cache, &stats);
        sum.pages_copied += stats.pages_copied;
        sum.tree_evictions += stats.tree_evictions;
        close_pair(&p);
    }
    if (n_seeds >= 12) { /* the walks go where it matters */
        assert_true(sum.pages_copied > 100);
        assert_true(sum.tree_evictions > 100);
    }
}

/* ---- negative controls: the comparison has teeth ---- */

static void open_two_forks(pair *p) {
    seed = 1; /* pages of 64, no budget is tight */
    rng = 4711;
    open_pair(p);
    ramet_error error = {0};
    p->injects = false;
    do_create(p);
    uint32_t parent = 0;
    while (!p->contexts[parent]) parent++;
    int32_t tokens[70] = {1};
    require(ramet_context_writable(p->contexts[parent], 70, &error) == RAMET_OK, "%s", error.message);
    twin_writable(p->twin, &p->twin->contexts[parent], 70);
    draw_bytes(p, parent, 0, 70);
    ramet_context_commit(p->contexts[parent], tokens, 70);
    twin_commit(p->twin, &p->twin->contexts[parent], tokens, 70);
    do_fork(p, parent);
    do_retain(p, parent);
    do_cut(p, parent);
    do_retain(p, parent);
    require_equal(p);
}

static void a_write_into_a_shared_page_is_seen(void **state) {
    (void)state;
    pair p;
    open_two_forks(&p);
    uint32_t i;
    ramet_page *page = ramet_slab_page(&p.cache->slab, 0);
    ramet_slab_data(&p.cache->slab, page)[0] ^= 1;
    assert_string_equal(compare_all(&p, &i), "bytes (K4)");
    ramet_slab_data(&p.cache->slab, page)[0] ^= 1;
    page->tokens[0] ^= 1;
    assert_string_equal(compare_all(&p, &i), "tokens");
    page->tokens[0] ^= 1;
    assert_null(compare_all(&p, &i));
    close_pair(&p);
}

static void another_order_of_use_is_seen(void **state) {
    (void)state;
    pair p;
    open_two_forks(&p);
    uint32_t i;
    assert_int_equal(p.twin->n_entries, 2);
    p.twin->entries[0]->last_use += 10;
    assert_string_equal(compare_all(&p, &i), "entries or their order (K6)");
    p.twin->entries[0]->last_use -= 10;
    assert_null(compare_all(&p, &i));
    p.twin->n_copied++;
    assert_string_equal(compare_all(&p, &i), "copied pages");
    p.twin->n_copied--;
    close_pair(&p);
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

int main(int argc, char **argv) {
    program = argv[0];
    base_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : setting("RAMET_SEED", base_seed);
    n_seeds = setting("RAMET_SEEDS", n_seeds);
    n_ops = setting("RAMET_OPS", n_ops);
    printf("seeds %llu to %llu, %llu operations each\n", (unsigned long long)base_seed,
           (unsigned long long)(base_seed + n_seeds - 1), (unsigned long long)n_ops);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_walks_equal_the_twin),
        cmocka_unit_test(a_write_into_a_shared_page_is_seen),
        cmocka_unit_test(another_order_of_use_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
