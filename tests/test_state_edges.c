/* test_state_edges.c - page boundaries, cuts at every position, deep forks, each in memory alone and with a pager and a
 * tight budget; long tables, and what a fork costs. */
#include "test_state_pager.h"

/* ---- with and without a pager ---- */

/* Without: as many pages as anybody may want, and all contexts in use. With: as few as one context and a little more
 * needs, a state for each, and only who is looked at is in use. */
typedef struct scene {
    ramet_cache *cache;
    test_pager pager;
    bool is_paged;
} scene;

static void open_scene(scene *s, bool is_paged, uint32_t page_tokens, uint32_t n_tight, uint32_t n_tree_pages) {
    ramet_cache_options options = options_of(page_tokens, is_paged ? n_tight : 1000, n_tree_pages);
    s->is_paged = is_paged;
    if (is_paged) {
        options.state_bytes = 20;
        options.budget_bytes += 100;
        s->cache = open_paged_cache(&s->pager, options);
    } else {
        s->cache = open_cache_of(&options);
    }
}

static void close_scene(scene *s) {
    assert_int_equal(stats_of(s->cache).contexts, 0);
    if (s->is_paged)
        close_paged_cache(&s->pager, &s->cache);
    else
        ramet_cache_destroy(&s->cache);
}

/* Whoever was in use is not any more, where somebody else may need the room. */
static void rest(const scene *s, ramet_context *context) {
    if (s->is_paged) ramet_context_leave(context);
}
static void wake(const scene *s, ramet_context *context) {
    if (s->is_paged) enter_and_use(context);
}

static void step(const scene *s, ramet_context *context, uint32_t n, int32_t text) {
    wake(s, context);
    extend_with(context, n, text);
    rest(s, context);
}

static ramet_context *fork_at_rest(const scene *s, ramet_context *context) {
    ramet_context *fork;
    if (s->is_paged) assert_ok(ramet_context_enter(context, error));
    assert_ok(ramet_context_share(context, &fork, error)); /* reads nothing back */
    if (s->is_paged)
        ramet_context_leave(context);
    else
        enter_and_use(fork);
    return fork;
}

static ramet_status cut_at_rest(const scene *s, ramet_context *context, uint32_t n, ramet_error *error) {
    if (s->is_paged) RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_context_cut(context, n, error);
    rest(s, context);
    return status;
}

static void assert_all_lawful(const scene *s, ramet_context *const *contexts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!contexts[i]) continue;
        wake(s, contexts[i]);
        assert_true(is_lawful(contexts[i]));
        rest(s, contexts[i]);
    }
}

static void close_at_rest(const scene *s, ramet_context **context) {
    if (s->is_paged)
        close_left(context);
    else
        ramet_context_destroy(context);
}

/* ---- boundaries ---- */

/* Forks, extends, matches and cuts one context of `length` tokens; the parent must never notice. */
static void try_length(bool is_paged, uint32_t page_tokens, uint32_t length) {
    scene s;
    open_scene(&s, is_paged, page_tokens, length / page_tokens + 4, 1000);
    ramet_context *c[4] = {open_context(s.cache)};
    extend_with(c[0], length, 1);
    assert_ok(retain(c[0], error));
    rest(&s, c[0]);
    ramet_engine_stats before = stats_of(s.cache);

    c[1] = fork_at_rest(&s, c[0]);
    assert_int_equal(stats_of(s.cache).pages_allocated, before.pages_allocated);
    step(&s, c[1], 3, 2);
    assert_int_equal(stats_of(s.cache).pages_copied - before.pages_copied, length % page_tokens != 0);

    int32_t *tokens = calloc(length + 1, sizeof *tokens);
    ramet_context_read_tokens(c[0], 0, length, tokens);
    uint32_t matched;
    assert_ok(ramet_tree_match(s.cache, NULL, tokens, length, &c[2], &matched, error));
    assert_int_equal(matched, length);
    assert_int_equal(ramet_context_length(c[2]), length);
    if (!is_paged) enter_and_use(c[2]);
    step(&s, c[2], 2 * page_tokens, 3);

    c[3] = fork_at_rest(&s, c[0]);
    if (length > 0) {
        uint64_t copied = stats_of(s.cache).pages_copied;
        assert_ok(cut_at_rest(&s, c[3], length - 1, error));
        assert_int_equal(stats_of(s.cache).pages_copied, copied); /* a cut never writes */
        assert_false(ramet_context_has_logits(c[3]));
        assert_false(ramet_context_has_state(c[3]));
        step(&s, c[3], 2, 4);
    }
    assert_all_lawful(&s, c, 4);
    assert_int_equal(ramet_context_has_logits(c[0]), length > 0);
    check(s.cache);
    free(tokens);
    for (size_t i = 0; i < 4; i++) close_at_rest(&s, &c[i]);
    close_scene(&s);
}

