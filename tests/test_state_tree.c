/* test_state_tree.c - the prefix tree: what matches, which entry, which tail, what is evicted and in which order, and that
 * no conversation ever sees a position of another one. */
#include "test_state_keep.h"

/* ---- edges, matches, tails ---- */

/* A page is 128 bytes, a row 16, so an entry of one page goes by its tokens that no other one has, per 144 bytes. */
static void entries_split_and_join_edges(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 100, 3); /* room for three entries of a page with a row */
    keep(cache, (int32_t[]){1, 2, 3, 4}, 4);
    keep(cache, (int32_t[]){1, 2, 5}, 3);   /* splits after 1 2 */
    keep_mute(cache, (int32_t[]){1, 2}, 2); /* ends at the node there; two others have its page, and it has no tail */
    assert_entries(cache, "1 2, 1 2 5, 1 2 3 4");
    assert_int_equal(touch(cache, (int32_t[]){1, 2, 3, 9}, 4), 3); /* in the middle of an edge */
    assert_int_equal(length_of_newest(cache), 4);
    assert_entries(cache, "1 2, 1 2 5, 1 2 3 4"); /* nothing was evicted yet, so use decides among equals alone */
    keep(cache, (int32_t[]){-7}, 1);              /* 1 2 goes, and its node stays where the others part */
    assert_entries(cache, "1 2 5, -7, 1 2 3 4");
    keep(cache, (int32_t[]){-7, 8}, 2); /* 1 2 5 goes, and the edge of 3 4 joins that of 1 2 */
    assert_entries(cache, "-7 8, 1 2 3 4, -7");
    assert_int_equal(touch(cache, (int32_t[]){1, 2, 3, 4, 5}, 5), 4);
    assert_int_equal(length_of_newest(cache), 4);
    assert_int_equal(touch(cache, (int32_t[]){-7, 9}, 2), 1);
    assert_int_equal(length_of_newest(cache), 2); /* of the two that share -7 the more recent one was used */
    assert_entries(cache, "-7 8, 1 2 3 4, -7");
    assert_int_equal(touch(cache, (int32_t[]){2, 1}, 2), 0);
    assert_int_equal(touch(cache, NULL, 0), 0);
    assert_int_equal(length_of_newest(cache), 2); /* a miss uses nothing */
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
    assert_ok(retain(empty, error)); /* nothing to keep */
    assert_int_equal(stats_of(cache).tree_entries, 0);
    ramet_context_destroy(&empty);

    keep_mute(cache, (int32_t[]){1, 2}, 2);
    assert_int_equal(match(cache, (int32_t[]){1, 2}, 2, &context), 2);
    assert_false(ramet_context_has_logits(context));
    ramet_context_destroy(&context);

    keep(cache, (int32_t[]){3, 4}, 2);
    assert_entries(cache, "3 4, 1 2"); /* which has no row to weigh */
    keep(cache, (int32_t[]){1, 2}, 2);
    assert_entries(cache, "3 4, 1 2");
    assert_int_equal(match(cache, (int32_t[]){1, 2}, 2, &context), 2);
    assert_non_null(ramet_context_peek_logits(context)); /* they came with the second one */
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

