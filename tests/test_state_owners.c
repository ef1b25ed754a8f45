/* test_state_owners.c - the prefix tree: whose entries are found by whom, which never go, and what is kept for nobody. */
#include "test_state_keep.h"

/* ---- owners ---- */

static const ramet_retain by_ann = {.owner = "ann"}, by_bob = {.owner = "bob"}, by_nobody = {.owner = NULL};

static void k12_an_owner_is_never_matched_by_another(void **state) {
    (void)state;
    static const char *const others[] = {NULL, "bob", "an", "anna", "", "Ann"};
    ramet_cache *cache = open_cache(16, 100, 100);
    const int32_t *tokens = text(1, 40), *shared = text(2, 40);
    keep_as(cache, &by_ann, tokens, 40);
    keep_as(cache, &by_nobody, shared, 40);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (uint32_t n = 1; n <= 40; n++) {
            assert_int_equal(touch_as(cache, others[i], tokens, n), 0);
            assert_int_equal(touch_as(cache, others[i], shared, n), n);
        }
    assert_int_equal(touch_as(cache, "ann", tokens, 40), 40);
    assert_int_equal(touch_as(cache, "ann", tokens, 17), 17);
    assert_int_equal(touch_as(cache, "ann", shared, 17), 17);

    /* What others have kept too is theirs, up to where ann's goes on. */
    keep_as(cache, &by_bob, tokens, 24);
    for (uint32_t n = 1; n <= 40; n++) {
        assert_int_equal(touch_as(cache, "bob", tokens, n), n < 24 ? n : 24);
        assert_int_equal(touch_as(cache, NULL, tokens, n), 0);
    }
    assert_int_equal(stats_of(cache).tree_entries, 3);
    ramet_cache_destroy(&cache);
}

static const ramet_block *first_page(const ramet_context *context) {
    return ramet_table_page(&context->table, 0);
}

static void the_longer_match_wins_and_then_the_owners(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 100, 100);
    const int32_t *tokens = text(1, 50);
    ramet_context *own = open_with(cache, tokens, 30), *shared = open_with(cache, tokens, 40), *hit;
    assert_ok(ramet_tree_retain(own, &by_ann, error));
    assert_ok(ramet_tree_retain(shared, &by_nobody, error));
    for (uint32_t n = 1; n <= 50; n++) {
        uint32_t matched = match_as(cache, "ann", tokens, n, &hit);
        assert_int_equal(matched, n < 40 ? n : 40);
        assert_ptr_equal(first_page(hit), first_page(n <= 30 ? own : shared));
        assert_int_equal(ramet_context_has_logits(hit), matched == 30 || matched == 40);
        ramet_context_destroy(&hit);
        assert_int_equal(length_of_newest(cache), n <= 30 ? 30 : 40); /* that one was used */
    }
    match_as(cache, "bob", tokens, 30, &hit);
    assert_ptr_equal(first_page(hit), first_page(shared));
    ramet_context_destroy(&hit);
    ramet_context_destroy(&own);
    ramet_context_destroy(&shared);
    check(cache);
    ramet_cache_destroy(&cache);
}

/* Each has an entry of his own, and its worth is among his own: another's copy does not make it an inner one. */
static void the_same_tokens_of_two_owners_are_two_entries(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 100, 100);
    ramet_context *context = open_with(cache, text(1, 16), 16);
    assert_ok(ramet_tree_retain(context, &by_ann, error));
    assert_ok(ramet_tree_retain(context, &by_bob, error));
    assert_ok(ramet_tree_retain(context, &by_nobody, error));
    assert_int_equal(stats_of(cache).tree_pages, 1); /* of one page and row */
    assert_int_equal(stats_of(cache).tree_bytes, 128 + ROW_BYTES);
    assert_entries(cache, "ann:1..16, bob:1..16, 1..16");
    assert_ok(ramet_tree_retain(context, &by_ann, error));
    assert_entries(cache, "bob:1..16, 1..16, ann:1..16");
    extend_with(context, 16, 7);
    assert_ok(ramet_tree_retain(context, &by_bob, error));
    assert_entries(cache, "bob:1..16, 1..16, ann:1..16, bob:1..32"); /* the first of them is an inner one */
    ramet_context_destroy(&context);
    for (int i = 0; i < 2; i++) evict(cache);
    assert_entries(cache, "ann:1..16, bob:1..32");
    assert_int_equal(touch_as(cache, "bob", text(1, 16), 16), 16);
    assert_int_equal(touch_as(cache, "ann", text(1, 16), 16), 16);
    assert_int_equal(touch(cache, text(1, 16), 16), 0);
    ramet_cache_destroy(&cache);
}

