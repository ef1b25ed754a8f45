/* test_state_spill.c - memory that is too small, and a pager: what is written out, when and in which order, what stays, and
 * how it comes back. */
#include "test_state_pager.h"

static void grow(ramet_context *context, uint32_t n, int32_t text) {
    enter_and_use(context);
    extend_with(context, n, text);
    ramet_context_leave(context);
}

/* Uses it and leaves it: it is the warmest. */
static void touch(ramet_context *context) {
    enter_and_use(context);
    ramet_context_leave(context);
}

/* ---- what is written ---- */

static void a_shared_page_is_written_once(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 10);
    ramet_context *c[6] = {leave_context(cache, 64, 1)};
    for (size_t i = 1; i < 6; i++) c[i] = left_fork_of(c[0]);
    ramet_context *hog = open_context(cache);
    extend_with(hog, 8 * 16, 2);
    assert_true(pager.written.n >= 2 && pager.written.n <= 5);
    for (size_t i = 0; i < 6; i++) assert_true(ramet_context_is_spilled(c[i]));
    for (size_t i = 0; i < 6; i++) spill(c[i]); /* the rest, with the first of them */
    assert_int_equal(pager.written.n, 5);
    assert_int_equal(pager.n_kept, 5);
    assert_int_equal(stats_of(cache).blocks_spilled, 5);
    assert_int_equal(stats_of(cache).spilled_bytes, 4 * PAGE_BYTES + ROW_BYTES);
    assert_int_equal(stats_of(cache).pages_live, 12);
    check(cache);
    assert_true(is_lawful(hog));
    ramet_context_destroy(&hog);
    for (size_t i = 0; i < 6; i++) assert_lawful(c[i]);
    assert_int_equal(pager.read.n, 5); /* once, too */
    assert_int_equal(stats_of(cache).blocks_read_back, 5);
    assert_int_equal(stats_of(cache).spilled_bytes, 0);
    assert_int_equal(pager.n_kept, 0);
    close_all(c, 6);
    close_paged_cache(&pager, &cache);
}

/* What a context in use shares with one that is not stays, and the rest of the other one goes. */
static void what_is_in_use_is_never_written(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 10);
    ramet_context *parent = leave_context(cache, 64, 1), *fork = left_fork_of(parent);
    assert_ok(ramet_context_enter(fork, error));
    assert_ok(ramet_context_cut(fork, 36, error)); /* two pages, and a part of the third */
    assert_ok(ramet_context_use(fork, error));
    spill(parent);
    for (uint32_t i = 0; i < 3; i++) assert_false(is_out(page_of(parent, i)));
    assert_true(is_out(page_of(parent, 3)) && is_out(parent->tail[0]));
    assert_true(ramet_context_is_spilled(parent));
    assert_false(ramet_context_is_spilled(fork));
    extend_with(fork, 6 * 16, 2); /* its third page is its own now; both were needed for the copy */
    assert_false(is_out(page_of(parent, 2)));
    extend_with(fork, 16, 3); /* and the parent's goes */
    assert_true(is_out(page_of(parent, 2)) && !is_out(page_of(parent, 1)));
    assert_int_equal(pager.written.n, 3);
    assert_true(is_lawful(fork));
    assert_int_equal(stats_of(cache).pages_copied, 1);
    ramet_context_leave(fork);
    assert_lawful(parent);
    assert_lawful(fork);
    close_left(&parent);
    close_left(&fork);
    close_paged_cache(&pager, &cache);
}

/* Which of the contexts has the block that went under this name. */
static size_t find_owner(ramet_context *const *contexts, size_t n, uint64_t name) {
    for (size_t c = 0; c < n; c++)
        for (uint32_t i = 0; i < ramet_context_n_blocks(contexts[c]); i++) {
            const ramet_block *block = ramet_context_block(contexts[c], i);
            if (block && block->name == name) return c;
        }
    fail_msg("name %llu is nobody's", (unsigned long long)name);
    return n;
}

