/* test_state_edges.c - page boundaries, cuts at every position, deep forks, long tables, what a fork costs, and
 * operations whose every allocation fails once. */
#include "test_state_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- boundaries ---- */

/* Forks, extends, matches and cuts one context of `length` tokens; the parent must never notice. */
static void try_length(uint32_t page_tokens, uint32_t length) {
    ramet_cache *cache = open_cache(page_tokens, 1000, 1000);
    ramet_context *c[4] = {open_context(cache)};
    extend_with(c[0], length, 1);
    assert_ok(ramet_tree_retain(c[0], error));
    ramet_engine_stats before = stats_of(cache);

    c[1] = fork_of(c[0]);
    assert_memory_equal(&(uint64_t){stats_of(cache).pages_allocated}, &before.pages_allocated, sizeof(uint64_t));
    extend_with(c[1], 3, 2);
    assert_int_equal(stats_of(cache).pages_copied - before.pages_copied, length % page_tokens != 0);

    int32_t *tokens = calloc(length + 1, sizeof *tokens);
    ramet_context_read_tokens(c[0], 0, length, tokens);
    uint32_t matched;
    assert_ok(ramet_tree_match(cache, tokens, length, &c[2], &matched, error));
    assert_int_equal(matched, length);
    assert_int_equal(ramet_context_length(c[2]), length);
    extend_with(c[2], 2 * page_tokens, 3);

    c[3] = fork_of(c[0]);
    if (length > 0) {
        uint64_t copied = stats_of(cache).pages_copied;
        assert_ok(ramet_context_cut(c[3], length - 1, error));
        assert_int_equal(stats_of(cache).pages_copied, copied); /* a cut never writes */
        assert_null(ramet_context_peek_logits(c[3]));
        extend_with(c[3], 2, 4);
    }
    for (size_t i = 0; i < 4; i++) assert_true(is_lawful(c[i]));
    if (length > 0) assert_non_null(ramet_context_peek_logits(c[0]));
    check(cache);
    free(tokens);
    close_contexts(c, 4);
    ramet_cache_destroy(&cache);
}

static void case_27_lengths_around_page_boundaries(void **state) {
    (void)state;
    static const uint32_t sizes[] = {16, 64, 256};
    for (size_t s = 0; s < 3; s++)
        for (uint32_t k = 0; k <= 3; k++)
            for (uint32_t r = 0; r < 3; r++) try_length(sizes[s], k * sizes[s] + (r == 2 ? sizes[s] - 1 : r));
}

/* Shared pages, then pages of its own: each length from `most` down. */
static void cut_everywhere(ramet_context *parent, uint32_t most, uint32_t page_tokens) {
    ramet_cache *cache = ramet_context_cache(parent);
    for (uint32_t n = 0; n <= most; n++) {
        ramet_context *fork = fork_of(parent);
        assert_ok(ramet_context_cut(fork, n, error));
        uint64_t reachable, exclusive;
        ramet_context_count_pages(fork, &reachable, &exclusive);
        assert_int_equal(reachable, (n + page_tokens - 1) / page_tokens);
        assert_int_equal(exclusive, 0);
        check(cache);
        extend_with(fork, 40, 2);
        assert_true(is_lawful(fork));
        assert_true(is_lawful(parent));
        check(cache);
        assert_ok(ramet_context_cut(fork, n, error)); /* now on pages of its own */
        assert_fails(RAMET_E_ARGUMENT, ramet_context_cut(fork, n + 1, error));
        extend_with(fork, 1, 3);
        assert_true(is_lawful(fork));
        check(cache);
        ramet_context_destroy(&fork);
    }
}

static const uint32_t page_sizes[] = {16, 64, 256};

static void a_context_is_cut_at_every_position(void **state) {
    (void)state;
    for (size_t s = 0; s < 3; s++) {
        ramet_cache *cache = open_cache(page_sizes[s], 1000, 0);
        ramet_context *parent = open_context(cache);
        uint32_t n = page_sizes[s] + page_sizes[s] / 2;
        extend_with(parent, n, 1);
        cut_everywhere(parent, n, page_sizes[s]);
        ramet_context_destroy(&parent);
        ramet_cache_destroy(&cache);
    }
}

