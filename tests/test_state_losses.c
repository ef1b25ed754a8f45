/* test_state_losses.c - a pager that fails: nothing can be written, something cannot be read for now, or not any more. */
#include "test_state_pager.h"

static void grow(ramet_context *context, uint32_t n, int32_t text) {
    enter_and_use(context);
    extend_with(context, n, text);
    ramet_context_leave(context);
}

/* ---- the disk is full ---- */

typedef struct full_scene {
    test_pager pager;
    ramet_cache *cache;
    ramet_context *idle, *hog;
} full_scene;

/* Eight pages: an entry that has two to itself, an idle context with three, one in use with three. */
static void open_full(full_scene *s, bool has_entry) {
    s->cache = open_small(&s->pager, 8);
    if (has_entry) {
        ramet_context *context = open_context(s->cache);
        extend_with(context, 32, 1);
        assert_ok(retain(context, error));
        ramet_context_destroy(&context);
    }
    s->idle = leave_context(s->cache, 48, 2);
    s->hog = open_context(s->cache);
    extend_with(s->hog, has_entry ? 48 : 80, 3);
    s->pager.write_fails = RAMET_E_NO_DISK;
    assert_int_equal(s->pager.written.n, 0);
}

static void close_full(full_scene *s) {
    check(s->cache);
    assert_true(is_lawful(s->hog));
    s->pager.write_fails = RAMET_OK;
    extend_with(s->hog, 32, 5); /* nothing has come of it but the error: it works again */
    assert_true(s->pager.written.n > 0);
    ramet_context_destroy(&s->hog);
    assert_lawful(s->idle);
    close_left(&s->idle);
    close_paged_cache(&s->pager, &s->cache);
}

static void where_nothing_can_be_written_entries_go(void **state) {
    (void)state;
    full_scene s;
    open_full(&s, true);
    extend_with(s.hog, 32, 4);
    assert_int_equal(stats_of(s.cache).tree_evictions, 1);
    assert_int_equal(stats_of(s.cache).tree_entries, 0);
    assert_int_equal(s.pager.n_kept, 0);
    ramet_engine_stats before = stats_of(s.cache), after;
    for (int i = 0; i < 3; i++) {
        assert_fails(RAMET_E_NO_DISK, ramet_context_writable(s.hog, 1, error));
        after = stats_of(s.cache);
        after.spill_nanoseconds = before.spill_nanoseconds;
        assert_memory_equal(&before, &after, sizeof after);
        assert_int_equal(ramet_context_length(s.hog), 80);
        assert_false(ramet_context_is_spilled(s.idle));
    }
    assert_lawful(s.idle); /* which is where it was */
    ramet_context_leave(s.hog);
    s.pager.write_fails = RAMET_OK;
    assert_ok(ramet_context_enter(s.hog, error));
    assert_ok(ramet_context_cut(s.hog, 48, error));
    assert_ok(ramet_context_use(s.hog, error));
    extend_with(s.hog, 32, 6);
    close_full(&s);
}

/* The entry's pages are the idle context's, too, so its loss would free nothing. */
static void where_it_would_not_help_no_entry_goes(void **state) {
    (void)state;
    full_scene s;
    open_full(&s, false);
    assert_ok(ramet_context_enter(s.idle, error));
    assert_ok(retain(s.idle, error));
    ramet_context_leave(s.idle);
    for (int i = 0; i < 3; i++) {
        assert_fails(RAMET_E_NO_DISK, ramet_context_writable(s.hog, 16, error));
        assert_int_equal(stats_of(s.cache).tree_entries, 1);
    }
    close_full(&s);
}

/* What could not be written is as cold as it was. */
static void a_failed_write_changes_no_order(void **state) {
    (void)state;
    enum { N = 5, BLOCKS = 4 * N };
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 3 * N);
    ramet_context *c[N], *hog = open_context(cache);
    const ramet_block *order[BLOCKS];
    size_t n = 0;
    for (size_t i = 0; i < N; i++) c[i] = leave_context(cache, 40, (int32_t)i);
    for (const ramet_block *block = cache->idle.coldest; block; block = block->warmer) order[n++] = block;
    assert_int_equal(n, BLOCKS);
    pager.write_fails = RAMET_E_NO_DISK;
    for (uint32_t n_pages = 1; n_pages < 3 * N; n_pages += 4) {
        assert_fails(RAMET_E_NO_DISK, ramet_context_writable(hog, n_pages * 16, error));
        n = 0;
        for (const ramet_block *block = cache->idle.coldest; block; block = block->warmer)
            assert_ptr_equal(block, order[n++]);
        assert_int_equal(n, BLOCKS);
    }
    ramet_context_destroy(&hog);
    close_all(c, N);
    close_paged_cache(&pager, &cache);
}