/* In the order in which contexts were last left, not that in which they were made. */
static void the_coldest_goes_first(void **state) {
    (void)state;
    enum { N = 5 };
    static const size_t order[N] = {3, 0, 4, 2, 1};
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 4 * N);
    ramet_context *c[N], *by_order[N], *hog = open_context(cache);
    for (size_t i = 0; i < N; i++) c[i] = leave_context(cache, 40, (int32_t)i);
    for (size_t i = 0; i < N; i++) by_order[i] = c[order[i]];
    for (size_t i = 0; i < N; i++) touch(by_order[i]);
    uint64_t seen = 0;
    size_t last = 0;
    for (uint32_t n = 0; n < 4 * N; n++) { /* page by page it takes all the room */
        extend_with(hog, 16, 9);
        for (; seen < pager.written.n; seen++) {
            size_t owner = find_owner(by_order, N, pager.written.names[seen]);
            assert_true(owner == last || owner == last + 1);
            if (owner > last) assert_int_equal(count_out(by_order[last]), 4); /* all of the colder one */
            last = owner;
        }
    }
    assert_int_equal(last, N - 1);
    assert_true(is_lawful(hog));
    ramet_context_destroy(&hog);
    for (size_t i = 0; i < N; i++) assert_lawful(c[i]);
    close_all(c, N);
    close_paged_cache(&pager, &cache);
}

/* A page counts as used when any of its contexts is. */
static void the_last_of_its_users_makes_a_page_warm(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 8);
    ramet_context *parent = leave_context(cache, 32, 1), *fork = left_fork_of(parent);
    grow(fork, 16, 2);
    ramet_context *other = leave_context(cache, 32, 3), *hog;
    touch(fork); /* the parent's own row is the coldest now, then the other one */
    hog = open_context(cache);
    extend_with(hog, 4 * 16, 4); /* less than a page is missing */
    assert_int_equal(pager.written.n, 2);
    assert_true(is_out(parent->tail[0]));
    assert_true(is_out(page_of(other, 0)));
    ramet_context_destroy(&hog);
    assert_lawful(parent);
    assert_lawful(other);
    ramet_context *c[] = {parent, fork, other};
    close_all(c, 3);
    close_paged_cache(&pager, &cache);
}

/* Past a batch of 32, both ways. */
static void many_pages_go_in_batches(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_with_states(&pager, 100, 200);
    ramet_context *context = leave_context(cache, 100 * 16 - 3, 1);
    spill(context);
    assert_int_equal(pager.written.n, 102);
    assert_int_equal(pager.written.n_calls, 4);
    assert_int_equal(stats_of(cache).memory_bytes, 0);
    assert_lawful(context);
    assert_int_equal(pager.read.n, 102);
    close_left(&context);
    close_paged_cache(&pager, &cache);
}

/* ---- how it comes back ---- */

static void blocks_are_read_back_in_order(void **state) {
    (void)state;
    enum { PAGES = 40 };
    test_pager pager;
    ramet_cache *cache = open_with_states(&pager, 60, 200);
    ramet_context *context = leave_context(cache, PAGES * 16, 1), *fork = left_fork_of(context);
    assert_ok(ramet_context_enter(fork, error));
    assert_ok(ramet_context_cut(fork, 5 * 16, error));
    ramet_context_leave(fork);
    spill(context);
    touch(fork); /* the first five are here again */
    uint64_t names[PAGES + RAMET_TAILS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < PAGES; i++)
        if (is_out(page_of(context, i))) names[n++] = page_of(context, i)->name;
    for (int i = 0; i < RAMET_TAILS; i++) names[n++] = context->tail[i]->name; /* logits, then the state */
    assert_int_equal(n, PAGES - 5 + RAMET_TAILS);
    pager.read.n = 0;
    assert_lawful(context);
    assert_int_equal(pager.read.n, n);
    assert_memory_equal(pager.read.names, names, n * sizeof *names);
    close_left(&context);
    close_left(&fork);
    close_paged_cache(&pager, &cache);
}

/* A copy is forgotten when the block is back, and when its last holder goes. */
static void names_are_forgotten(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 20);
    ramet_context *c[3] = {leave_context(cache, 64, 1)};
    c[1] = left_fork_of(c[0]);
    grow(c[1], 16, 2);
    assert_ok(ramet_context_enter(c[0], error));
    assert_ok(retain(c[0], error)); /* an entry of what is in memory */
    ramet_context_leave(c[0]);
    spill(c[1]);
    spill(c[0]);
    assert_int_equal(pager.n_kept, 7); /* five pages, two rows */
    assert_int_equal(pager.kept_bytes, stats_of(cache).spilled_bytes);
    close_left(&c[1]);
    assert_int_equal(pager.n_kept, 5); /* its own page and row */
    assert_ok(ramet_context_enter(c[0], error));
    assert_ok(ramet_context_cut(c[0], 33, error)); /* the entry needs all */
    ramet_context_leave(c[0]);
    assert_int_equal(pager.n_kept, 5);
    ramet_tree_clear(cache);
    assert_int_equal(pager.n_kept, 3);
    check(cache);
    touch(c[0]);
    assert_int_equal(pager.n_kept, 0);
    spill(c[0]);
    assert_int_equal(pager.n_kept, 3);
    close_left(&c[0]);
    assert_int_equal(pager.n_kept, 0);
    assert_int_equal(pager.written.n, 10);
    close_paged_cache(&pager, &cache);
}

