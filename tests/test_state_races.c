/* test_state_races.c - eight threads and a pager that is slow, full or forgetful: bytes on their way while their block is
 * used, shared, cut and closed (case 33), blocks that are lost meanwhile. Meant for ThreadSanitizer too. */
#include "test_state_expect.h"

enum { SPILLERS = 8, PARENT = 6 * 16 + 5 };

typedef struct storm {
    test_pager pager;
    ramet_cache *cache;
    ramet_context *parent;
    atomic_bool is_over;
    atomic_uint n_used, n_refused;
} storm;

typedef struct spiller {
    storm *s;
    uint32_t number, n_rounds;
    uint64_t rng;
} spiller;

/* Where the disk may be full, or all the memory in use by the others. */
static bool goes_well(storm *s, ramet_status status) {
    EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET || status == RAMET_E_NO_DISK);
    atomic_fetch_add(status == RAMET_OK ? &s->n_used : &s->n_refused, 1);
    return status == RAMET_OK;
}

/* [inside] */
static void use_and_look(spiller *me, ramet_context *context, uint32_t n_more) {
    if (!goes_well(me->s, ramet_context_use(context, NULL))) return;
    EXPECT(is_lawful(context));
    int32_t tokens[40];
    for (uint32_t i = 0; i < n_more; i++) tokens[i] = (int32_t)(me->number * 100 + i);
    if (n_more > 0) goes_well(me->s, try_extend(context, tokens, n_more, NULL));
    EXPECT(is_lawful(context));
}

static void live_as_a_child(spiller *me, ramet_context *child) {
    storm *s = me->s;
    for (int turn = 0; turn < 3; turn++) {
        EXPECT(ramet_context_enter(child, NULL) == RAMET_OK);
        uint32_t length = ramet_context_length(child), what = (uint32_t)(draw_from(&me->rng) % 8);
        if (what == 0)
            EXPECT(ramet_context_cut(child, (uint32_t)(draw_from(&me->rng) % (length + 1)), NULL) == RAMET_OK);
        if (what == 1) {
            const ramet_retain how = {.owner = me->number % 2 ? "ann" : NULL, .is_pinned = me->number == 3};
            ramet_status status = ramet_tree_retain(child, &how, NULL);
            EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET);
        }
        if (what == 2) goes_well(s, ramet_context_write_out(child, NULL));
        use_and_look(me, child, what < 5 ? (uint32_t)(draw_from(&me->rng) % 40) : 0);
        ramet_context_leave(child);
    }
    EXPECT(ramet_context_enter(child, NULL) == RAMET_OK);
    ramet_context_destroy(&child);
}

static void *fork_write_spill_use_close(void *user) {
    spiller *me = user;
    for (uint32_t i = 0; i < me->n_rounds; i++) {
        ramet_context *child = NULL;
        enter_patiently(me->s->parent);
        uint32_t what = (uint32_t)(draw_from(&me->rng) % 4);
        if (what == 0) goes_well(me->s, ramet_context_write_out(me->s->parent, NULL));
        if (what == 1) use_and_look(me, me->s->parent, 0);
        EXPECT(ramet_context_share(me->s->parent, &child, NULL) == RAMET_OK);
        ramet_context_leave(me->s->parent);
        if (child) live_as_a_child(me, child);
    }
    return NULL;
}

/* Looks at the counters all the time, and at everything now and then. */
static void *watch(void *user) {
    storm *s = user;
    for (uint32_t i = 0; !atomic_load(&s->is_over); i++) {
        EXPECT(stats_of(s->cache).memory_bytes <= s->cache->options.budget_bytes);
        ramet_error error;
        bool is_sound = i % 64 != 0 || ramet_cache_check(s->cache, &error) == RAMET_OK;
        if (!is_sound) print_error("%s\n", error.message);
        EXPECT(is_sound);
        sched_yield();
    }
    return NULL;
}

static void run_storm(storm *s, uint32_t n_rounds) {
    pthread_t threads[SPILLERS], watcher;
    spiller spillers[SPILLERS];
    atomic_store(&n_failures, 0);
    assert_int_equal(pthread_create(&watcher, NULL, watch, s), 0);
    for (uint32_t i = 0; i < SPILLERS; i++) {
        spillers[i] = (spiller){.s = s, .number = i, .n_rounds = n_rounds, .rng = i * 991 + 17};
        assert_int_equal(pthread_create(&threads[i], NULL, fork_write_spill_use_close, &spillers[i]), 0);
    }
    for (uint32_t i = 0; i < SPILLERS; i++) pthread_join(threads[i], NULL);
    atomic_store(&s->is_over, true);
    pthread_join(watcher, NULL);
    assert_int_equal(atomic_load(&n_failures), 0);
    assert_no_misuse(&s->pager);
}