/* Each branch and its parent go on; every other one goes; the last of them, with pages of twelve others in its table, is
 * cut at every position. */
static void go_twelve_deep(uint32_t page_tokens) {
    enum { DEPTH = 12 };
    ramet_cache *cache = open_cache(page_tokens, 1000, 0);
    ramet_context *c[DEPTH + 1] = {open_context(cache)};
    extend_with(c[0], page_tokens + 5, 0);
    for (size_t i = 1; i <= DEPTH; i++) {
        c[i] = fork_of(c[i - 1]);
        extend_with(c[i], page_tokens / 2 - 1, (int32_t)i);
        extend_with(c[i - 1], 5, 100 + (int32_t)i); /* the parent goes on as well */
        check(cache);
        for (size_t k = 0; k <= i; k++) assert_true(is_lawful(c[k]));
    }
    for (size_t i = 0; i <= DEPTH; i += 2) ramet_context_destroy(&c[i]);
    check(cache);
    for (size_t i = 1; i <= DEPTH; i += 2) {
        extend_with(c[i], 30, 200);
        assert_true(is_lawful(c[i]));
    }
    check(cache);
    if (page_tokens == 16) cut_everywhere(c[DEPTH - 1], ramet_context_length(c[DEPTH - 1]), page_tokens);
    close_contexts(c, DEPTH + 1);
    assert_int_equal(stats_of(cache).pages_live, 0);
    ramet_cache_destroy(&cache);
}

static void forks_twelve_deep_all_written(void **state) {
    (void)state;
    for (size_t s = 0; s < 3; s++) go_twelve_deep(page_sizes[s]);
}

static void what_is_refused_changes_nothing(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 6, 2);
    ramet_context *c[3] = {open_context(cache)};
    extend_with(c[0], 40, 1);
    c[1] = fork_of(c[0]);
    extend_with(c[1], 1, 2);
    c[2] = open_context(cache);
    extend_with(c[2], 20, 3);
    assert_ok(ramet_tree_retain(c[2], error));
    ramet_engine_stats before = stats_of(cache), after;
    assert_fails(RAMET_E_BUDGET, ramet_context_writable(c[0], 9, error));   /* one page more */
    assert_fails(RAMET_E_BUDGET, ramet_context_rewrite(c[1], 0, 1, error)); /* one copy */
    assert_fails(RAMET_E_BUDGET, ramet_tree_retain(c[0], error));           /* three pages in a tree of two */
    assert_fails(RAMET_E_WINDOW, ramet_context_writable(c[0], (1 << 21) - 39, error));
    assert_fails(RAMET_E_ARGUMENT, ramet_context_rewrite(c[0], 39, 2, error));
    assert_fails(RAMET_E_ARGUMENT, ramet_context_refill(c[0], NULL, error));
    after = stats_of(cache);
    assert_memory_equal(&before, &after, sizeof after); /* and the tree has lost nothing */
    for (size_t i = 0; i < 3; i++) assert_true(is_lawful(c[i]));
    check(cache);
    ramet_context_destroy(&c[2]); /* its pages are now the tree's alone, and make room */
    extend_with(c[0], 9, 1);
    assert_int_equal(stats_of(cache).tree_evictions, 1);
    check(cache);
    close_contexts(c, 3);
    ramet_cache_destroy(&cache);
}