/* ---- without reading back ---- */

static void forks_closes_and_cuts_read_nothing(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_with_states(&pager, 12, 300);
    ramet_context *parent = leave_context(cache, 70, 1);
    spill(parent);
    ramet_context *c[4];
    for (size_t i = 0; i < 4; i++) {
        c[i] = left_fork_of(parent);
        assert_true(ramet_context_is_spilled(c[i]));
        assert_true(ramet_context_has_logits(c[i]) && ramet_context_has_state(c[i]));
    }
    static const uint32_t lengths[] = {70, 69, 33, 0};
    for (size_t i = 0; i < 4; i++) {
        assert_ok(ramet_context_enter(c[i], error));
        assert_ok(ramet_context_cut(c[i], lengths[i], error));
        ramet_context_leave(c[i]);
        assert_int_equal(ramet_context_has_logits(c[i]), lengths[i] == 70);
        assert_int_equal(ramet_context_is_spilled(c[i]), lengths[i] > 0);
        int32_t tokens[70]; /* what the tokens are is known all the time */
        ramet_context_read_tokens(parent, 0, 70, tokens);
        assert_int_equal(ramet_context_common_prefix(c[i], tokens, 70), lengths[i]);
    }
    close_left(&parent);
    assert_int_equal(pager.read.n, 0);
    check(cache);
    for (size_t i = 0; i < 4; i++) {
        assert_lawful(c[i]);
        grow(c[i], 20, (int32_t)i);
        assert_lawful(c[i]);
    }
    close_all(c, 4);
    close_paged_cache(&pager, &cache);
}

static void retain_and_match_read_nothing(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_with_states(&pager, 12, 300);
    ramet_context *context = leave_context(cache, 70, 1), *hits[3];
    int32_t tokens[70];
    ramet_context_read_tokens(context, 0, 70, tokens);
    spill(context);
    assert_ok(ramet_context_enter(context, error));
    assert_ok(retain(context, error));
    assert_ok(ramet_tree_retain(context, &(ramet_retain){.owner = "ann"}, error));
    ramet_context_leave(context);
    assert_int_equal(stats_of(cache).tree_bytes, 5 * PAGE_BYTES + ROW_BYTES + STATE_BYTES); /* in memory or not */
    close_left(&context);
    static const uint32_t lengths[] = {70, 50, 16};
    for (size_t i = 0; i < 3; i++) {
        uint32_t matched;
        assert_ok(ramet_tree_match(cache, i % 2 ? "ann" : NULL, tokens, lengths[i], &hits[i], &matched, error));
        assert_int_equal(matched, lengths[i]);
        assert_true(ramet_context_is_spilled(hits[i]));
        assert_int_equal(ramet_context_has_state(hits[i]), lengths[i] == 70);
    }
    assert_int_equal(pager.read.n, 0);
    check(cache);
    for (size_t i = 0; i < 3; i++) assert_lawful(hits[i]);
    close_all(hits, 3);
    assert_int_equal(stats_of(cache).memory_bytes, stats_of(cache).tree_bytes);
    ramet_tree_clear(cache);
    assert_int_equal(stats_of(cache).pages_live, 0);
    close_paged_cache(&pager, &cache);
}

/* Entries are written out as all else is; while that goes well none is evicted, pinned or not. */
static void entries_are_written_rather_than_evicted(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache_options options = options_of(16, 6, 1000);
    options.pin_budget_bytes = options.tree_budget_bytes;
    ramet_cache *cache = open_paged_cache(&pager, options);
    for (int32_t text = 0; text < 20; text++) {
        ramet_context *context = open_context(cache);
        extend_with(context, 40, text);
        assert_ok(ramet_tree_retain(context, &(ramet_retain){.is_pinned = text % 3 == 0}, error));
        ramet_context_destroy(&context);
        check(cache);
    }
    assert_int_equal(stats_of(cache).tree_entries, 20);
    assert_int_equal(stats_of(cache).tree_evictions, 0);
    for (int32_t text = 0; text < 20; text++) {
        int32_t tokens[40];
        for (int32_t i = 0; i < 40; i++) tokens[i] = text * 1000 + i;
        ramet_context *hit;
        uint32_t matched;
        assert_ok(ramet_tree_match(cache, NULL, tokens, 40, &hit, &matched, error));
        assert_int_equal(matched, 40);
        assert_lawful(hit);
        close_left(&hit);
    }
    close_paged_cache(&pager, &cache);
}