/* Logits from one context, a state from another. */
static void a_refresh_takes_each_tail_block_for_itself(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 100, 100);
    options.state_bytes = 40;
    ramet_cache *cache = open_cache_of(&options);
    const int32_t tokens[] = {1, 2, 3};
    ramet_context *whole = open_with(cache, tokens, 3), *hit;
    for (int part = 0; part < 3; part++) {
        ramet_context *context = open_mute(cache, tokens, 3); /* 0: no tail; 1: a state alone; 2: logits alone */
        uint64_t h = law_of(context, 3);
        assert_ok(ramet_context_reserve_tail(context, error));
        if (part == 1) {
            make_state(h, ramet_context_state_writable(context), 40);
            ramet_context_state_install(context);
        }
        if (part == 2) make_logits(h, ramet_context_logits_writable(context));
        keep_context(context, NULL);
        assert_int_equal(match(cache, tokens, 3, &hit), 3);
        assert_int_equal(ramet_context_has_state(hit), part >= 1);
        assert_int_equal(ramet_context_has_logits(hit), part == 2);
        ramet_context_destroy(&hit);
        assert_int_equal(stats_of(cache).tree_pages, 1); /* of the first one */
    }
    const ramet_entry *entry = cache->tree.heap[0];
    ramet_block *row = entry->tail[0], *block = entry->tail[1];
    assert_ok(retain(whole, error)); /* lacks nothing: takes nothing */
    assert_ptr_equal(cache->tree.heap[0]->tail[0], row);
    assert_ptr_equal(cache->tree.heap[0]->tail[1], block);
    assert_int_equal(stats_of(cache).tree_bytes, 128 + ROW_BYTES + 40);
    check(cache);
    ramet_context_destroy(&whole);
    ramet_cache_destroy(&cache);
}

/* A row that it takes may push the tree over its budget: then others go, whatever they are worth. */
static void a_refreshed_entry_is_not_the_one_to_go(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 100, 0);
    options.tree_budget_bytes = 2 * 128 + ROW_BYTES;
    ramet_cache *cache = open_cache_of(&options);
    keep_mute(cache, (int32_t[]){1}, 1);
    keep(cache, text(2, 16), 16);
    assert_entries(cache, "1, 2..16");
    keep(cache, (int32_t[]){1}, 1);
    assert_entries(cache, "1");
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
        assert_int_equal(ramet_context_has_logits(context), n == N || n == N + 4);
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

/* evictable + held by contexts = all, of each kind, whatever happens between a match and its admission. */
static void assert_blocks_add_up(ramet_cache *cache) {
    for (int kind = 0; kind < RAMET_KINDS; kind++) {
        const ramet_blocks *blocks = &cache->blocks[kind];
        uint32_t evictable = 0;
        for (uint32_t id = 0; id < blocks->n_touched; id++) {
            const ramet_counts *counts = &ramet_blocks_at(blocks, id)->counts;
            evictable += counts->refcount > 0 && counts->holds[RAMET_BY_CONTEXTS] == 0;
        }
        assert_int_equal(evictable + blocks->n_held[RAMET_BY_CONTEXTS], blocks->n_live);
    }
    assert_true(stats_of(cache).memory_bytes <= cache->options.budget_bytes);
}

static void case_34_pressure_with_handles_on_leaf_and_inner_node(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 12, 12);
    int32_t tokens[48], fork[48];
    for (int32_t i = 0; i < 48; i++) tokens[i] = fork[i] = i;
    for (int32_t i = 16; i < 48; i++) fork[i] = -i;
    ramet_context *c[4] = {open_context(cache)};
    extend(c[0], tokens, 48);
    assert_ok(retain(c[0], error));
    ramet_context_destroy(&c[0]);
    assert_int_equal(match(cache, fork, 48, &c[0]), 16); /* shares page 0 */
    extend(c[0], fork + 16, 32);
    assert_ok(retain(c[0], error));
    ramet_context_destroy(&c[0]);
    assert_int_equal(stats_of(cache).pages_live, 5);

    assert_int_equal(match(cache, tokens, 48, &c[0]), 48); /* on a leaf */
    assert_int_equal(match(cache, tokens, 16, &c[1]), 16); /* on the inner node */
    c[2] = open_context(cache);
    assert_blocks_add_up(cache);
    extend_with(c[2], 9 * 16, 1); /* 12 less the 3 that contexts hold: the entry that nobody has open goes */
    assert_int_equal(stats_of(cache).tree_entries, 1);
    assert_int_equal(stats_of(cache).tree_evictions, 1);
    assert_int_equal(stats_of(cache).pages_live, 12);
    assert_blocks_add_up(cache);
    check(cache);
    assert_true(is_lawful(c[0]) && is_lawful(c[1]) && is_lawful(c[2]));

    c[3] = fork_of(c[0]); /* an admission that fails after its match */
    assert_fails(RAMET_E_BUDGET, ramet_context_writable(c[3], 1, error));
    ramet_context_destroy(&c[3]);
    assert_blocks_add_up(cache);
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
    assert_fails(RAMET_E_BUDGET, retain(context, error));
    ramet_context_destroy(&context);
    for (int32_t text = 0; text < 1000; text++) {
        context = open_context(cache);
        extend_with(context, 5 * 16, text);
        assert_ok(retain(context, error));
        ramet_context_destroy(&context);
        assert_true(stats_of(cache).tree_bytes <= budget);
        assert_int_equal(stats_of(cache).tree_entries, 1);
        assert_int_equal(stats_of(cache).pages_live, 5);
    }
    ramet_tree_clear(cache);
    context = open_context(cache);
    for (int i = 0; i < 6; i++) { /* six nested entries on six pages */
        extend_with(context, 16, 1);
        assert_ok(retain(context, error));
        check(cache);
    }
    assert_int_equal(stats_of(cache).tree_entries, 6);
    assert_int_equal(stats_of(cache).tree_pages, 6);
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