static void a_spilled_context_comes_back(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 10, 0);
    ramet_context *context = open_context(cache);
    extend_with(context, 100, 1);
    uint8_t saved[100][POSITION_BYTES];
    for (uint32_t pos = 0; pos < 100; pos++)
        memcpy(saved[pos], ramet_context_page_read(context, pos) + pos % 16 * POSITION_BYTES, POSITION_BYTES);
    assert_ok(ramet_context_drop(context, "a/file", error));
    assert_string_equal(ramet_context_where(context), "a/file");
    assert_int_equal(stats_of(cache).pages_live, 0);
    assert_int_equal(ramet_context_length(context), 100);
    assert_non_null(ramet_context_peek_logits(context));
    check(cache);
    ramet_context *none;
    assert_fails(RAMET_E_ARGUMENT, ramet_context_writable(context, 1, error));
    assert_fails(RAMET_E_ARGUMENT, ramet_context_cut(context, 1, error));
    assert_fails(RAMET_E_ARGUMENT, ramet_context_share(context, &none, error));
    assert_null(none);
    assert_fails(RAMET_E_ARGUMENT, ramet_tree_retain(context, error));
    assert_fails(RAMET_E_ARGUMENT, ramet_context_drop(context, "b", error));

    ramet_context *hog = open_context(cache);
    extend_with(hog, 64, 2);
    assert_fails(RAMET_E_BUDGET, ramet_context_refill(context, NULL, error));
    assert_string_equal(ramet_context_where(context), "a/file");
    ramet_context_destroy(&hog);
    ramet_spilled spilled; /* a refill whose reading failed */
    assert_ok(ramet_context_refill(context, &spilled, error));
    ramet_context_undo_refill(context, &spilled);
    ramet_spilled_free(&spilled);
    assert_string_equal(ramet_context_where(context), "a/file");
    check(cache);
    assert_ok(ramet_context_refill(context, NULL, error));
    assert_null(ramet_context_where(context));
    for (uint32_t pos = 0; pos < 100; pos++)
        memcpy(ramet_context_page_write(context, pos) + pos % 16 * POSITION_BYTES, saved[pos], POSITION_BYTES);
    assert_true(is_lawful(context));
    check(cache);
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

/* ---- long tables ---- */

static int32_t *some_tokens(uint32_t n) {
    int32_t *tokens = malloc(n * sizeof *tokens);
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)(i * 2654435761u >> 8);
    return tokens;
}

static ramet_context *open_long_context(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    ramet_context *context = open_context(cache);
    assert_ok(ramet_context_writable(context, n, error));
    ramet_context_commit(context, tokens, n);
    assert_non_null(ramet_context_logits_writable(context));
    return context;
}

/* The one allocation that would fail is the one after the fork. */
static void assert_fork_allocates_nothing(ramet_context *context) {
    ramet_cache *cache = ramet_context_cache(context);
    ramet_engine_stats before = stats_of(cache), after;
    uint32_t n_nodes = cache->nodes.n_live, n_spare = cache->nodes.n_spare;
    ramet_alloc_fail_after(1);
    ramet_context *fork = fork_of(context);
    void *first = ramet_alloc(1, 1);
    ramet_alloc_fail_after(0);
    assert_null(first);
    assert_int_equal(cache->nodes.n_live, n_nodes);
    assert_int_equal(cache->nodes.n_spare, n_spare);
    after = stats_of(cache);
    assert_int_equal(after.contexts, before.contexts + 1);
    after.contexts = before.contexts;
    assert_memory_equal(&before, &after, sizeof after);
    ramet_context_destroy(&fork);
}

static void a_fork_of_a_million_positions_costs_the_same(void **state) {
    (void)state;
    enum { MILLION = 1048576 };
    ramet_cache *cache;
    ramet_cache_options options = {.page_tokens = 64,
                                   .page_bytes = 64,
                                   .n_ctx = MILLION + 100,
                                   .n_vocab = N_VOCAB,
                                   .budget_bytes = 64 * 20000,
                                   .tree_budget_bytes = 64 * 20000};
    assert_ok(ramet_cache_create(&options, &cache, error));
    int32_t *tokens = some_tokens(MILLION);
    static const uint32_t lengths[] = {1, 64, 65, 4096, 64 * 4096, 64 * 4096 + 1, MILLION};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        ramet_context *context = open_long_context(cache, tokens, lengths[i]);
        assert_fork_allocates_nothing(context);
        ramet_context_destroy(&context);
    }

    ramet_context *c[3] = {open_long_context(cache, tokens, MILLION)};
    assert_ok(ramet_tree_retain(c[0], error));
    c[1] = fork_of(c[0]);
    uint64_t n_nodes = cache->nodes.n_live, n_pages = stats_of(cache).pages_live;
    assert_ok(ramet_context_writable(c[1], 1, error)); /* one page, and a path of three nodes to it */
    assert_int_equal(stats_of(cache).pages_live, n_pages + 1);
    assert_true(cache->nodes.n_live <= n_nodes + 4);
    ramet_context_commit(c[1], tokens, 1);
    assert_int_equal(ramet_context_common_prefix(c[1], tokens, MILLION), MILLION);
    tokens[MILLION - 3] ^= 1;
    uint32_t matched;
    assert_ok(ramet_tree_match(cache, tokens, MILLION, &c[2], &matched, error));
    assert_int_equal(matched, MILLION - 3);
    check(cache);
    free(tokens);
    close_contexts(c, 3);
    ramet_cache_destroy(&cache);
}