/* A cache for three of the eight at work; every so many blocks one takes `slow_us`. */
static void open_storm(storm *s, uint32_t n_pages, uint32_t slow_each, uint32_t slow_us) {
    memset(s, 0, sizeof *s);
    ramet_cache_options options = options_of(16, n_pages, 40);
    options.state_bytes = 24;
    options.pin_budget_bytes = options.tree_budget_bytes / 4;
    options.budget_bytes += 400;
    s->cache = open_paged_cache(&s->pager, options);
    s->pager.watched = NULL; /* it is not one thread that uses it */
    s->pager.slow_each = slow_each;
    s->pager.slow_us = slow_us;
    s->parent = leave_context(s->cache, PARENT, 1);
}

static void close_storm(storm *s) {
    printf("%u uses, %u refused, %llu blocks written, %llu read, %llu evictions\n", atomic_load(&s->n_used),
           atomic_load(&s->n_refused), (unsigned long long)s->pager.written.n, (unsigned long long)s->pager.read.n,
           (unsigned long long)stats_of(s->cache).tree_evictions);
    s->pager.write_fails = RAMET_OK;
    s->pager.slow_each = 0;
    assert_lawful(s->parent);
    assert_int_equal(stats_of(s->cache).contexts_lost, 0);
    close_left(&s->parent);
    close_paged_cache(&s->pager, &s->cache);
}

static void case_33_spills_race_use_of_one_parent(void **state) {
    (void)state;
    storm s;
    open_storm(&s, 36, 400, 100000);
    run_storm(&s, 60);
    assert_true(s.pager.written.n > 100 && s.pager.read.n > 100);
    assert_true(atomic_load(&s.n_used) > atomic_load(&s.n_refused));
    close_storm(&s);
}

/* More often, and less slow: what moves is met by whoever wants it. */
static void case_33_many_short_moves(void **state) {
    (void)state;
    storm s;
    open_storm(&s, 15, 3, 50);
    run_storm(&s, 120);
    assert_true(s.pager.written.n > 1000 && s.pager.read.n > 500);
    close_storm(&s);
}

/* The disk is full from some time on: entries go, by whoever wants room, while others allocate, match and keep. */
static void evictions_race_allocations(void **state) {
    (void)state;
    storm s;
    open_storm(&s, 60, 0, 0);
    s.pager.writes_before = 10;
    s.pager.write_fails = RAMET_E_NO_DISK;
    run_storm(&s, 120);
    assert_true(stats_of(s.cache).tree_evictions > 20);
    close_storm(&s);
}

/* ---- blocks that are lost, and reads that are refused, while all goes on ---- */

enum { MOST = 24 };

/* A context is in the pool or one thread's. */
typedef struct pool {
    storm s;
    pthread_mutex_t lock;
    ramet_context *contexts[MOST];
    uint32_t n;
} pool;

typedef struct swimmer {
    pool *p;
    uint32_t number;
    uint64_t rng;
} swimmer;

static uint32_t below(swimmer *me, uint32_t n) {
    return (uint32_t)(draw_from(&me->rng) % n);
}

/* NULL: there is none. */
static ramet_context *take_one(swimmer *me) {
    pool *p = me->p;
    pthread_mutex_lock(&p->lock);
    ramet_context *context = NULL;
    if (p->n > 0) {
        ramet_context **place = &p->contexts[below(me, p->n)];
        context = *place;
        *place = p->contexts[--p->n];
    }
    pthread_mutex_unlock(&p->lock);
    return context;
}

static void close_inside(ramet_context **context) {
    EXPECT(ramet_context_enter(*context, NULL) == RAMET_OK);
    ramet_context_destroy(context);
}

/* It is left. */
static void put_one(pool *p, ramet_context *context) {
    pthread_mutex_lock(&p->lock);
    bool is_full = p->n == MOST;
    if (!is_full) p->contexts[p->n++] = context;
    pthread_mutex_unlock(&p->lock);
    if (is_full) close_inside(&context);
}