/* Owners come and go with their entries. */
static void a_hundred_owners(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 200, 30);
    char name[16];
    for (int32_t i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "owner-%d", (int)(i * 37 % 100));
        keep_as(cache, &(ramet_retain){.owner = name}, text(5, 16), 16);
        memset(name, 'x', sizeof name - 1); /* it was copied */
        assert_int_equal(cache->tree.n_zones, i < 30 ? i + 1 : 30);
    }
    for (int32_t i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "owner-%d", (int)(i * 37 % 100));
        assert_int_equal(touch_as(cache, name, text(5, 16), 16), i < 70 ? 0 : 16);
    }
    ramet_tree_clear(cache);
    assert_int_equal(cache->tree.n_zones, 0);
    check(cache);
    ramet_cache_destroy(&cache);
}

/* ---- pins ---- */

/* Three entries of a page and a row, of which two may be pinned. */
static ramet_cache *open_pin_cache(void) {
    ramet_cache_options options = options_of(16, 100, 3);
    options.pin_budget_bytes = 2 * (128 + ROW_BYTES);
    return open_cache_of(&options);
}

static const ramet_retain pinned = {.owner = NULL, .is_pinned = true}, pinned_by_ann = {"ann", true};

static void a_pinned_entry_never_goes_by_itself(void **state) {
    (void)state;
    ramet_cache *cache = open_pin_cache();
    keep_as(cache, &pinned_by_ann, (int32_t[]){1}, 1); /* worth next to nothing */
    keep_as(cache, &pinned, (int32_t[]){2}, 1);
    for (int32_t i = 10; i < 110; i++) keep(cache, text(i, 16), 16);
    assert_entries(cache, "109..16, !ann:1, !2");
    assert_int_equal(stats_of(cache).tree_pinned, 2);
    assert_int_equal(stats_of(cache).tree_evictions, 99);
    assert_int_equal(touch_as(cache, "ann", (int32_t[]){1}, 1), 1);
    assert_entries(cache, "109..16, !2, !ann:1");
    evict(cache);
    ramet_cache_lock(cache);
    assert_false(ramet_tree_evict(cache));
    ramet_cache_unlock(cache);
    assert_entries(cache, "!2, !ann:1");
    ramet_tree_clear(cache);
    assert_entries(cache, "");
    assert_int_equal(stats_of(cache).tree_pinned, 0);
    assert_int_equal(stats_of(cache).pages_live, 0);
    keep_as(cache, &pinned, (int32_t[]){3}, 1); /* and the budget of pins is whole again */
    keep_as(cache, &pinned, (int32_t[]){4}, 1);
    ramet_cache_destroy(&cache);
}

static void pins_have_a_budget(void **state) {
    (void)state;
    ramet_cache *cache = open_pin_cache();
    keep_as(cache, &pinned_by_ann, text(1, 16), 16);
    keep_as(cache, &pinned, text(2, 16), 16);
    keep_mute(cache, text(3, 16), 16);
    keep_as(cache, &pinned, text(2, 16), 16); /* is pinned: takes nothing */
    ramet_engine_stats before = stats_of(cache), after;
    uint64_t clock = cache->tree.clock;
    ramet_context *third = open_with(cache, text(3, 16), 16), *fourth = open_with(cache, text(4, 16), 16);
    assert_fails(RAMET_E_BUDGET, ramet_tree_retain(fourth, &pinned, error));
    assert_fails(RAMET_E_BUDGET, ramet_tree_retain(third, &pinned, error)); /* nor is it refreshed */
    assert_int_equal(cache->tree.clock, clock);
    extend_with(fourth, 1, 4); /* two pages and a row where one is left beside the pinned ones */
    assert_fails(RAMET_E_BUDGET, ramet_tree_retain(fourth, &by_nobody, error));
    ramet_context_destroy(&third);
    ramet_context_destroy(&fourth);
    after = stats_of(cache);
    after.pages_allocated = before.pages_allocated, after.pages_freed = before.pages_freed;
    assert_memory_equal(&before, &after, sizeof after);
    assert_entries(cache, "3..16, !ann:1..16, !2..16");
    assert_int_equal(match(cache, text(3, 16), 16, &third), 16);
    assert_false(ramet_context_has_logits(third));
    ramet_context_destroy(&third);
    ramet_cache_destroy(&cache);
}