/* ---- which entry goes ---- */

/* A short one with a dear row goes before a long one, though it was used last: less is lost per byte. */
static void a_short_entry_with_a_dear_row_goes_first(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 200, 0);
    options.n_vocab = 512; /* a row of 2 KiB, sixteen pages */
    options.budget_bytes *= 2;
    options.tree_budget_bytes = 20 * 128 + 3 * 2048;
    ramet_cache *cache = open_cache_of(&options);
    keep(cache, text(1, 160), 160); /* 160 tokens per 3328 bytes */
    keep(cache, text(2, 16), 16);   /* 16 per 2176 */
    keep(cache, text(3, 48), 48);   /* 48 per 2432 */
    assert_entries(cache, "2..16, 3..48, 1..160");
    keep(cache, text(4, 17), 17);                  /* two pages and a row: one must go */
    assert_entries(cache, "4..17, 3..48, 1..160"); /* 17 per 2304 on a base of 16 per 2176 is less than 48 per 2432 */
    ramet_cache_destroy(&cache);
}

/* All pages of an inner entry are in one below it: its loss costs a step, for the bytes of its tail. */
static void an_inner_entry_is_worth_its_tail(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 100, 100);
    ramet_context *context = open_with(cache, text(1, 20), 20);
    assert_ok(retain(context, error)); /* 20 tokens per two pages and a row, 272 bytes */
    keep(cache, text(2, 9), 9);        /* 9 per 144, which is 1 per 16 */
    assert_entries(cache, "2..9, 1..20");
    extend_with(context, 15, 3);
    assert_ok(retain(context, error));           /* 15 more per 272 bytes, as its first page alone is the other one's */
    assert_entries(cache, "1..35, 1..20, 2..9"); /* 1 per 16, too, and less recently used */
    assert_int_equal(touch(cache, text(2, 9), 9), 9);
    evict(cache);
    assert_entries(cache, "2..9, 1..20"); /* a leaf again, with 20 tokens to lose */
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

static void equals_go_in_the_order_of_use(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 100, 3);
    for (int32_t i = 1; i <= 3; i++) keep(cache, text(i, 16), 16);
    assert_entries(cache, "1..16, 2..16, 3..16");
    touch(cache, text(1, 16), 16);
    assert_entries(cache, "2..16, 3..16, 1..16");
    keep(cache, text(4, 16), 16);
    assert_entries(cache, "3..16, 1..16, 4..16");
    touch(cache, text(3, 5), 5); /* a part of it is a use, too */
    assert_entries(cache, "1..16, 4..16, 3..16");
    keep(cache, text(4, 16), 16); /* refreshed */
    assert_entries(cache, "1..16, 3..16, 4..16");
    ramet_cache_destroy(&cache);
}

