/* test_state_mallocs.c - what forks, steps, matches and uses take from the allocator: nothing. */
#include "test_state_pager.h" /* first: it says what of the system it needs */

#include "test_state_mallocs.h"

static void setup_or_skip(void) {
    if (!mallocs_can_be_counted) skip();
}

static ramet_context *context_of(ramet_cache *cache, uint32_t n) {
    ramet_context *context = open_context(cache);
    static int32_t tokens[1 << 20];
    assert_ok(ramet_context_writable(context, n, error));
    ramet_context_commit(context, tokens, n);
    assert_non_null(ramet_context_logits_writable(context));
    return context;
}

static void the_count_sees_a_malloc(void **state) {
    (void)state;
    setup_or_skip();
    take_mallocs();
    free(ramet_alloc(1, 1));
    assert_int_equal(take_mallocs(), 1);
}

/* The first ones too, and more of them than were ever open. */
static void forks_take_nothing(void **state) {
    (void)state;
    setup_or_skip();
    enum { FORKS = 10000 };
    static ramet_context *forks[FORKS];
    static const uint32_t lengths[] = {2048, 1 << 20};
    for (size_t i = 0; i < 2; i++) {
        ramet_cache *cache = open_cache(64, (1 << 20) / 64 + 1, 0);
        ramet_context *context = context_of(cache, lengths[i]);
        ramet_engine_stats before = stats_of(cache);
        take_mallocs();
        for (size_t k = 0; k < FORKS; k++) forks[k] = fork_of(context);
        assert_int_equal(take_mallocs(), 0);
        assert_int_equal(stats_of(cache).pages_allocated, before.pages_allocated);
        assert_int_equal(stats_of(cache).pages_copied, 0);
        assert_int_equal(stats_of(cache).contexts, FORKS + 1);
        check(cache);
        take_mallocs();
        for (size_t k = 0; k < FORKS; k++) ramet_context_destroy(&forks[k]);
        assert_int_equal(take_mallocs(), 0);
        check(cache);
        ramet_context_destroy(&context);
        ramet_cache_destroy(&cache);
    }
}

static void a_step_takes_nothing_but_a_table_node_for_64_pages(void **state) {
    (void)state;
    setup_or_skip();
    ramet_cache *cache = open_cache(16, 1000, 0);
    ramet_context *context = context_of(cache, 20);
    int32_t token = 7;
    uint64_t n_nodes = 0;
    take_mallocs();
    for (uint32_t i = 0; i < 4 * 64 * 16; i++) {
        assert_ok(ramet_context_reserve_tail(context, error));
        assert_ok(ramet_context_writable(context, 1, error));
        ramet_context_commit(context, &token, 1);
        assert_non_null(ramet_context_logits_writable(context));
        n_nodes += take_mallocs();
    }
    assert_int_equal(cache->nodes.n_live, 6); /* five leaves and a root: 258 pages */
    assert_true(n_nodes <= cache->nodes.n_live + cache->nodes.n_spare);
    assert_true(cache->nodes.n_spare <= 2);
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

static void a_match_takes_nothing(void **state) {
    (void)state;
    setup_or_skip();
    ramet_cache *cache = open_cache(16, 1000, 500);
    ramet_context *context = open_context(cache), *hit;
    extend_with(context, 1000, 1);
    assert_ok(retain(context, error));
    int32_t tokens[1000];
    uint32_t matched;
    ramet_context_read_tokens(context, 0, 1000, tokens);
    for (uint32_t n = 1000; n > 0; n -= 100) { /* the first fills the pool of nodes */
        take_mallocs();
        assert_ok(ramet_tree_match(cache, NULL, tokens, n - 1, &hit, &matched, error));
        if (n < 1000) assert_int_equal(take_mallocs(), 0);
        assert_int_equal(matched, n - 1);
        ramet_context_destroy(&hit);
    }
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

/* Into and out of use, with a pager, everything in memory; then by a pager that moves it: what it takes is its own. */
static void a_use_takes_nothing(void **state) {
    (void)state;
    setup_or_skip();
    test_pager pager;
    ramet_cache *cache = open_paged_cache(&pager, options_of(16, 1000, 0));
    ramet_context *context = context_of(cache, 1000);
    make_logits(1, ramet_context_logits_writable(context));
    ramet_context_leave(context);
    take_mallocs();
    for (int i = 0; i < 10; i++) {
        assert_ok(ramet_context_enter(context, error));
        assert_ok(ramet_context_use(context, error));
        ramet_context_leave(context);
    }
    assert_int_equal(take_mallocs(), 0);
    spill(context);
    assert_int_equal(take_mallocs(), 64); /* the pager's copies: 63 pages and a row */
    enter_and_use(context);
    assert_int_equal(take_mallocs(), 0);
    ramet_context_destroy(&context);
    close_paged_cache(&pager, &cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_count_sees_a_malloc),
        cmocka_unit_test(forks_take_nothing),
        cmocka_unit_test(a_step_takes_nothing_but_a_table_node_for_64_pages),
        cmocka_unit_test(a_match_takes_nothing),
        cmocka_unit_test(a_use_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