/* ---- logits and states ---- */

static void held_logits_stay(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 6);
    ramet_context *context = leave_context(cache, 40, 1), *fork = left_fork_of(context), *hog;
    enter_and_use(context);
    const float *row = ramet_context_hold_logits(context);
    float wanted[N_VOCAB];
    assert_non_null(row);
    assert_ptr_equal(ramet_context_hold_logits(context), row); /* twice is once */
    memcpy(wanted, row, sizeof wanted);
    ramet_context_leave(context);
    hog = open_context(cache);
    extend_with(hog, 6 * 16, 2); /* every page goes */
    for (uint32_t i = 0; i < 3; i++) assert_true(is_out(page_of(context, i)));
    assert_false(is_out(context->tail[0]));
    assert_memory_equal(row, wanted, sizeof wanted);
    spill(fork); /* it holds nothing itself */
    assert_false(is_out(context->tail[0]));
    assert_memory_equal(row, wanted, sizeof wanted);
    check(cache);
    spill(context); /* until it is spilled itself */
    assert_true(is_out(context->tail[0]));
    ramet_context_destroy(&hog);

    enter_and_use(context);
    ramet_context_hold_logits(context);
    ramet_context_leave(context);
    touch(context); /* or used again */
    assert_int_equal(context->tail[0]->n_users, 0);
    enter_and_use(context);
    ramet_context_hold_logits(context);
    ramet_context_leave(context);
    assert_ok(ramet_context_enter(context, error)); /* or cut, or closed */
    assert_ok(ramet_context_cut(context, 39, error));
    ramet_context_leave(context);
    assert_int_equal(fork->tail[0]->n_users, 0);
    enter_and_use(fork);
    ramet_context_hold_logits(fork);
    check(cache);
    ramet_context_destroy(&fork);
    assert_lawful(context);
    close_left(&context);
    close_paged_cache(&pager, &cache);
}

/* Room for one context at work with its old state and its new one, and for not a byte more. */
static void states_are_written_and_come_back(void **state) {
    (void)state;
    enum { N = 6 };
    test_pager pager;
    ramet_cache *cache = open_with_states(&pager, 2, 2 * STATE_BYTES + ROW_BYTES);
    ramet_context *c[N];
    for (size_t i = 0; i < N; i++) c[i] = leave_context(cache, 10, (int32_t)i);
    for (int32_t round = 0; round < 5; round++)
        for (size_t i = 0; i < N; i++) {
            grow(c[i], 3, round); /* which looks at the old state, beside the new one */
            assert_lawful(c[i]);
            check(cache);
        }
    assert_int_equal(ramet_context_length(c[0]), 25);
    enter_and_use(c[0]); /* two pages, a row, a state: what a step more needs fits, what a page more needs does not */
    assert_fails(RAMET_E_BUDGET, ramet_context_writable(c[0], 8, error));
    extend_with(c[0], 7, 7);
    assert_true(is_lawful(c[0]));
    ramet_context_leave(c[0]);
    assert_lawful(c[0]);
    close_all(c, N);
    close_paged_cache(&pager, &cache);
}

/* ---- budget ---- */

static void contexts_in_use_leave_too_little(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 8);
    ramet_context *a = leave_context(cache, 5 * 16, 1), *b = leave_context(cache, 4 * 16, 2), *none;
    enter_and_use(a);
    assert_ok(ramet_context_enter(b, error));
    for (int i = 0; i < 3; i++) {
        assert_fails(RAMET_E_BUDGET, ramet_context_use(b, error)); /* 9 pages of 8 */
        assert_int_equal(ramet_context_length(b), 64);
        check(cache);
    }
    assert_ok(ramet_context_share(b, &none, error)); /* it is as good as before */
    close_left(&none);
    assert_fails(RAMET_E_BUDGET, ramet_context_writable(a, 4 * 16, error));
    assert_int_equal(ramet_context_length(a), 80);
    assert_true(is_lawful(a));
    extend_with(a, 3 * 16, 3); /* all of it */
    assert_fails(RAMET_E_BUDGET, ramet_context_writable(a, 1, error));
    assert_true(is_lawful(a));
    check(cache);
    ramet_context_leave(a);
    assert_ok(ramet_context_use(b, error));
    assert_true(is_lawful(b));
    ramet_context_leave(b);
    assert_lawful(a);
    close_left(&a);
    close_left(&b);
    close_paged_cache(&pager, &cache);
}