static bool is_lost(ramet_status status) {
    EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET || status == RAMET_E_NO_MEMORY || status == RAMET_E_CORRUPT);
    return status == RAMET_E_CORRUPT;
}

/* [inside] False: it is lost. */
static bool work(swimmer *me, ramet_context *context) {
    ramet_status status = ramet_context_use(context, NULL);
    if (is_lost(status)) {
        EXPECT(ramet_context_length(context) == 0);
        return false;
    }
    if (status != RAMET_OK) return true;
    int32_t tokens[40];
    uint32_t n = below(me, 40);
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)(below(me, 2) + i);
    EXPECT(is_lawful(context));
    status = try_extend(context, tokens, n, NULL);
    EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET);
    EXPECT(is_lawful(context));
    return true;
}

/* [inside] Keeps it, and finds it or another one. */
static void keep_and_find(swimmer *me, ramet_context *context) {
    int32_t tokens[250];
    uint32_t n = ramet_context_length(context), matched;
    const ramet_retain how = {.owner = me->number % 2 ? "ann" : NULL, .is_pinned = below(me, 4) == 0};
    ramet_context_read_tokens(context, 0, n, tokens);
    is_lost(ramet_tree_retain(context, &how, NULL));
    ramet_context *hit;
    EXPECT(ramet_tree_match(me->p->s.cache, how.owner, tokens, n, &hit, &matched, NULL) == RAMET_OK);
    if (hit) put_one(me->p, hit);
}

static void *swim(void *user) {
    swimmer *me = user;
    pool *p = me->p;
    for (int i = 0; i < 400; i++) {
        ramet_context *context = take_one(me), *fork = NULL;
        if (!context && ramet_cache_context_create(p->s.cache, &context, NULL) != RAMET_OK) continue;
        EXPECT(ramet_context_enter(context, NULL) == RAMET_OK);
        bool is_alive = true;
        uint32_t what = below(me, 8);
        if (what == 0 || ramet_context_length(context) > 150)
            is_alive = ramet_context_cut(context, 10, NULL) == RAMET_OK;
        if (what == 1) is_lost(ramet_context_share(context, &fork, NULL));
        if (what == 2) is_lost(ramet_context_write_out(context, NULL));
        if (what == 3) keep_and_find(me, context);
        if (what > 3) is_alive = work(me, context);
        if (fork) put_one(p, fork);
        ramet_context_leave(context);
        if (is_alive)
            put_one(p, context);
        else
            close_inside(&context);
    }
    return NULL;
}

static void losses_race_use(void **state) {
    (void)state;
    static pool p;
    pthread_t threads[SPILLERS], watcher;
    swimmer swimmers[SPILLERS];
    open_storm(&p.s, 20, 7, 20);
    close_left(&p.s.parent);
    p.s.pager.lose_each = 97;
    p.s.pager.refuse_each = 11;
    pthread_mutex_init(&p.lock, NULL);
    atomic_store(&n_failures, 0);
    assert_int_equal(pthread_create(&watcher, NULL, watch, &p.s), 0);
    for (uint32_t i = 0; i < SPILLERS; i++) {
        swimmers[i] = (swimmer){.p = &p, .number = i, .rng = i * 313 + 7};
        assert_int_equal(pthread_create(&threads[i], NULL, swim, &swimmers[i]), 0);
    }
    for (uint32_t i = 0; i < SPILLERS; i++) pthread_join(threads[i], NULL);
    atomic_store(&p.s.is_over, true);
    pthread_join(watcher, NULL);
    assert_int_equal(atomic_load(&n_failures), 0);
    assert_no_misuse(&p.s.pager);
    printf("%llu blocks written, %llu read, %llu contexts lost\n", (unsigned long long)p.s.pager.written.n,
           (unsigned long long)p.s.pager.read.n, (unsigned long long)stats_of(p.s.cache).contexts_lost);
    assert_true(stats_of(p.s.cache).contexts_lost > 3);
    for (uint32_t i = 0; i < p.n; i++) close_left(&p.contexts[i]);
    close_paged_cache(&p.s.pager, &p.s.cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_33_spills_race_use_of_one_parent),
        cmocka_unit_test(case_33_many_short_moves),
        cmocka_unit_test(evictions_race_allocations),
        cmocka_unit_test(losses_race_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