/* Cuts where the height of a table changes, shared and alone, and growing back. */
static void tables_grow_and_shrink(void **state) {
    (void)state;
    enum { PAGES = 4096 + 65, N = PAGES * 16 };
    static const uint32_t pages[] = {4097, 4096, 4095, 129, 128, 65, 64, 63, 1, 0};
    ramet_cache *cache = open_cache(16, 3 * PAGES, 0);
    int32_t *tokens = some_tokens(N);
    ramet_context *context = open_long_context(cache, tokens, N);
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        ramet_context *fork = fork_of(context);
        assert_ok(ramet_context_cut(fork, pages[i] * 16, error));
        check(cache);
        assert_ok(ramet_context_writable(fork, N - pages[i] * 16, error));
        ramet_context_commit(fork, tokens + pages[i] * 16, N - pages[i] * 16);
        assert_int_equal(ramet_context_common_prefix(fork, tokens, N), N);
        check(cache);
        assert_ok(ramet_context_cut(context, pages[i] * 16, error));
        check(cache);
        ramet_context_destroy(&context);
        context = fork;
    }
    assert_ok(ramet_context_rewrite(context, 0, N, error)); /* all alone now */
    assert_int_equal(stats_of(cache).pages_copied, 0);
    ramet_context *fork = fork_of(context);
    assert_ok(ramet_context_rewrite(fork, 15, 16 * 4096, error));
    assert_int_equal(stats_of(cache).pages_copied, 4097);
    check(cache);
    free(tokens);
    ramet_context_destroy(&fork);
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

/* ---- allocations ---- */

static void a_steady_decode_allocates_nothing(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 1000, 100);
    ramet_context *c[2] = {open_context(cache)};
    extend_with(c[0], 100, 1);
    c[1] = fork_of(c[0]);
    extend_with(c[1], 20, 2); /* its own path, page and row; */
    extend_with(c[1], 16, 2); /* and a table node in reserve, until the leaf is full: 64 pages */
    ramet_alloc_fail_after(1);
    for (int32_t i = 0; i < 200; i++) extend(c[1], &i, 1); /* 12 new pages on the way */
    void *first = ramet_alloc(1, 1);
    ramet_alloc_fail_after(0);
    assert_null(first);
    assert_true(is_lawful(c[1]));
    check(cache);
    close_contexts(c, 2);
    ramet_cache_destroy(&cache);
}

typedef struct world {
    ramet_cache *cache;
    ramet_context *c[3];
    ramet_context *made;
} world;

static ramet_status do_extend(world *w, ramet_error *error) {
    return ramet_context_writable(w->c[1], 16 * 70, error);
}
static ramet_status do_rewrite(world *w, ramet_error *error) {
    return ramet_context_rewrite(w->c[1], 0, 70, error);
}
static ramet_status do_cut(world *w, ramet_error *error) {
    return ramet_context_cut(w->c[1], 17, error);
}
static ramet_status do_fork(world *w, ramet_error *error) {
    return ramet_context_share(w->c[1], &w->made, error);
}
static ramet_status do_create(world *w, ramet_error *error) {
    return ramet_cache_context_create(w->cache, &w->made, error);
}
static ramet_status do_retain(world *w, ramet_error *error) {
    return ramet_tree_retain(w->c[2], error);
}
static ramet_status do_match(world *w, ramet_error *error) {
    int32_t tokens[60];
    uint32_t matched;
    ramet_context_read_tokens(w->c[0], 0, 60, tokens);
    return ramet_tree_match(w->cache, tokens, 60, &w->made, &matched, error);
}
static ramet_status do_drop(world *w, ramet_error *error) {
    return ramet_context_drop(w->c[1], "x", error);
}
static ramet_status do_refill(world *w, ramet_error *error) {
    return ramet_context_refill(w->c[2], NULL, error);
}

