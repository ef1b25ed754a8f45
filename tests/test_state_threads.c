/* test_state_threads.c - sixteen threads: the busy word, children of one parent, and conversations under eviction. Meant for
 * ThreadSanitizer too (RAMET_SANITIZE=thread). */
#include "test_state_expect.h"

enum { THREADS = 16 };

static void run_threads(void *(*body)(void *), void *users, size_t user_bytes) {
    pthread_t threads[THREADS];
    atomic_store(&n_failures, 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, (uint8_t *)users + i * user_bytes), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&n_failures), 0);
}

typedef struct worker {
    ramet_cache *cache;
    ramet_context *parent;
    uint32_t number;
    uint64_t n_inside, n_busy;
    atomic_uint *inside;
} worker;

/* ---- the busy word ---- */

static void *knock(void *user) {
    worker *w = user;
    for (int i = 0; i < 2000; i++) {
        ramet_error error = {0};
        if (ramet_context_enter(w->parent, &error) != RAMET_OK) {
            EXPECT(error.code == RAMET_E_BUSY && error.message[0]);
            w->n_busy++;
            continue;
        }
        EXPECT(atomic_fetch_add(w->inside, 1) == 0); /* alone */
        if (i % 16 == 0) sched_yield();
        w->n_inside++;
        atomic_fetch_sub(w->inside, 1);
        ramet_context_leave(w->parent);
    }
    return NULL;
}

static void one_owner_at_a_time(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 10, 0);
    ramet_context *context = open_context(cache);
    assert_fails(RAMET_E_BUSY, ramet_context_enter(context, error));
    ramet_context_leave(context);
    atomic_uint inside;
    atomic_init(&inside, 0);
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) workers[i] = (worker){.parent = context, .inside = &inside};
    run_threads(knock, workers, sizeof workers[0]);
    uint64_t n_inside = 0, n_busy = 0;
    for (size_t i = 0; i < THREADS; i++) {
        n_inside += workers[i].n_inside;
        n_busy += workers[i].n_busy;
    }
    assert_int_equal(n_inside + n_busy, THREADS * 2000);
    assert_true(n_inside > 0);
    close_left(&context);
    ramet_cache_destroy(&cache);
}

/* All threads at one place, before any goes on. */
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    uint32_t n_waiting, number;
} meeting;

static void meet(meeting *m) {
    pthread_mutex_lock(&m->lock);
    uint32_t number = m->number;
    if (++m->n_waiting == THREADS) {
        m->n_waiting = 0;
        m->number++;
        pthread_cond_broadcast(&m->all_here);
    }
    while (m->number == number) pthread_cond_wait(&m->all_here, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static meeting start_line = {.lock = PTHREAD_MUTEX_INITIALIZER, .all_here = PTHREAD_COND_INITIALIZER};
enum { STARTS = 200 };

static void *enter_at_once(void *user) {
    worker *w = user;
    for (int i = 0; i < STARTS; i++) {
        meet(&start_line);
        ramet_status status = ramet_context_enter(w->parent, NULL);
        EXPECT(status == RAMET_OK || status == RAMET_E_BUSY);
        w->n_inside += status == RAMET_OK;
        w->n_busy += status == RAMET_E_BUSY;
        meet(&start_line); /* all have tried */
        if (status == RAMET_OK) {
            EXPECT(ramet_context_use(w->parent, NULL) == RAMET_OK);
            EXPECT(is_lawful(w->parent));
            ramet_context_leave(w->parent);
        }
        meet(&start_line); /* it is out */
    }
    return NULL;
}

static void of_sixteen_that_enter_one_gets_in(void **state) {
    (void)state;
    test_pager pager;
    ramet_cache *cache = open_paged_cache(&pager, options_of(16, 10, 0));
    ramet_context *context = leave_context(cache, 100, 1);
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) workers[i] = (worker){.parent = context};
    run_threads(enter_at_once, workers, sizeof workers[0]);
    uint64_t n_inside = 0, n_busy = 0;
    for (size_t i = 0; i < THREADS; i++) {
        n_inside += workers[i].n_inside;
        n_busy += workers[i].n_busy;
    }
    assert_int_equal(n_inside, STARTS);
    assert_int_equal(n_busy, STARTS * (THREADS - 1));
    close_left(&context);
    close_paged_cache(&pager, &cache);
}

/* ---- children of one parent ---- */

static void extend_inside(ramet_context *context, uint32_t n, int32_t text) {
    int32_t tokens[64];
    for (uint32_t i = 0; i < n; i++) tokens[i] = text + (int32_t)i;
    ramet_status status = try_extend(context, tokens, n, NULL);
    EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET);
}

/* Without a pager, for what is there. */
static void enter_and_expect_use(ramet_context *context) {
    EXPECT(ramet_context_enter(context, NULL) == RAMET_OK);
    EXPECT(ramet_context_use(context, NULL) == RAMET_OK);
}

