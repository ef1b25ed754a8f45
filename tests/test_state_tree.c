/* test_state_tree.c - the prefix tree: what matches, which entry, which logits, what is evicted, and that no
 * conversation ever sees a position of another one. */
#include "test_state_fixture.h"

static uint32_t match(ramet_cache *cache, const int32_t *tokens, uint32_t n, ramet_context **out) {
    uint32_t matched;
    assert_ok(ramet_tree_match(cache, tokens, n, out, &matched, error));
    assert_int_equal(ramet_context_length(*out), matched);
    assert_true(is_lawful(*out));
    return matched;
}

/* Matches and closes again: for what it does to the order of use. */
static uint32_t touch(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    ramet_context *context;
    uint32_t matched = match(cache, tokens, n, &context);
    ramet_context_destroy(&context);
    return matched;
}

static void keep(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    ramet_context *context = open_context(cache);
    extend(context, tokens, n);
    assert_ok(ramet_tree_retain(context, error));
    ramet_context_destroy(&context);
    check(cache);
}

/* The entries, oldest first, each as its tokens; entries end with -1. */
typedef struct listing {
    int32_t tokens[200];
    size_t n;
} listing;

static void list_entry(void *user, const int32_t *tokens, uint32_t n) {
    listing *l = user;
    memcpy(l->tokens + l->n, tokens, n * sizeof *tokens);
    l->n += n;
    l->tokens[l->n++] = -1;
}

#define assert_entries(cache, ...)                                                                                     \
    do {                                                                                                               \
        const int32_t wanted_[] = {__VA_ARGS__};                                                                       \
        listing l_ = {.n = 0};                                                                                         \
        assert_ok(ramet_tree_each(cache, list_entry, &l_, error));                                                     \
        assert_int_equal(l_.n, sizeof wanted_ / sizeof *wanted_);                                                      \
        assert_memory_equal(l_.tokens, wanted_, sizeof wanted_);                                                       \
    } while (0)

static void entries_split_and_join_edges(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 100, 3); /* room for three entries of a page */
    keep(cache, (int32_t[]){1, 2, 3, 4}, 4);
    keep(cache, (int32_t[]){1, 2, 5}, 3); /* splits after 1 2 */
    keep(cache, (int32_t[]){1, 2}, 2);    /* ends at the node there */
    assert_entries(cache, 1, 2, 3, 4, -1, 1, 2, 5, -1, 1, 2, -1);
    assert_int_equal(touch(cache, (int32_t[]){1, 2, 3, 9}, 4), 3); /* in the middle of an edge */
    assert_entries(cache, 1, 2, 5, -1, 1, 2, -1, 1, 2, 3, 4, -1);
    keep(cache, (int32_t[]){-7}, 1); /* 1 2 5 goes, 1 2 keeps its node as an entry ends there */
    assert_entries(cache, 1, 2, -1, 1, 2, 3, 4, -1, -7, -1);
    keep(cache, (int32_t[]){-7, 8}, 2); /* 1 2 goes, and its edge joins 3 4 */
    assert_entries(cache, 1, 2, 3, 4, -1, -7, -1, -7, 8, -1);
    assert_int_equal(touch(cache, (int32_t[]){1, 2, 3, 4, 5}, 5), 4);
    assert_int_equal(touch(cache, (int32_t[]){-7, 9}, 2), 1);
    assert_entries(cache, -7, -1, 1, 2, 3, 4, -1, -7, 8,
                   -1); /* of the two that share -7 the more recent one was used */
    assert_int_equal(touch(cache, (int32_t[]){2, 1}, 2), 0);
    assert_int_equal(touch(cache, NULL, 0), 0);
    assert_entries(cache, -7, -1, 1, 2, 3, 4, -1, -7, 8, -1); /* a miss uses nothing */
    assert_int_equal(stats_of(cache).tree_evictions, 2);
    ramet_tree_clear(cache);
    assert_int_equal(stats_of(cache).pages_live, 0);
    assert_int_equal(stats_of(cache).tree_evictions, 2);
    check(cache);
    ramet_cache_destroy(&cache);
}

