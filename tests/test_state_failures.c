/* test_state_failures.c - what takes memory and what does not, operations whose every allocation fails once, ceilings, and
 * misuse, which stops by number. */
#include "test_state_pager.h"

#include <sys/wait.h>
#include <unistd.h>

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

/* Contexts are in use, or with a pager entered only; `made` is what an operation makes. */
typedef struct world {
    ramet_cache *cache;
    test_pager pager;
    bool is_paged;
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
    return retain(w->c[2], error);
}
static ramet_status do_match(world *w, ramet_error *error) {
    int32_t tokens[60];
    uint32_t matched;
    ramet_context_read_tokens(w->c[0], 0, 60, tokens);
    return ramet_tree_match(w->cache, NULL, tokens, 60, &w->made, &matched, error);
}
static ramet_status do_retain_of_owner(world *w, ramet_error *error) {
    return ramet_tree_retain(w->c[2], &(ramet_retain){.owner = "ann"}, error);
}
static ramet_status do_pin(world *w, ramet_error *error) {
    return ramet_tree_retain(w->c[2], &(ramet_retain){.is_pinned = true}, error);
}
static ramet_status do_reserve_tail(world *w, ramet_error *error) {
    return ramet_context_reserve_tail(w->c[1], error);
}
static ramet_status do_spill(world *w, ramet_error *error) {
    return ramet_context_write_out(w->c[1], error);
}
static ramet_status do_use(world *w, ramet_error *error) {
    return ramet_context_use(w->c[2], error);
}
static void look_away(void *user, const ramet_retain *how, const int32_t *tokens, uint32_t n) {
    (void)user, (void)how, (void)tokens, (void)n;
}
static ramet_status do_list(world *w, ramet_error *error) {
    return ramet_tree_each(w->cache, look_away, NULL, error);
}
static ramet_status do_retain_ahead(world *w, ramet_error *error) {
    return retain(w->c[1], error);
}

/* Three relatives of which two are kept; with a pager the last one is written out. The middle one may have pages ahead,
 * which are worth nothing to a fork, an entry or a disk, and are given up first. */
static void open_world(world *w, bool is_paged, bool is_ahead) {
    ramet_cache_options options = options_of(16, 1000, 1000);
    options.pin_budget_bytes = options.tree_budget_bytes;
    memset(w, 0, sizeof *w);
    w->is_paged = is_paged;
    w->cache = is_paged ? open_paged_cache(&w->pager, options) : open_cache_of(&options);
    w->c[0] = open_context(w->cache);
    extend_with(w->c[0], 70, 1);
    assert_ok(retain(w->c[0], error));
    w->c[1] = fork_of(w->c[0]);
    w->c[2] = fork_of(w->c[0]);
    assert_ok(ramet_context_cut(w->c[2], 40, error)); /* keeping it splits an edge */
    extend_with(w->c[2], 10, 2);
    if (is_ahead) assert_ok(ramet_context_writable(w->c[1], 40, error));
    for (size_t i = 0; is_paged && i < 3; i++) ramet_context_leave(w->c[i]);
    if (is_paged) spill(w->c[2]);
    for (size_t i = 0; is_paged && i < 3; i++) assert_ok(ramet_context_enter(w->c[i], error));
    ramet_table_trim_pool(w->cache, 0); /* nothing spare */
}

static void close_world(world *w) {
    ramet_context_destroy(&w->made);
    close_contexts(w->c, 3);
    if (w->is_paged)
        close_paged_cache(&w->pager, &w->cache);
    else
        ramet_cache_destroy(&w->cache);
}