/* Three relatives of which two are kept; the last one may be spilled. */
static world open_world(bool is_spilled) {
    world w = {.cache = open_cache(16, 1000, 1000)};
    w.c[0] = open_context(w.cache);
    extend_with(w.c[0], 70, 1);
    assert_ok(ramet_tree_retain(w.c[0], error));
    w.c[1] = fork_of(w.c[0]);
    w.c[2] = fork_of(w.c[0]);
    assert_ok(ramet_context_cut(w.c[2], 40, error)); /* keeping it splits an edge */
    extend_with(w.c[2], 10, 2);
    ramet_table_trim_pool(w.cache, 0); /* nothing spare */
    ramet_row_trim_pool(w.cache, 0);
    if (is_spilled) assert_ok(ramet_context_drop(w.c[2], "x", error));
    ramet_table_trim_pool(w.cache, 0);
    return w;
}

static void close_world(world *w) {
    ramet_context_destroy(&w->made);
    close_contexts(w->c, 3);
    ramet_cache_destroy(&w->cache);
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ramet_status (*run)(world *w, ramet_error *error);
        bool is_spilled;
        uint64_t at_least; /* allocations that the operation is known to make */
    } operations[] = {
        {"extend", do_extend, false, 2}, {"rewrite", do_rewrite, false, 1}, {"cut", do_cut, false, 1},
        {"fork", do_fork, false, 0},     {"create", do_create, false, 0},   {"retain", do_retain, false, 4},
        {"match", do_match, false, 1},   {"drop", do_drop, false, 2},       {"refill", do_refill, true, 1},
    };
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        for (uint64_t k = 1;; k++) {
            world w = open_world(operations[i].is_spilled);
            ramet_engine_stats before = stats_of(w.cache), after;
            ramet_error error = {0};
            ramet_alloc_fail_after(k);
            ramet_status status = operations[i].run(&w, &error);
            ramet_alloc_fail_after(0);
            check(w.cache);
            for (size_t c = 0; c < 3; c++)
                if (!ramet_context_where(w.c[c]) && !(status == RAMET_OK && operations[i].is_spilled && c == 2))
                    assert_true(is_lawful(w.c[c]));
            if (status == RAMET_OK) {
                if (k <= operations[i].at_least)
                    fail_msg("%s: %llu allocations", operations[i].name, (unsigned long long)k - 1);
                close_world(&w);
                break;
            }
            assert_int_equal(status, RAMET_E_NO_MEMORY);
            assert_int_equal(error.code, RAMET_E_NO_MEMORY);
            after = stats_of(w.cache);
            assert_memory_equal(&before, &after, sizeof after);
            assert_null(w.made);
            assert_int_equal(ramet_context_length(w.c[1]), 70);
            assert_non_null(ramet_context_peek_logits(w.c[1]));
            close_world(&w);
        }
    }
}

static void creating_a_cache_fails_cleanly(void **state) {
    (void)state;
    ramet_cache_options good = {.page_tokens = 16, .page_bytes = 128, .n_ctx = 100, .budget_bytes = 1280};
    ramet_cache *cache;
    for (uint64_t k = 1; k <= 4; k++) {
        ramet_alloc_fail_after(k);
        assert_fails(RAMET_E_NO_MEMORY, ramet_cache_create(&good, &cache, error));
        assert_null(cache);
    }
    ramet_alloc_fail_after(0);
    static const uint32_t bad_sizes[] = {0, 8, 24, 512, 65};
    for (size_t i = 0; i < 5; i++) {
        ramet_cache_options bad = good;
        bad.page_tokens = bad_sizes[i];
        assert_fails(RAMET_E_ARGUMENT, ramet_cache_create(&bad, &cache, error));
    }
    ramet_cache_options bad = good;
    bad.page_bytes = 0;
    assert_fails(RAMET_E_ARGUMENT, ramet_cache_create(&bad, &cache, error));
    bad = good;
    bad.n_ctx = 0;
    assert_fails(RAMET_E_ARGUMENT, ramet_cache_create(&bad, &cache, error));
    bad = good;
    bad.budget_bytes = 127;
    assert_fails(RAMET_E_BUDGET, ramet_cache_create(&bad, &cache, error));
    bad = good;
    bad.page_bytes = bad.budget_bytes = UINT64_MAX; /* no size may wrap */
    assert_fails(RAMET_E_NO_MEMORY, ramet_cache_create(&bad, &cache, error));
    assert_ok(ramet_cache_create(&good, &cache, error));
    ramet_cache_destroy(&cache);
    assert_null(cache);
    ramet_cache_destroy(&cache);
}