static void an_entry_is_pinned_and_unpinned(void **state) {
    (void)state;
    ramet_cache *cache = open_pin_cache();
    const int32_t *one = text(1, 16), *two = text(2, 16);
    keep_as(cache, &by_ann, one, 16);
    keep(cache, two, 16);
    keep_as(cache, &pinned_by_ann, one, 16); /* a refresh that pins */
    assert_entries(cache, "2..16, !ann:1..16");
    keep_as(cache, &by_ann, one, 16); /* one that does not ask leaves it pinned */
    assert_entries(cache, "2..16, !ann:1..16");
    assert_fails(RAMET_E_NOT_FOUND, ramet_tree_unpin(cache, NULL, one, 16, error));
    assert_fails(RAMET_E_NOT_FOUND, ramet_tree_unpin(cache, "bob", one, 16, error));
    assert_fails(RAMET_E_NOT_FOUND, ramet_tree_unpin(cache, "ann", one, 15, error));
    assert_fails(RAMET_E_NOT_FOUND, ramet_tree_unpin(cache, "ann", text(1, 17), 17, error));
    assert_fails(RAMET_E_NOT_FOUND, ramet_tree_unpin(cache, "ann", NULL, 0, error));
    assert_fails(RAMET_E_NOT_FOUND, ramet_tree_unpin(cache, NULL, two, 16, error)); /* not pinned */
    for (int32_t i = 3; i < 6; i++) keep(cache, text(i, 16), 16);
    assert_entries(cache, "4..16, 5..16, !ann:1..16");
    assert_ok(ramet_tree_unpin(cache, "ann", one, 16, error));
    assert_entries(cache, "4..16, 5..16, ann:1..16"); /* on the base of now, though its last use was before theirs */
    assert_fails(RAMET_E_NOT_FOUND, ramet_tree_unpin(cache, "ann", one, 16, error));
    for (int32_t i = 6; i < 9; i++) keep(cache, text(i, 16), 16);
    assert_entries(cache, "6..16, 7..16, 8..16");
    keep_as(cache, &pinned, text(7, 16), 16);
    keep_as(cache, &pinned, text(8, 16), 16);
    assert_entries(cache, "6..16, !7..16, !8..16");
    ramet_cache_destroy(&cache);
}

/* A pinned one that takes a row takes it from the budget of pins. */
static void a_pinned_entry_is_refreshed(void **state) {
    (void)state;
    for (int fits = 0; fits < 2; fits++) {
        ramet_cache_options options = options_of(16, 100, 3);
        options.pin_budget_bytes = 2 * 128 + (fits ? ROW_BYTES : ROW_BYTES - 1);
        ramet_cache *cache = open_cache_of(&options);
        keep_context(open_mute(cache, text(1, 16), 16), &pinned);
        keep_context(open_mute(cache, text(2, 16), 16), &pinned);
        ramet_context *context = open_with(cache, text(1, 16), 16), *hit;
        assert_int_equal(retain(context, NULL), fits ? RAMET_OK : RAMET_E_BUDGET);
        ramet_context_destroy(&context);
        assert_entries(cache, fits ? "!2..16, !1..16" : "!1..16, !2..16");
        assert_int_equal(cache->tree.pinned_bytes, 2 * 128 + (fits ? ROW_BYTES : 0));
        assert_int_equal(match(cache, text(1, 16), 16, &hit), 16);
        assert_int_equal(ramet_context_has_logits(hit), fits);
        ramet_context_destroy(&hit);
        for (int32_t i = 1; i <= 2; i++) assert_ok(ramet_tree_unpin(cache, NULL, text(i, 16), 16, error));
        assert_int_equal(cache->tree.pinned_bytes, 0);
        check(cache);
        ramet_cache_destroy(&cache);
    }
}