static void assert_world_lawful(world *w) {
    for (size_t i = 0; i < 3; i++) {
        if (w->is_paged) ramet_context_leave(w->c[i]);
        if (w->is_paged) enter_and_use(w->c[i]);
        assert_true(is_lawful(w->c[i]));
    }
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ramet_status (*run)(world *w, ramet_error *error);
        bool is_paged, is_ahead;
        uint64_t at_least; /* allocations that the operation is known to make */
    } operations[] = {
        {"extend", do_extend, false, false, 2},
        {"rewrite", do_rewrite, false, false, 1},
        {"cut", do_cut, false, false, 1},
        {"fork", do_fork, false, false, 0},
        {"fork with pages ahead", do_fork, false, true, 1},
        {"create", do_create, false, false, 0},
        {"retain", do_retain, false, false, 4},
        {"retain of an owner", do_retain_of_owner, false, false, 5},
        {"retain with pages ahead", do_retain_ahead, false, true, 2},
        {"pin", do_pin, false, false, 4},
        {"match", do_match, false, false, 1},
        {"list", do_list, false, false, 3},
        {"reserve tail", do_reserve_tail, false, false, 0},
        {"cut of a spilled one", do_cut, true, false, 1},
        {"fork of a spilled one", do_fork, true, false, 0},
        {"retain of a spilled one", do_retain, true, false, 4},
        {"match of a spilled one", do_match, true, false, 1},
        {"spill", do_spill, true, false, 0},
        {"spill with pages ahead", do_spill, true, true, 1},
        {"use", do_use, true, false, 0},
    };
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        for (uint64_t k = 1;; k++) {
            world w;
            open_world(&w, operations[i].is_paged, operations[i].is_ahead);
            ramet_engine_stats before = stats_of(w.cache), after;
            ramet_error error = {0};
            ramet_alloc_fail_after(k);
            ramet_status status = operations[i].run(&w, &error);
            ramet_alloc_fail_after(0);
            check(w.cache);
            after = stats_of(w.cache);
            assert_world_lawful(&w);
            if (status == RAMET_OK) {
                if (k <= operations[i].at_least)
                    fail_msg("%s: %llu allocations", operations[i].name, (unsigned long long)k - 1);
                close_world(&w);
                break;
            }
            assert_int_equal(status, RAMET_E_NO_MEMORY);
            assert_int_equal(error.code, RAMET_E_NO_MEMORY);
            if (operations[i].is_ahead) { /* giving the pages up is all that may have happened */
                before.pages_live -= after.pages_freed - before.pages_freed;
                before.memory_bytes -= (after.pages_freed - before.pages_freed) * 128;
                before.pages_freed = after.pages_freed;
            }
            assert_memory_equal(&before, &after, sizeof after);
            assert_null(w.made);
            assert_int_equal(ramet_context_length(w.c[1]), 70);
            assert_true(ramet_context_has_logits(w.c[1]));
            close_world(&w);
        }
    }
}