static const uint32_t page_sizes[] = {16, 64, 256};

static void case_27_lengths_around_page_boundaries(void **state) {
    (void)state;
    for (int is_paged = 0; is_paged < 2; is_paged++)
        for (size_t p = 0; p < 3; p++)
            for (uint32_t k = 0; k <= 3; k++)
                for (uint32_t r = 0; r < 3; r++)
                    try_length(is_paged, page_sizes[p], k * page_sizes[p] + (r == 2 ? page_sizes[p] - 1 : r));
}

/* Forks of forks, each cut at a boundary or beside it, with pages that are in memory or not. */
static void forks_part_beside_a_boundary(void **state) {
    (void)state;
    for (int is_paged = 0; is_paged < 2; is_paged++)
        for (size_t p = 0; p < 3; p++) {
            uint32_t page_tokens = page_sizes[p];
            scene s;
            open_scene(&s, is_paged, page_tokens, 6, 0);
            ramet_context *c[10] = {open_context(s.cache)};
            extend_with(c[0], 3 * page_tokens + 1, 1);
            rest(&s, c[0]);
            for (uint32_t i = 1; i < 10; i++) { /* 1 to 3 pages, less one token, exactly, and one more */
                uint32_t n = (i + 2) / 3 * page_tokens + (i - 1) % 3 - 1;
                c[i] = fork_at_rest(&s, c[0]);
                assert_ok(cut_at_rest(&s, c[i], n, error));
                step(&s, c[i], 2, (int32_t)i);
                if (is_paged && i % 2) spill(c[i]);
            }
            assert_all_lawful(&s, c, 10);
            check(s.cache);
            for (size_t i = 0; i < 10; i++) close_at_rest(&s, &c[i]);
            close_scene(&s);
        }
}

/* Shared pages, then pages of its own: each length from `most` down. */
static void cut_everywhere(const scene *s, ramet_context *parent, uint32_t most, uint32_t page_tokens) {
    for (uint32_t n = 0; n <= most; n++) {
        if (s->is_paged && n % 3 == 0) spill(parent);
        ramet_context *fork = fork_at_rest(s, parent);
        assert_ok(cut_at_rest(s, fork, n, error));
        uint64_t reachable, exclusive;
        ramet_context_count_pages(fork, &reachable, &exclusive);
        assert_int_equal(reachable, (n + page_tokens - 1) / page_tokens);
        assert_int_equal(exclusive, 0);
        check(s->cache);
        step(s, fork, 40, 2);
        assert_all_lawful(s, (ramet_context *[]){fork, parent}, 2);
        check(s->cache);
        if (s->is_paged && n % 2 == 0) spill(fork);
        assert_ok(cut_at_rest(s, fork, n, error)); /* now on pages of its own */
        assert_fails(RAMET_E_ARGUMENT, cut_at_rest(s, fork, n + 1, error));
        step(s, fork, 1, 3);
        assert_all_lawful(s, &fork, 1);
        check(s->cache);
        close_at_rest(s, &fork);
    }
}

static void a_context_is_cut_at_every_position(void **state) {
    (void)state;
    for (int is_paged = 0; is_paged < 2; is_paged++)
        for (size_t p = 0; p < 3; p++) {
            scene s;
            open_scene(&s, is_paged, page_sizes[p], 5, 0);
            ramet_context *parent = open_context(s.cache);
            uint32_t n = page_sizes[p] + page_sizes[p] / 2;
            extend_with(parent, n, 1);
            rest(&s, parent);
            cut_everywhere(&s, parent, n, page_sizes[p]);
            close_at_rest(&s, &parent);
            close_scene(&s);
        }
}

/* Each branch and its parent go on; every other one goes; the last of them, with pages of twelve others in its table, is
 * cut at every position. */
static void go_twelve_deep(bool is_paged, uint32_t page_tokens) {
    enum { DEPTH = 12 };
    scene s;
    open_scene(&s, is_paged, page_tokens, 12, 0);
    ramet_context *c[DEPTH + 1] = {open_context(s.cache)};
    extend_with(c[0], page_tokens + 5, 0);
    rest(&s, c[0]);
    for (size_t i = 1; i <= DEPTH; i++) {
        c[i] = fork_at_rest(&s, c[i - 1]);
        step(&s, c[i], page_tokens / 2 - 1, (int32_t)i);
        step(&s, c[i - 1], 5, 100 + (int32_t)i); /* the parent goes on as well */
        check(s.cache);
        assert_all_lawful(&s, c, i + 1);
    }
    for (size_t i = 0; i <= DEPTH; i += 2) close_at_rest(&s, &c[i]);
    check(s.cache);
    for (size_t i = 1; i <= DEPTH; i += 2) step(&s, c[i], 30, 200);
    assert_all_lawful(&s, c, DEPTH + 1);
    check(s.cache);
    if (page_tokens == 16) cut_everywhere(&s, c[DEPTH - 1], ramet_context_length(c[DEPTH - 1]), page_tokens);
    for (size_t i = 0; i <= DEPTH; i++) close_at_rest(&s, &c[i]);
    assert_int_equal(stats_of(s.cache).pages_live, 0);
    close_scene(&s);
}