static void the_tail_finds_no_room_either(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_with_states(&pager, 2, 2 * STATE_BYTES + ROW_BYTES);
    ramet_context *first = leave_context(cache, 10, 1), *second = leave_context(cache, 0, 2);
    pager.write_fails = RAMET_E_IO;
    enter_and_use(second);
    assert_ok(ramet_context_writable(second, 1, error));
    assert_fails(RAMET_E_IO, ramet_context_reserve_tail(second, error));
    check(cache);
    assert_lawful(first);
    pager.write_fails = RAMET_OK;
    extend_with(second, 1, 2);
    assert_true(is_lawful(second));
    ramet_context_destroy(&second);
    assert_lawful(first);
    close_left(&first);
    close_paged_cache(&pager, &cache);
}

/* Room for what is to come back cannot be made. */
static void a_use_fails_when_nothing_can_be_written(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 6);
    ramet_context *a = leave_context(cache, 64, 1), *b;
    spill(a);
    b = leave_context(cache, 64, 2);
    pager.write_fails = RAMET_E_NO_DISK;
    assert_ok(ramet_context_enter(a, error));
    for (int i = 0; i < 3; i++) {
        assert_fails(RAMET_E_NO_DISK, ramet_context_use(a, error));
        assert_true(ramet_context_is_spilled(a));
        assert_int_equal(ramet_context_length(a), 64);
        check(cache);
    }
    ramet_context_leave(a);
    assert_lawful(b);
    pager.write_fails = RAMET_OK;
    assert_lawful(a);
    assert_lawful(b);
    close_left(&a);
    close_left(&b);
    close_paged_cache(&pager, &cache);
}

/* The second batch of three: what is out is out, what is not is where it was. */
static void a_spill_fails_half_way(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 100);
    ramet_context *context = leave_context(cache, 80 * 16, 1), *entry_only = leave_context(cache, 20, 2);
    assert_ok(ramet_context_enter(entry_only, error));
    assert_ok(retain(entry_only, error));
    ramet_context_destroy(&entry_only);
    pager.write_fails = RAMET_E_NO_DISK;
    pager.writes_before = 1;
    assert_fails(RAMET_E_NO_DISK, try_spill(context, error));
    assert_int_equal(count_out(context), 32);
    assert_int_equal(pager.n_kept, 32);
    assert_int_equal(stats_of(cache).tree_entries, 1); /* nobody wanted room */
    check(cache);
    assert_lawful(context); /* with the disk as full as before */
    pager.writes_before = 1;
    assert_fails(RAMET_E_NO_DISK, try_spill(context, error));
    pager.write_fails = RAMET_OK;
    spill(context);
    assert_int_equal(count_out(context), 81);
    assert_lawful(context);
    close_left(&context);
    close_paged_cache(&pager, &cache);
}

/* ---- reading fails ---- */

/* A read that may be tried again, at each of the blocks. */
static void a_read_without_memory_is_tried_again(void **state) {
    (void)state;
    static const ramet_status retriable[] = {RAMET_E_NO_MEMORY, RAMET_E_BUDGET};
    test_pager pager;
    ramet_cache *cache = open_with_states(&pager, 12, 300);
    ramet_context *context = leave_context(cache, 75, 1), *fork = left_fork_of(context);
    for (size_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < 7; i++) {
            spill(context);
            pager.read_fails = retriable[r];
            pager.unreadable = ramet_context_block(context, i)->name;
            assert_ok(ramet_context_enter(context, error));
            for (int again = 0; again < 2; again++) {
                assert_fails(retriable[r], ramet_context_use(context, error));
                assert_int_equal(ramet_context_length(context), 75);
                assert_true(is_out(ramet_context_block(context, i)));
                check(cache);
            }
            ramet_context_leave(context);
            assert_int_equal(stats_of(cache).contexts_lost, 0);
            pager.read_fails = RAMET_OK;
            assert_lawful(i % 2 ? context : fork);
        }
    close_left(&context);
    close_left(&fork);
    close_paged_cache(&pager, &cache);
}

static void assert_lost(ramet_context *context, ramet_status status) {
    ramet_context *none;
    assert_int_equal(ramet_context_length(context), 0);
    assert_false(ramet_context_has_logits(context) || ramet_context_has_state(context));
    assert_fails(status, ramet_context_use(context, error));
    assert_fails(status, ramet_context_write_out(context, error));
    assert_fails(status, ramet_context_cut(context, 0, error));
    assert_fails(status, ramet_context_writable(context, 1, error));
    assert_fails(status, ramet_context_rewrite(context, 0, 0, error));
    assert_fails(status, ramet_context_reserve_tail(context, error));
    assert_fails(status, ramet_context_share(context, &none, error));
    assert_null(none);
    assert_fails(status, retain(context, error));
}