static void creating_a_cache_fails_cleanly(void **state) {
    (void)state;
    ramet_cache_options good = {
        .page_tokens = 16, .page_bytes = 128, .n_ctx = 100, .n_vocab = 5, .state_bytes = 9, .budget_bytes = 1280};
    ramet_cache *cache;
    uint64_t n_failed = 0;
    for (;; n_failed++) {
        ramet_error error = {0};
        ramet_alloc_fail_after(n_failed + 1);
        ramet_status status = ramet_cache_create(&good, &cache, &error);
        ramet_alloc_fail_after(0);
        if (status == RAMET_OK) break;
        assert_int_equal(status, RAMET_E_NO_MEMORY);
        assert_int_equal(error.code, RAMET_E_NO_MEMORY);
        assert_null(cache);
    }
    assert_true(n_failed >= 4);
    ramet_cache_destroy(&cache);
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
    bad.n_ctx = UINT32_C(1) << 31;
    assert_fails(RAMET_E_ARGUMENT, ramet_cache_create(&bad, &cache, error));
    bad = good;
    bad.tree_budget_bytes = 10;
    bad.pin_budget_bytes = 11;
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
    assert_false(ramet_context_has_logits(context));
    assert_fails(RAMET_E_BUSY, ramet_context_enter(context, error)); /* open_context has */
    ramet_context_leave(context);
    assert_ok(ramet_context_enter(context, error));
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

/* ---- room ---- */

static void has_room_counts_a_tail(void **state) {
    (void)state;
    ramet_cache_options options = options_of(16, 4, 0);
    options.state_bytes = 50;
    options.budget_bytes = 4 * 128 + 2 * (50 + ROW_BYTES);
    ramet_cache *cache = open_cache_of(&options);
    assert_true(ramet_cache_has_room(cache, 0));
    assert_true(ramet_cache_has_room(cache, 4));
    assert_false(ramet_cache_has_room(cache, 5));
    assert_false(ramet_cache_has_room(cache, UINT64_MAX / 128)); /* no size may wrap */
    assert_false(ramet_cache_has_room(cache, UINT64_MAX));
    ramet_context *context = open_context(cache);
    extend_with(context, 33, 1);
    assert_true(ramet_cache_has_room(cache, 1));
    assert_false(ramet_cache_has_room(cache, 2));
    ramet_context_destroy(&context);
    assert_true(ramet_cache_has_room(cache, 4));
    ramet_cache_destroy(&cache);
}

/* Logits that nobody asked for ahead are there when there is room, and not when there is none, or no vocabulary. */
static void logits_need_room(void **state) {
    (void)state;
    const int32_t token = 7;
    for (int has_vocabulary = 0; has_vocabulary < 2; has_vocabulary++) {
        ramet_cache_options options = options_of(16, 1, 0);
        options.n_vocab = has_vocabulary ? N_VOCAB : 0;
        options.budget_bytes = 128 + ROW_BYTES;
        ramet_cache *cache = open_cache_of(&options);
        ramet_context *context = open_context(cache), *other;
        assert_ok(ramet_context_writable(context, 2, error));
        ramet_context_commit(context, &token, 0);
        ramet_context_commit(context, &token, 1);
        assert_null(ramet_context_hold_logits(context));
        assert_ok(ramet_context_reserve_tail(context, error));
        assert_int_equal(ramet_context_logits_writable(context) != NULL, has_vocabulary);
        other = fork_of(context);
        ramet_context_commit(context, &token, 0); /* nothing: the logits stay */
        assert_int_equal(ramet_context_has_logits(context), has_vocabulary);
        assert_int_equal(ramet_context_peek_logits(other) != NULL, has_vocabulary);
        if (has_vocabulary) assert_fails(RAMET_E_BUDGET, ramet_context_reserve_tail(other, error));
        assert_ok(ramet_context_cut(other, 0, error));
        assert_null(ramet_context_logits_writable(other)); /* the one row is the other one's */
        assert_false(ramet_context_has_logits(other));
        check(cache);
        ramet_context_destroy(&context);
        ramet_context_destroy(&other);
        ramet_cache_destroy(&cache);
    }
}

/* ---- misuse stops by number ---- */

static void write_into_a_shared_page(ramet_context *context) {
    ramet_context *fork = fork_of(context);
    ramet_context_page_write(fork, 0);
}
static void release_twice(ramet_context *context) {
    ramet_block *page = ramet_table_page(&context->table, 0);
    page->counts.holds[RAMET_BY_CONTEXTS] = 0;
    ramet_block_release(context->cache, page);
    ramet_block_release(context->cache, page);
}
static void read_without_use(ramet_context *context) {
    ramet_context_leave(context);
    assert_ok(ramet_context_enter(context, error));
    ramet_context_page_read(context, 0);
}
static void write_a_state_unreserved(ramet_context *context) {
    ramet_context_state_writable(context);
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
    assert_panics(release_twice, "K2: block 0 is released but free");
    assert_panics(read_without_use, "position 0 is read by a context that is not in use");
    assert_panics(write_a_state_unreserved, "a state is written that was not reserved");
    assert_panics(close_the_cache_first, "K7: 1 contexts are still open");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_steady_decode_allocates_nothing),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(creating_a_cache_fails_cleanly),
        cmocka_unit_test(a_closed_context_stays_busy),
        cmocka_unit_test(contexts_have_a_ceiling),
        cmocka_unit_test(has_room_counts_a_tail),
        cmocka_unit_test(logits_need_room),
        cmocka_unit_test(case_34_misuse_stops_by_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