static void a_closed_context_stays_busy(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 10, 10);
    ramet_context *context = open_context(cache), *closed = context;
    ramet_context_destroy(&context);
    assert_fails(RAMET_E_BUSY, ramet_context_enter(closed, error));
    context = open_context(cache);
    assert_ptr_equal(context, closed); /* the slot is out again, empty */
    assert_int_equal(ramet_context_length(context), 0);
    assert_null(ramet_context_peek_logits(context));
    assert_ok(ramet_context_enter(context, error));
    ramet_context_leave(context);
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

static void contexts_have_a_ceiling(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 10, 10);
    ramet_context *first = open_context(cache), *second = first;
    uint32_t n_touched = cache->contexts.n_touched;
    cache->contexts.n_touched = RAMET_MAX_CONTEXTS; /* as if all were out */
    assert_fails(RAMET_E_BUDGET, ramet_context_share(first, &second, error));
    assert_null(second);
    cache->contexts.n_touched = n_touched;
    check(cache);
    ramet_context_destroy(&first);
    ramet_cache_destroy(&cache);
}

/* ---- misuse stops by number ---- */

static void write_into_a_shared_page(ramet_context *context) {
    ramet_context *fork = fork_of(context);
    ramet_context_page_write(fork, 0);
}
static void release_twice(ramet_context *context) {
    ramet_page *page = ramet_table_page(&context->table, 0);
    page->counts.holds[RAMET_BY_CONTEXTS] = 0;
    ramet_page_release(context->cache, page);
    ramet_page_release(context->cache, page);
}
static void close_the_cache_first(ramet_context *context) {
    ramet_cache *cache = context->cache;
    ramet_cache_destroy(&cache);
}

static void assert_panics(void (*misuse)(ramet_context *), const char *text) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        ramet_cache *cache = open_cache(16, 10, 10);
        ramet_context *context = open_context(cache);
        extend_with(context, 20, 1);
        misuse(context);
        _exit(0);
    }
    close(ends[1]);
    char said[400] = {0};
    for (size_t got = 0; got < sizeof said - 1;) {
        ssize_t n = read(ends[0], said + got, sizeof said - 1 - got);
        if (n <= 0) break;
        got += (size_t)n;
    }
    close(ends[0]);
    int how;
    waitpid(child, &how, 0);
    assert_true(WIFSIGNALED(how) || WEXITSTATUS(how) != 0);
    if (!strstr(said, text)) fail_msg("said: %s", said);
}

static void case_34_misuse_stops_by_number(void **state) {
    (void)state;
    assert_panics(write_into_a_shared_page, "K1: position 0 is written in a page that others can reach");
    assert_panics(release_twice, "K2: page 0 is released but free");
    assert_panics(close_the_cache_first, "K7: 1 contexts are still open");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_27_lengths_around_page_boundaries),
        cmocka_unit_test(a_context_is_cut_at_every_position),
        cmocka_unit_test(forks_twelve_deep_all_written),
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(a_spilled_context_comes_back),
        cmocka_unit_test(a_fork_of_a_million_positions_costs_the_same),
        cmocka_unit_test(tables_grow_and_shrink),
        cmocka_unit_test(a_steady_decode_allocates_nothing),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(creating_a_cache_fails_cleanly),
        cmocka_unit_test(a_closed_context_stays_busy),
        cmocka_unit_test(contexts_have_a_ceiling),
        cmocka_unit_test(case_34_misuse_stops_by_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