/* Headers stay in memory, so there are not more of them than so many for each page that fits. */
static void what_is_out_has_a_ceiling(void **state) {
    (void)state;
    enum { N = 300 };
    test_pager pager;
    ramet_cache *cache = open_small(&pager, 2);
    ramet_context *c[N], *last = NULL;
    size_t n = 0;
    ramet_status status = RAMET_OK;
    for (; n < N && status == RAMET_OK; n++) {
        assert_ok(ramet_cache_context_create(cache, &c[n], error));
        enter_and_use(c[n]);
        status = ramet_context_writable(c[n], 32, NULL);
        if (status != RAMET_OK) break;
        extend_with(c[n], 32, (int32_t)n);
        ramet_context_leave(c[n]);
    }
    assert_int_equal(n, 256);
    assert_int_equal(status, RAMET_E_BUDGET);
    last = c[n];
    check(cache);
    close_left(&c[7]);
    extend_with(last, 32, 999); /* there is room for one more */
    assert_true(is_lawful(last));
    ramet_context_destroy(&last);
    for (size_t i = 0; i < n; i++)
        if (c[i]) assert_lawful(c[i]);
    close_all(c, n);
    close_paged_cache(&pager, &cache);
}

/* Forks, steps, cuts, closes, spills, in no order, in a cache for two or three of them; the pager watches the budget and
 * who is in use. */
static void whatever_happens_memory_stays_within_its_budget(void **state) {
    (void)state;
    enum { N = 12, ROUNDS = 3000 };
    uint64_t rng = 12345, n_without_room = 0;
    test_pager pager;
    ramet_cache *cache = open_with_states(&pager, 9, 300);
    ramet_context *c[N] = {0};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        ramet_context **at = &c[draw_from(&rng) % N], **from = &c[draw_from(&rng) % N];
        uint32_t what = (uint32_t)(draw_from(&rng) % 8), n = 1 + (uint32_t)(draw_from(&rng) % 25);
        if (!*at) {
            *at = *from && what < 6 ? left_fork_of(*from) : leave_context(cache, n, (int32_t)round);
            continue;
        }
        uint32_t length = ramet_context_length(*at);
        assert_ok(ramet_context_enter(*at, error));
        if (what == 0 || length > 100) {
            ramet_context_destroy(at);
            continue;
        }
        if (what == 1) assert_ok(ramet_context_cut(*at, (uint32_t)(draw_from(&rng) % (length + 1)), error));
        if (what == 2) assert_ok(ramet_context_write_out(*at, error));
        if (what == 3) assert_ok(retain(*at, error));
        if (what > 3) {
            int32_t tokens[25];
            for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)(round + i);
            assert_ok(ramet_context_use(*at, error));
            assert_true(is_lawful(*at));
            ramet_status status = try_extend(*at, tokens, n, NULL);
            assert_true(status == RAMET_OK || status == RAMET_E_BUDGET);
            n_without_room += status == RAMET_E_BUDGET;
            assert_true(is_lawful(*at));
        }
        ramet_context_leave(*at);
        if (round % 50 == 0) ramet_tree_clear(cache);
        check(cache);
        assert_no_misuse(&pager);
    }
    for (size_t i = 0; i < N; i++)
        if (c[i]) assert_lawful(c[i]);
    close_all(c, N);
    assert_true(pager.written.n > 1000 && pager.read.n > 1000 && n_without_room < ROUNDS / 10);
    close_paged_cache(&pager, &cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_page_is_written_once),
        cmocka_unit_test(what_is_in_use_is_never_written),
        cmocka_unit_test(the_coldest_goes_first),
        cmocka_unit_test(the_last_of_its_users_makes_a_page_warm),
        cmocka_unit_test(many_pages_go_in_batches),
        cmocka_unit_test(blocks_are_read_back_in_order),
        cmocka_unit_test(names_are_forgotten),
        cmocka_unit_test(forks_closes_and_cuts_read_nothing),
        cmocka_unit_test(retain_and_match_read_nothing),
        cmocka_unit_test(entries_are_written_rather_than_evicted),
        cmocka_unit_test(held_logits_stay),
        cmocka_unit_test(states_are_written_and_come_back),
        cmocka_unit_test(contexts_in_use_leave_too_little),
        cmocka_unit_test(what_is_out_has_a_ceiling),
        cmocka_unit_test(whatever_happens_memory_stays_within_its_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