static void an_equal_entry_is_refreshed(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 100, 100);
    ramet_context *empty = open_context(cache), *context;
    assert_ok(ramet_tree_retain(empty, error)); /* nothing to keep */
    assert_int_equal(stats_of(cache).tree_entries, 0);
    ramet_context_destroy(&empty);

    ramet_context *mute = open_context(cache); /* has no logits */
    assert_ok(ramet_context_writable(mute, 2, error));
    write_positions(mute, 1, (int32_t[]){1, 2}, 2);
    ramet_context_commit(mute, (int32_t[]){1, 2}, 2);
    assert_ok(ramet_tree_retain(mute, error));
    ramet_context_destroy(&mute);
    assert_int_equal(match(cache, (int32_t[]){1, 2}, 2, &context), 2);
    assert_null(ramet_context_peek_logits(context));
    ramet_context_destroy(&context);

    keep(cache, (int32_t[]){3}, 1);
    keep(cache, (int32_t[]){1, 2}, 2);
    assert_entries(cache, 3, -1, 1, 2, -1);
    assert_int_equal(match(cache, (int32_t[]){1, 2}, 2, &context), 2);
    assert_non_null(ramet_context_peek_logits(context)); /* they came with the second one */
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

/* A prompt equal to, shorter than, or longer than what is kept. */
static void case_26_logits_are_of_exactly_that_length(void **state) {
    (void)state;
    enum { N = 3 * 16 + 5 };
    int32_t tokens[N + 4];
    for (int32_t i = 0; i < N + 4; i++) tokens[i] = i * i;
    ramet_cache *cache = open_cache(16, 100, 100);
    keep(cache, tokens, N);
    keep(cache, tokens, N + 4);
    for (uint32_t n = 0; n <= N + 4; n++) {
        ramet_context *context;
        assert_int_equal(match(cache, tokens, n, &context), n);
        assert_true(!ramet_context_peek_logits(context) == (n != N && n != N + 4));
        if (n < N) { /* the tail is computed, never skipped, and the entry does not notice */
            extend(context, tokens + n, N - n);
            assert_true(is_lawful(context));
        }
        ramet_context_destroy(&context);
        check(cache);
    }
    ramet_context *context;
    assert_int_equal(match(cache, tokens, N, &context), N);
    assert_ok(ramet_context_cut(context, N, error));
    assert_non_null(ramet_context_peek_logits(context));
    assert_ok(ramet_context_cut(context, N - 1, error));
    assert_null(ramet_context_peek_logits(context));
    extend(context, tokens + N - 1, 1);
    assert_true(is_lawful(context));
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

/* Tokens that any weak hash of them would confuse. */
static void case_35_tokens_are_compared(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 400, 400);
    int32_t base[40], other[40];
    for (int32_t i = 0; i < 40; i++) base[i] = 4 * i;
    keep(cache, base, 40);
    for (uint32_t at = 0; at < 40; at++)
        for (int bit = 0; bit < 32; bit += 5) { /* one bit of one token */
            memcpy(other, base, sizeof other);
            other[at] = (int32_t)((uint32_t)other[at] ^ UINT32_C(1) << bit);
            assert_int_equal(touch(cache, other, 40), at);
        }
    memcpy(other, base, sizeof other); /* the same set, the same sum, another order */
    other[20] = base[21];
    other[21] = base[20];
    assert_int_equal(touch(cache, other, 40), 20);
    keep(cache, other, 40);
    assert_int_equal(touch(cache, base + 1, 39), 0); /* the same tokens one position later */
    assert_int_equal(touch(cache, base, 40), 40);
    assert_int_equal(touch(cache, other, 40), 40);
    check(cache);
    ramet_cache_destroy(&cache);
}

/* evictable + held by contexts + free = all, whatever happens between a match and its admission. */
static void assert_pages_add_up(ramet_cache *cache) {
    const ramet_slab *slab = &cache->slab;
    uint32_t evictable = 0;
    for (uint32_t slot = 0; slot < slab->n_touched; slot++) {
        const ramet_counts *counts = &ramet_slab_page(slab, slot)->counts;
        evictable += counts->refcount > 0 && counts->holds[RAMET_BY_CONTEXTS] == 0;
    }
    assert_int_equal(evictable + slab->n_held[RAMET_BY_CONTEXTS] + (slab->n_slots - slab->n_live), slab->n_slots);
}