/* Two forks that share all but their last page, one that shares the first page alone, a stranger; entries of each kind.
 * What is lost: the first page of all, one that two share, one that is a fork's own, a row, a state. */
static void a_lost_block_is_lost_to_those_who_need_it(void **state) {
    (void)state;
    enum { FORKS = 4 };
    static const struct {
        size_t finder; /* uses it first */
        uint32_t block;
        bool is_lost[FORKS];
        bool is_entry_lost;
    } cases[] = {
        {0, 0, {true, true, true, false}, true},    {2, 0, {true, true, true, false}, true},
        {0, 2, {true, true, false, false}, true},   {1, 2, {true, true, false, false}, true},
        {0, 4, {true, false, false, false}, false}, {0, 5, {true, false, false, false}, false},
        {0, 6, {true, false, false, false}, false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        test_pager pager;
        ramet_cache *cache = open_with_states(&pager, 30, 500);
        ramet_context *base = leave_context(cache, 64, 1), *c[FORKS];
        assert_ok(ramet_context_enter(base, error));
        assert_ok(retain(base, error));
        ramet_context_leave(base);
        for (size_t i = 0; i < 3; i++) c[i] = left_fork_of(base);
        assert_ok(ramet_context_enter(c[2], error));
        assert_ok(ramet_context_cut(c[2], 16, error));
        ramet_context_leave(c[2]);
        for (size_t i = 0; i < 3; i++) grow(c[i], 10, 20 + (int32_t)i);
        c[3] = leave_context(cache, 40, 9);
        assert_ok(ramet_context_enter(c[3], error));
        assert_ok(ramet_tree_retain(c[3], &(ramet_retain){.owner = "ann"}, error));
        ramet_context_leave(c[3]);
        spill(base);
        close_left(&base);
        for (size_t i = 0; i < FORKS; i++) spill(c[i]);

        pager.read_fails = RAMET_E_CORRUPT;
        ramet_context *finder = c[cases[k].finder];
        pager.unreadable = ramet_context_block(finder, cases[k].block)->name;
        assert_ok(ramet_context_enter(finder, error));
        assert_fails(RAMET_E_CORRUPT, ramet_context_use(finder, error));
        check(cache);
        assert_lost(finder, RAMET_E_CORRUPT);
        assert_int_equal(stats_of(cache).contexts_lost, 1);
        assert_int_equal(stats_of(cache).tree_entries, cases[k].is_entry_lost ? 1 : 2);
        ramet_context_leave(finder);
        uint64_t n_lost = 1;
        for (size_t i = 0; i < FORKS; i++) {
            if (c[i] == finder) continue;
            assert_true(ramet_context_length(c[i]) > 0); /* nobody has looked yet */
            if (!cases[k].is_lost[i]) {
                assert_lawful(c[i]);
                continue;
            }
            assert_ok(ramet_context_enter(c[i], error));
            assert_fails(RAMET_E_CORRUPT, ramet_context_use(c[i], error));
            assert_lost(c[i], RAMET_E_CORRUPT);
            ramet_context_leave(c[i]);
            assert_int_equal(stats_of(cache).contexts_lost, ++n_lost);
        }
        check(cache);
        close_all(c, FORKS);
        close_paged_cache(&pager, &cache);
    }
}

/* A pinned entry goes, too: it cannot be kept. And where it was, there is room for another one. */
static void a_pinned_entry_that_is_lost_goes(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache_options options = options_of(16, 12, 3);
    options.pin_budget_bytes = options.tree_budget_bytes;
    ramet_cache *cache = open_paged_cache(&pager, options);
    const ramet_retain pin = {.owner = "ann", .is_pinned = true};
    ramet_context *context = leave_context(cache, 40, 1), *again, *hit;
    int32_t tokens[40];
    ramet_context_read_tokens(context, 0, 40, tokens);
    assert_ok(ramet_context_enter(context, error));
    assert_ok(ramet_tree_retain(context, &pin, error));
    ramet_context_leave(context);
    spill(context);
    pager.read_fails = RAMET_E_NOT_FOUND;
    pager.unreadable = page_of(context, 1)->name;
    assert_ok(ramet_context_enter(context, error));
    assert_fails(RAMET_E_NOT_FOUND, ramet_context_use(context, error));
    ramet_context_destroy(&context);
    assert_int_equal(stats_of(cache).tree_pinned, 0);
    assert_int_equal(stats_of(cache).tree_bytes, 0);
    assert_int_equal(pager.n_kept, 0);
    check(cache);
    again = open_context(cache);
    extend(again, tokens, 40);
    assert_ok(ramet_tree_retain(again, &pin, error));
    ramet_context_destroy(&again);
    uint32_t matched;
    assert_ok(ramet_tree_match(cache, "ann", tokens, 40, &hit, &matched, error));
    assert_int_equal(matched, 40);
    assert_lawful(hit);
    close_left(&hit);
    close_paged_cache(&pager, &cache);
}

/* An entry whose pages are sound needs its row and its state as well. */
static void an_entry_that_has_lost_its_tail_goes(void **state) {
    (void)state;
    for (int tail = 0; tail < RAMET_TAILS; tail++) {
        test_pager pager;
        ramet_cache *cache = open_with_states(&pager, 12, 300);
        ramet_context *context = leave_context(cache, 40, 1), *other = leave_context(cache, 20, 2);
        ramet_context *both[] = {context, other};
        for (size_t i = 0; i < 2; i++) {
            assert_ok(ramet_context_enter(both[i], error));
            assert_ok(retain(both[i], error));
            ramet_context_leave(both[i]);
        }
        spill(context);
        pager.read_fails = RAMET_E_IO;
        pager.unreadable = context->tail[tail]->name;
        assert_ok(ramet_context_enter(context, error));
        assert_fails(RAMET_E_IO, ramet_context_use(context, error));
        assert_lost(context, RAMET_E_IO);
        ramet_context_destroy(&context);
        assert_int_equal(stats_of(cache).tree_entries, 1);
        check(cache);
        assert_lawful(other);
        close_left(&other);
        close_paged_cache(&pager, &cache);
    }
}

/* A context that was matched before the loss was found out, or forked, is told at its use, also when it shares the block
 * with nobody any more. */
static void who_shared_a_lost_block_is_told_later(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 12);
    ramet_context *context = leave_context(cache, 40, 1), *fork, *fork_of_fork, *short_fork, *none;
    spill(context);
    fork = left_fork_of(context);
    short_fork = left_fork_of(context);
    pager.read_fails = RAMET_E_AUTHENTICATION;
    pager.unreadable = page_of(context, 1)->name;
    assert_ok(ramet_context_enter(context, error));
    assert_fails(RAMET_E_AUTHENTICATION, ramet_context_use(context, error));
    ramet_context_destroy(&context);
    pager.read_fails = RAMET_OK; /* too late */
    assert_ok(ramet_context_enter(fork, error));
    assert_fails(RAMET_E_AUTHENTICATION, retain(fork, error)); /* an entry of it would be worth nothing */
    assert_int_equal(stats_of(cache).tree_entries, 0);
    assert_ok(ramet_context_share(fork, &fork_of_fork, error));
    ramet_context_destroy(&fork);
    assert_ok(ramet_context_enter(fork_of_fork, error));
    assert_fails(RAMET_E_AUTHENTICATION, ramet_context_use(fork_of_fork, error));
    assert_fails(RAMET_E_AUTHENTICATION, ramet_context_share(fork_of_fork, &none, error));
    assert_int_equal(stats_of(cache).contexts_lost, 2);
    check(cache);
    ramet_context_destroy(&fork_of_fork);
    assert_ok(ramet_context_enter(short_fork, error)); /* one that gives the lost page up needs it no more */
    assert_ok(ramet_context_cut(short_fork, 16, error));
    ramet_context_leave(short_fork);
    grow(short_fork, 20, 2);
    assert_lawful(short_fork);
    close_left(&short_fork);
    assert_int_equal(stats_of(cache).contexts_lost, 2);
    close_paged_cache(&pager, &cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_nothing_can_be_written_entries_go),
        cmocka_unit_test(where_it_would_not_help_no_entry_goes),
        cmocka_unit_test(a_failed_write_changes_no_order),
        cmocka_unit_test(the_tail_finds_no_room_either),
        cmocka_unit_test(a_use_fails_when_nothing_can_be_written),
        cmocka_unit_test(a_spill_fails_half_way),
        cmocka_unit_test(a_read_without_memory_is_tried_again),
        cmocka_unit_test(a_lost_block_is_lost_to_those_who_need_it),
        cmocka_unit_test(an_entry_that_has_lost_its_tail_goes),
        cmocka_unit_test(a_pinned_entry_that_is_lost_goes),
        cmocka_unit_test(who_shared_a_lost_block_is_told_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