/* Pinned entries count as what each would take alone. What was kept before they left no room is still refreshed. */
static void pins_leave_no_room_for_more(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 100, 0);
    options.tree_budget_bytes = options.pin_budget_bytes = 5 * 128;
    ramet_cache *cache = open_cache_of(&options);
    ramet_context *c[3] = {open_mute(cache, text(1, 48), 48)};
    for (uint32_t i = 1; i < 3; i++) {
        c[i] = fork_of(c[0]);
        assert_ok(ramet_context_cut(c[i], 48 - 16 * i, error));
    }
    assert_ok(retain(c[2], error));
    assert_ok(ramet_tree_retain(c[1], &pinned, error));
    assert_ok(ramet_tree_retain(c[0], &pinned, error)); /* two and three pages, of which there are three */
    assert_int_equal(stats_of(cache).tree_bytes, 3 * 128);
    assert_fails(RAMET_E_BUDGET, ramet_tree_retain(c[2], &pinned, error));
    uint64_t clock = cache->tree.clock;
    assert_ok(retain(c[2], error));
    assert_int_equal(cache->tree.clock, clock + 1);
    assert_fails(RAMET_E_BUDGET,
                 ramet_tree_retain(c[2], &by_ann, error)); /* a new one, though of pages that are kept */
    assert_entries(cache, "1..16, !1..32, !1..48");
    close_contexts(c, 3);
    ramet_cache_destroy(&cache);
}

/* What is pinned is no more to be had than what a context holds. */
static void pinned_pages_are_not_there_for_contexts(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 4, 4);
    options.pin_budget_bytes = options.tree_budget_bytes;
    ramet_cache *cache = open_cache_of(&options);
    keep_as(cache, &pinned, text(1, 32), 32);
    keep(cache, text(2, 16), 16);
    ramet_context *context = open_context(cache);
    assert_fails(RAMET_E_BUDGET, try_extend(context, text(3, 48), 48, error));
    assert_entries(cache, "2..16, !1..32"); /* for it would not help */
    extend(context, text(3, 32), 32);
    assert_entries(cache, "!1..32");
    assert_fails(RAMET_E_BUDGET, try_extend(context, text(3, 1), 1, error));
    assert_ok(ramet_tree_unpin(cache, NULL, text(1, 32), 32, error));
    extend(context, text(3, 1), 1);
    assert_entries(cache, "");
    assert_true(is_lawful(context));
    check(cache);
    ramet_context_destroy(&context);
    ramet_cache_destroy(&cache);
}

/* What comes from something rounded is nobody's prefix, nor are its forks; nothing of it is left after a cut to nothing. */
static void what_is_lossy_is_kept_for_nobody(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 20, 20);
    ramet_context *context = open_with(cache, text(1, 40), 40), *fork, *hit;
    keep(cache, text(2, 20), 20);
    ramet_context_mark_lossy(context);
    fork = fork_of(context);
    assert_true(ramet_context_is_lossy(fork));
    extend_with(fork, 3, 3);
    assert_fails(RAMET_E_UNSUPPORTED, retain(context, error));
    assert_fails(RAMET_E_UNSUPPORTED, retain(fork, error));
    assert_ok(ramet_context_cut(fork, 1, error));
    assert_fails(RAMET_E_UNSUPPORTED, retain(fork, error));
    assert_entries(cache, "2..20");
    assert_ok(ramet_context_cut(fork, 0, error));
    assert_false(ramet_context_is_lossy(fork));
    extend(fork, text(4, 20), 20);
    assert_ok(retain(fork, error));
    assert_int_equal(match(cache, text(2, 20), 20, &hit), 20);
    assert_false(ramet_context_is_lossy(hit));
    ramet_context_destroy(&context);
    context = open_context(cache); /* in the slot that a lossy one has left */
    assert_false(ramet_context_is_lossy(context));
    ramet_context *all[] = {context, fork, hit};
    close_contexts(all, 3);
    ramet_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k12_an_owner_is_never_matched_by_another),
        cmocka_unit_test(the_longer_match_wins_and_then_the_owners),
        cmocka_unit_test(the_same_tokens_of_two_owners_are_two_entries),
        cmocka_unit_test(a_hundred_owners),
        cmocka_unit_test(a_pinned_entry_never_goes_by_itself),
        cmocka_unit_test(pins_have_a_budget),
        cmocka_unit_test(an_entry_is_pinned_and_unpinned),
        cmocka_unit_test(a_pinned_entry_is_refreshed),
        cmocka_unit_test(pins_leave_no_room_for_more),
        cmocka_unit_test(pinned_pages_are_not_there_for_contexts),
        cmocka_unit_test(what_is_lossy_is_kept_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