static void case_34_pressure_with_handles_on_leaf_and_inner_node(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 12, 12);
    int32_t tokens[48], fork[48];
    for (int32_t i = 0; i < 48; i++) tokens[i] = fork[i] = i;
    for (int32_t i = 16; i < 48; i++) fork[i] = -i;
    ramet_context *c[4] = {open_context(cache)};
    extend(c[0], tokens, 48);
    assert_ok(ramet_tree_retain(c[0], error));
    ramet_context_destroy(&c[0]);
    assert_int_equal(match(cache, fork, 48, &c[0]), 16); /* shares page 0 */
    extend(c[0], fork + 16, 32);
    assert_ok(ramet_tree_retain(c[0], error));
    ramet_context_destroy(&c[0]);
    assert_int_equal(stats_of(cache).pages_live, 5);

    assert_int_equal(match(cache, tokens, 48, &c[0]), 48); /* on a leaf */
    assert_int_equal(match(cache, tokens, 16, &c[1]), 16); /* on the inner node */
    c[2] = open_context(cache);
    assert_pages_add_up(cache);
    extend_with(c[2], 9 * 16, 1); /* 12 less the 3 that contexts hold: the entry that nobody has open goes */
    assert_int_equal(stats_of(cache).tree_entries, 1);
    assert_int_equal(stats_of(cache).tree_evictions, 1);
    assert_int_equal(stats_of(cache).pages_live, 12);
    assert_pages_add_up(cache);
    check(cache);
    assert_true(is_lawful(c[0]) && is_lawful(c[1]) && is_lawful(c[2]));

    c[3] = fork_of(c[0]); /* an admission that fails after its match */
    assert_fails(RAMET_E_BUDGET, ramet_context_writable(c[3], 1, error));
    ramet_context_destroy(&c[3]);
    assert_pages_add_up(cache);
    check(cache);
    close_contexts(c, 4);
    assert_int_equal(stats_of(cache).pages_live, 3); /* the entry's */
    ramet_tree_clear(cache);
    assert_int_equal(stats_of(cache).pages_live, 0);
    ramet_cache_destroy(&cache);
}

/* One entry alone over the budget; unique prompts without end; nested prefixes count their pages once. */
static void the_budget_of_the_tree_is_one(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 1000, 8);
    uint64_t budget = ramet_cache_get_options(cache)->tree_budget_bytes;
    ramet_context *context = open_context(cache);
    extend_with(context, 8 * 16 + 1, 1);
    extend_with(context, 16, 1);
    assert_fails(RAMET_E_BUDGET, ramet_tree_retain(context, error));
    ramet_context_destroy(&context);
    for (int32_t text = 0; text < 1000; text++) {
        context = open_context(cache);
        extend_with(context, 5 * 16, text);
        assert_ok(ramet_tree_retain(context, error));
        ramet_context_destroy(&context);
        assert_true(stats_of(cache).tree_bytes <= budget);
        assert_int_equal(stats_of(cache).tree_entries, 1);
        assert_int_equal(stats_of(cache).pages_live, 5);
    }
    ramet_tree_clear(cache);
    context = open_context(cache);
    for (int i = 0; i < 6; i++) { /* six nested entries on six pages */
        extend_with(context, 16, 1);
        assert_ok(ramet_tree_retain(context, error));
        check(cache);
    }
    assert_int_equal(stats_of(cache).tree_entries, 6);
    assert_int_equal(stats_of(cache).tree_pages, 6);
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_split_and_join_edges),
        cmocka_unit_test(an_equal_entry_is_refreshed),
        cmocka_unit_test(case_26_logits_are_of_exactly_that_length),
        cmocka_unit_test(case_35_tokens_are_compared),
        cmocka_unit_test(case_34_pressure_with_handles_on_leaf_and_inner_node),
        cmocka_unit_test(the_budget_of_the_tree_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