/* The dear one (16 tokens per 128 bytes, where others have 144) outlives a round of others, and not the next one. */
static void a_dear_entry_stays_longer_and_not_for_ever(void **state) {
    (void)state;
    for (int is_touched = 0; is_touched < 2; is_touched++) {
        ramet_cache *cache = open_cache(16, 100, 3);
        keep_mute(cache, text(9, 16), 16);
        keep(cache, text(1, 16), 16);
        keep(cache, text(2, 16), 16);
        assert_entries(cache, "1..16, 2..16, 9..16");
        keep(cache, text(3, 16), 16);
        assert_entries(cache, "2..16, 9..16, 3..16");
        if (is_touched) touch(cache, text(9, 16), 16);
        keep(cache, text(4, 16), 16);
        assert_entries(cache, is_touched ? "3..16, 4..16, 9..16" : "9..16, 3..16, 4..16");
        keep(cache, text(5, 16), 16);
        assert_entries(cache, is_touched ? "4..16, 9..16, 5..16" : "3..16, 4..16, 5..16");
        ramet_cache_destroy(&cache);
    }
}

/* An entry that has become an inner one is worth less than what has gone already: that takes nothing from those to come. */
static void inflation_never_falls(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 100, 0);
    options.tree_budget_bytes = 3 * 128;
    ramet_cache *cache = open_cache_of(&options);
    keep_mute(cache, text(1, 4), 4); /* a page each, and its tokens per 128 bytes */
    keep_mute(cache, text(2, 16), 16);
    keep_mute(cache, text(3, 8), 8);
    keep_mute(cache, text(4, 8), 8); /* 4 per 128 is the base from here on */
    assert_entries(cache, "3..8, 4..8, 2..16");
    keep_mute(cache, text(3, 12), 12); /* its prefix goes, for nothing; and it has 12 on that base, as 2 has */
    assert_entries(cache, "4..8, 2..16, 3..12");
    ramet_cache_destroy(&cache);
}

/* All memory is a context's, and its entry's: what it would have to copy is its own when the entry goes. */
static void an_entry_gives_way_to_its_own_context(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 3, 10);
    options.budget_bytes = 3 * 128 + ROW_BYTES;
    ramet_cache *cache = open_cache_of(&options);
    ramet_context *context = open_context(cache);
    extend_with(context, 40, 1);
    assert_ok(retain(context, error));
    assert_ok(ramet_context_writable(context, 1, error)); /* the third page is shared, and there is no fourth */
    assert_int_equal(stats_of(cache).tree_entries, 0);
    assert_int_equal(stats_of(cache).pages_copied, 0);
    assert_ok(retain(context, error));
    extend_with(context, 1, 2); /* nor is there another row */
    assert_int_equal(stats_of(cache).tree_evictions, 2);
    assert_ok(retain(context, error));
    ramet_context *fork = fork_of(context); /* but what a fork has does not come free */
    assert_fails(RAMET_E_BUDGET, ramet_context_writable(context, 1, error));
    assert_fails(RAMET_E_BUDGET, ramet_context_reserve_tail(context, error));
    assert_entries(cache, "1000..41");
    assert_true(is_lawful(context) && is_lawful(fork));
    ramet_context_destroy(&context);
    ramet_context_destroy(&fork);
    ramet_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_split_and_join_edges),
        cmocka_unit_test(an_equal_entry_is_refreshed),
        cmocka_unit_test(a_refresh_takes_each_tail_block_for_itself),
        cmocka_unit_test(a_refreshed_entry_is_not_the_one_to_go),
        cmocka_unit_test(case_26_logits_are_of_exactly_that_length),
        cmocka_unit_test(case_35_tokens_are_compared),
        cmocka_unit_test(case_34_pressure_with_handles_on_leaf_and_inner_node),
        cmocka_unit_test(the_budget_of_the_tree_is_one),
        cmocka_unit_test(a_short_entry_with_a_dear_row_goes_first),
        cmocka_unit_test(an_inner_entry_is_worth_its_tail),
        cmocka_unit_test(equals_go_in_the_order_of_use),
        cmocka_unit_test(a_dear_entry_stays_longer_and_not_for_ever),
        cmocka_unit_test(inflation_never_falls),
        cmocka_unit_test(an_entry_gives_way_to_its_own_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