static void *breed(void *user) {
    worker *w = user;
    uint64_t rng = w->number * 77 + 5;
    for (int i = 0; i < 60; i++) {
        ramet_context *child = NULL, *again = NULL;
        enter_patiently(w->parent);
        EXPECT(ramet_context_share(w->parent, &child, NULL) == RAMET_OK);
        ramet_context_leave(w->parent);
        if (!child) return NULL;

        enter_and_expect_use(child);
        if (draw_from(&rng) % 2) EXPECT(ramet_context_cut(child, (uint32_t)(draw_from(&rng) % 71), NULL) == RAMET_OK);
        extend_inside(child, (uint32_t)(draw_from(&rng) % 40), (int32_t)(draw_from(&rng) % 3));
        if (draw_from(&rng) % 2) {
            ramet_status status = retain(child, NULL);
            EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET);
        }
        int32_t tokens[200];
        uint32_t n = ramet_context_length(child), matched;
        ramet_context_read_tokens(child, 0, n, tokens);
        EXPECT(is_lawful(child));
        EXPECT(ramet_tree_match(w->cache, NULL, tokens, n, &again, &matched, NULL) == RAMET_OK);
        enter_and_expect_use(again);
        extend_inside(again, 20, (int32_t)w->number);
        EXPECT(is_lawful(again));
        if (i % 16 == 0) EXPECT(ramet_cache_check(w->cache, NULL) == RAMET_OK);
        EXPECT(is_lawful(child));
        ramet_context_destroy(&child);
        ramet_context_destroy(&again);
    }
    return NULL;
}

static void sixteen_threads_on_children_of_one_parent(void **state) {
    (void)state;
    ramet_cache *cache = open_cache(16, 300, 40);
    ramet_context *parent = leave_context(cache, 70, 0);
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) workers[i] = (worker){.cache = cache, .parent = parent, .number = i};
    run_threads(breed, workers, sizeof workers[0]);
    assert_lawful(parent);
    check(cache);
    close_left(&parent);
    ramet_cache_destroy(&cache);
}

/* ---- case 23: conversations with markers, a budget that holds two ---- */

enum { CONVERSATIONS = 10, ROUNDS = 12, TURN = 40 };

static int32_t marker(uint32_t conversation, uint32_t pos) {
    return pos < 4 ? 1 : (int32_t)(1000 * (conversation + 1) + pos);
}

static void *converse(void *user) {
    worker *w = user;
    uint64_t rng = w->number * 31 + 7;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t conversation = (uint32_t)(draw_from(&rng) % CONVERSATIONS), matched;
        int32_t tokens[3 * TURN];
        uint32_t n = TURN * (1 + (uint32_t)(draw_from(&rng) % 3));
        for (uint32_t pos = 0; pos < n; pos++) tokens[pos] = marker(conversation, pos);
        ramet_context *context;
        const ramet_retain how = {.owner = conversation % 2 ? "ann" : NULL};
        EXPECT(ramet_tree_match(w->cache, how.owner, tokens, n, &context, &matched, NULL) == RAMET_OK);
        enter_and_expect_use(context);
        EXPECT(is_lawful(context)); /* the bytes are those of its own tokens */
        EXPECT(ramet_context_common_prefix(context, tokens, n) == matched);
        ramet_status status = try_extend(context, tokens + matched, n - matched, NULL);
        EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET);
        for (uint32_t pos = 0; pos < ramet_context_length(context); pos++) {
            int32_t token;
            ramet_context_read_tokens(context, pos, 1, &token);
            EXPECT(token == marker(conversation, pos)); /* no marker crosses */
        }
        EXPECT(is_lawful(context));
        status = ramet_tree_retain(context, &how, NULL);
        EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET);
        ramet_context_destroy(&context);
    }
    return NULL;
}

static void case_23_no_marker_crosses_under_eviction(void **state) {
    (void)state;
    enum { PAGES_OF_ONE = (3 * TURN + 15) / 16 };
    ramet_cache *cache = open_cache(16, THREADS * PAGES_OF_ONE / 2, 2 * PAGES_OF_ONE);
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) workers[i] = (worker){.cache = cache, .number = i};
    for (int again = 0; again < 5; again++) {
        run_threads(converse, workers, sizeof workers[0]);
        check(cache);
    }
    assert_true(stats_of(cache).tree_evictions > 20);
    assert_true(stats_of(cache).pages_allocated >
                10 * cache->blocks[RAMET_PAGE].slab.n_touched); /* slots were reused many times */
    ramet_tree_clear(cache);
    assert_int_equal(stats_of(cache).pages_live, 0);
    ramet_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_owner_at_a_time),
        cmocka_unit_test(of_sixteen_that_enter_one_gets_in),
        cmocka_unit_test(sixteen_threads_on_children_of_one_parent),
        cmocka_unit_test(case_23_no_marker_crosses_under_eviction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