static void forks_twelve_deep_all_written(void **state) {
    (void)state;
    for (int is_paged = 0; is_paged < 2; is_paged++)
        for (size_t p = 0; p < 3; p++) go_twelve_deep(is_paged, page_sizes[p]);
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
    assert_ok(retain(c[2], error));
    ramet_engine_stats before = stats_of(cache), after;
    assert_fails(RAMET_E_BUDGET, ramet_context_writable(c[0], 9, error));   /* one page more */
    assert_fails(RAMET_E_BUDGET, ramet_context_rewrite(c[1], 0, 1, error)); /* one copy */
    assert_fails(RAMET_E_BUDGET, retain(c[0], error));                      /* three pages in a tree of two */
    assert_fails(RAMET_E_WINDOW, ramet_context_writable(c[0], (1 << 21) - 39, error));
    assert_fails(RAMET_E_ARGUMENT, ramet_context_rewrite(c[0], 39, 2, error));
    assert_fails(RAMET_E_ARGUMENT, ramet_context_rewrite(c[0], 41, 0, error));
    assert_ok(ramet_context_rewrite(c[0], 40, 0, error));
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

static void without_a_pager_nothing_is_spilled(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 10, 0);
    ramet_context *context = leave_context(cache, 100, 1);
    assert_fails(RAMET_E_ARGUMENT, try_spill(context, error));
    assert_false(ramet_context_is_spilled(context));
    assert_lawful(context);
    close_left(&context);
    ramet_cache_destroy(&cache);
}

/* By hand, and back, where another one has taken the room meanwhile. */
static void a_spilled_context_comes_back(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_paged_cache(&pager, options_of(16, 10, 0));
    ramet_context *context = leave_context(cache, 100, 1);
    spill(context);
    assert_true(ramet_context_is_spilled(context));
    assert_int_equal(stats_of(cache).memory_bytes, 0);
    assert_int_equal(stats_of(cache).spilled_bytes, 7 * 128 + ROW_BYTES);
    assert_int_equal(stats_of(cache).pages_live, 7);
    assert_int_equal(ramet_context_length(context), 100);
    assert_true(ramet_context_has_logits(context));
    check(cache);
    spill(context); /* there is nothing more to write */
    assert_int_equal(pager.written.n, 8);

    ramet_context *hog = open_context(cache);
    extend_with(hog, 64, 2);
    assert_ok(ramet_context_enter(context, error));
    assert_fails(RAMET_E_BUDGET, ramet_context_use(context, error)); /* 7 and 4 pages are more than 10, and 4 in use */
    assert_int_equal(ramet_context_length(context), 100);
    assert_true(ramet_context_is_spilled(context));
    check(cache);
    ramet_context_destroy(&hog);
    assert_ok(ramet_context_use(context, error));
    assert_false(ramet_context_is_spilled(context));
    assert_int_equal(pager.n_kept, 0);
    assert_true(is_lawful(context));
    check(cache);
    ramet_context_destroy(&context);
    close_paged_cache(&pager, &cache);
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
    assert_ok(retain(c[0], error));
    c[1] = fork_of(c[0]);
    uint64_t n_nodes = cache->nodes.n_live, n_pages = stats_of(cache).pages_live;
    assert_ok(ramet_context_writable(c[1], 1, error)); /* one page, and a path of three nodes to it */
    assert_int_equal(stats_of(cache).pages_live, n_pages + 1);
    assert_true(cache->nodes.n_live <= n_nodes + 4);
    ramet_context_commit(c[1], tokens, 1);
    assert_int_equal(ramet_context_common_prefix(c[1], tokens, MILLION), MILLION);
    tokens[MILLION - 3] ^= 1;
    uint32_t matched;
    assert_ok(ramet_tree_match(cache, NULL, tokens, MILLION, &c[2], &matched, error));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_27_lengths_around_page_boundaries),
        cmocka_unit_test(forks_part_beside_a_boundary),
        cmocka_unit_test(a_context_is_cut_at_every_position),
        cmocka_unit_test(forks_twelve_deep_all_written),
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(without_a_pager_nothing_is_spilled),
        cmocka_unit_test(a_spilled_context_comes_back),
        cmocka_unit_test(a_fork_of_a_million_positions_costs_the_same),
        cmocka_unit_test(tables_grow_and_shrink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
