/* test_store_threads.c - sixteen threads on a few contexts and their forks: snapshots and restores beside forks that
 * rewrite the shared prefix, evictions beside allocations, spills beside use. Whatever happens, each row of a context is
 * the one that its tokens ask for. Meant for ThreadSanitizer too. Failures are counted: a thread cannot leave a test. */
#include "test_store_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 16, ROUNDS = 150, SHARED = 5, PREFIX = 70, LONGEST = 140, PAGE_TOKENS = 16 };

static atomic_uint n_failures, n_busy, n_spills, n_snapshots, n_without_room;
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition) && atomic_fetch_add(&n_failures, 1) == 0)                                                     \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                    \
    } while (0)

typedef struct worker {
    const world *w;
    ramet_context **shared;
    uint32_t number;
    uint64_t rng;
} worker;

static uint32_t below(worker *me, uint32_t n) {
    me->rng ^= me->rng << 13;
    me->rng ^= me->rng >> 7;
    me->rng ^= me->rng << 17;
    return (uint32_t)((me->rng * UINT64_C(0x2545f4914f6cdd1d) >> 33) % n);
}

/* ---- rows that follow from the tokens ---- */

enum { ROW_BYTES = 128 }; /* of the shape below */
static const shape one_shape = {RAMET_KV_F16, 2, 1, 16};

static uint64_t next_of(uint64_t before, int32_t token) {
    uint64_t h = (before ^ (uint32_t)token) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static void make_row(uint64_t h, uint8_t *out) {
    for (size_t i = 0; i < ROW_BYTES; i += 8, h = next_of(h, 1)) memcpy(out + i, &h, 8);
}

/* [used] */
static bool is_lawful(const world *w, const ramet_context *context) {
    uint64_t h = 1;
    uint8_t row[ROW_BYTES], should[ROW_BYTES];
    for (uint32_t pos = 0; pos < ramet_context_length(context); pos++) {
        int32_t token;
        ramet_context_read_tokens(context, pos, 1, &token);
        h = next_of(h, token);
        make_row(h, should);
        ramet_kv_export(&w->layout, ramet_context_page_read(context, pos), pos % PAGE_TOKENS, 1, row);
        if (memcmp(row, should, ROW_BYTES) != 0) return false;
    }
    return true;
}

/* [used] Writes rows [from, to) as the tokens ask, those of the context and then `more`. */
static void put_rows(const world *w, ramet_context *context, const int32_t *more, uint32_t from, uint32_t to) {
    uint64_t h = 1;
    uint8_t row[ROW_BYTES];
    for (uint32_t pos = 0; pos < to; pos++) {
        int32_t token;
        if (pos < ramet_context_length(context))
            ramet_context_read_tokens(context, pos, 1, &token);
        else
            token = more[pos - ramet_context_length(context)];
        h = next_of(h, token);
        if (pos < from) continue;
        make_row(h, row);
        ramet_kv_import(&w->layout, ramet_context_page_write(context, pos), pos % PAGE_TOKENS, 1, row);
    }
}

static bool has_room(ramet_status status) {
    EXPECT(status == RAMET_OK || status == RAMET_E_BUDGET);
    if (status == RAMET_E_BUDGET) atomic_fetch_add(&n_without_room, 1);
    return status == RAMET_OK;
}

/* Enters and uses it; false: there is no room beside what others use, and it is left. */
static bool enter_if_room(ramet_context *context) {
    return has_room(try_enter(context, NULL));
}

/* [used] */
static void grow(const world *w, ramet_context *context, uint32_t n, int32_t first) {
    int32_t tokens[LONGEST];
    uint32_t length = ramet_context_length(context);
    for (uint32_t i = 0; i < n; i++) tokens[i] = (first + (int32_t)i) % N_VOCAB;
    if (!has_room(ramet_context_writable(context, n, NULL))) return;
    put_rows(w, context, tokens, length, length + n);
    ramet_context_commit(context, tokens, n);
}

/* ---- what a thread does ---- */

/* To a file, and back into a context of its own. */
static void save_and_restore(worker *me, ramet_context *context) {
    char path[128];
    ramet_snapshot_options options = {.skip_sync = true};
    ramet_context *restored;
    snprintf(path, sizeof path, "%s/thread-%u.ramet", directory, me->number);
    EXPECT(ramet_store_save(context, &me->w->identity, &options, NULL, path, NULL, NULL, NULL) == RAMET_OK);
    if (has_room(
            ramet_store_restore(me->w->cache, &me->w->identity, NULL, path, NULL, &restored, NULL, NULL, NULL, NULL))) {
        EXPECT(ramet_context_length(restored) == ramet_context_length(context));
        if (enter_if_room(restored)) {
            EXPECT(is_lawful(me->w, restored));
            ramet_context_leave(restored);
        }
        close_context(&restored);
    }
    EXPECT(unlink(path) == 0);
    atomic_fetch_add(&n_snapshots, 1);
}

/* A fork leaves the shared prefix in its middle, or writes it again, while others read it. */
static void live_as_a_fork(worker *me, ramet_context *parent) {
    ramet_context *child;
    EXPECT(ramet_context_share(parent, &child, NULL) == RAMET_OK);
    ramet_context_leave(parent);
    if (!enter_if_room(child)) {
        close_context(&child);
        return;
    }
    uint32_t at = below(me, PREFIX);
    if (below(me, 2)) {
        if (has_room(ramet_context_rewrite(child, at, PREFIX - at, NULL))) put_rows(me->w, child, NULL, at, PREFIX);
    } else {
        EXPECT(ramet_context_cut(child, at, NULL) == RAMET_OK);
        grow(me->w, child, 1 + below(me, 40), (int32_t)me->number);
    }
    EXPECT(is_lawful(me->w, child));
    if (below(me, 2)) save_and_restore(me, child);
    if (below(me, 2)) has_room(ramet_tree_retain(child, NULL, NULL));
    EXPECT(is_lawful(me->w, child));
    ramet_context_destroy(&child);
}

static void look_up(worker *me, const ramet_context *context) {
    int32_t tokens[LONGEST];
    uint32_t n = ramet_context_length(context), matched;
    ramet_context *hit;
    ramet_context_read_tokens(context, 0, n, tokens);
    EXPECT(ramet_tree_match(me->w->cache, NULL, tokens, n, &hit, &matched, NULL) == RAMET_OK);
    EXPECT(ramet_context_length(hit) == matched);
    if (enter_if_room(hit)) {
        EXPECT(is_lawful(me->w, hit));
        grow(me->w, hit, 5, (int32_t)me->number);
        EXPECT(is_lawful(me->w, hit));
        ramet_context_leave(hit);
    }
    close_context(&hit);
}

/* [used] True: still inside. */
static bool use_one(worker *me, ramet_context *context) {
    uint32_t length = ramet_context_length(context);
    EXPECT(is_lawful(me->w, context));
    switch (below(me, 5)) {
    case 0:
        if (length + 20 > LONGEST)
            EXPECT(ramet_context_cut(context, PREFIX, NULL) == RAMET_OK);
        else
            grow(me->w, context, 1 + below(me, 20), (int32_t)me->number);
        return true;
    case 1: save_and_restore(me, context); return true;
    case 2: look_up(me, context); return true;
    default: live_as_a_fork(me, context); return false;
    }
}

static void *live(void *user) {
    worker *me = user;
    for (int round = 0; round < ROUNDS; round++) {
        ramet_context *context = me->shared[below(me, SHARED)];
        ramet_error error = {0};
        if (ramet_context_enter(context, &error) != RAMET_OK) {
            EXPECT(error.code == RAMET_E_BUSY);
            atomic_fetch_add(&n_busy, 1);
            sched_yield();
            continue;
        }
        bool is_inside = true;
        if (below(me, 6) == 0) {
            EXPECT(ramet_context_write_out(context, NULL) == RAMET_OK);
            atomic_fetch_add(&n_spills, 1);
        } else if (has_room(ramet_context_use(context, NULL))) {
            is_inside = use_one(me, context);
        }
        if (is_inside) ramet_context_leave(context);
        if (round % 32 == 0) EXPECT(ramet_cache_check(me->w->cache, NULL) == RAMET_OK);
    }
    return NULL;
}

static void run_threads(const world *w, ramet_context **shared) {
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.w = w, .shared = shared, .number = i, .rng = draw() | 1};
        assert_int_equal(pthread_create(&threads[i], NULL, live, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&n_failures), 0);
}

static void sixteen_threads_save_spill_evict_and_rewrite(void **state) {
    (void)state;
    enum { PAGES = 32 }; /* less than what the shared ones take at most */
    world w;
    open_spilling_world(&w, one_shape, PAGE_TOKENS, 512, PAGES, directory);
    assert_int_equal(w.layout.row_bytes, ROW_BYTES);
    ramet_context *shared[SHARED];
    for (uint32_t i = 0; i < SHARED; i++) {
        if (i % 2 == 0) { /* every other one is a fork of the one before */
            assert_ok(ramet_cache_context_create(w.cache, &shared[i], error));
            enter(shared[i]);
            grow(&w, shared[i], PREFIX, (int32_t)i);
            ramet_context_leave(shared[i]);
        } else {
            assert_ok(ramet_context_enter(shared[i - 1], error));
            assert_ok(ramet_context_share(shared[i - 1], &shared[i], error));
            ramet_context_leave(shared[i - 1]);
        }
    }
    run_threads(&w, shared);
    ramet_engine_stats stats = stats_of(&w);
    printf("%u spills, %llu blocks out, %llu back, %u snapshots, %llu evictions, %u calls without room, %u that met "
           "another\n",
           atomic_load(&n_spills), (unsigned long long)stats.blocks_spilled, (unsigned long long)stats.blocks_read_back,
           atomic_load(&n_snapshots), (unsigned long long)stats.tree_evictions, atomic_load(&n_without_room),
           atomic_load(&n_busy));
    assert_true(atomic_load(&n_spills) > 10 && atomic_load(&n_snapshots) > 10 && stats.tree_evictions > 10);
    assert_true(stats.blocks_read_back > 100 && stats.contexts_lost == 0);
    ramet_tree_clear(w.cache);
    for (uint32_t i = 0; i < SHARED; i++) {
        enter(shared[i]);
        assert_true(is_lawful(&w, shared[i]));
        ramet_context_destroy(&shared[i]);
    }
    close_world(&w);
    assert_int_equal(count_files(), 0);
}

/* One that is inside for long: nobody else gets in, whatever they want. */
static atomic_bool is_over;

static void *knock(void *user) {
    worker *me = user;
    uint32_t n = 0;
    for (; !atomic_load(&is_over) || n < 100; n++) {
        ramet_error error = {0};
        EXPECT(ramet_context_enter(me->shared[0], &error) == RAMET_E_BUSY && error.code == RAMET_E_BUSY);
        if (n % 16 == 0) sched_yield();
    }
    return NULL;
}

static void nobody_enters_while_one_is_inside(void **state) {
    (void)state;
    world w;
    open_spilling_world(&w, one_shape, PAGE_TOKENS, 512, 14, directory);
    content asleep_content = make_content(&w.layout, 100);
    ramet_context *asleep = make_context(&w, &asleep_content), *context;
    assert_ok(ramet_cache_context_create(w.cache, &context, error));
    enter(context);
    grow(&w, context, PREFIX, 1);
    pthread_t threads[THREADS];
    worker me = {.w = &w, .shared = &context, .rng = 5};
    for (uint32_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, knock, &me), 0);
    for (int i = 0; i < 20; i++) {
        grow(&w, context, 1, i);
        save_and_restore(&me, context); /* for which the other one has to go */
        if (i % 5 == 0) assert_holds(&w, asleep, &asleep_content);
    }
    assert_int_equal(atomic_load(&n_without_room), 0);
    atomic_store(&is_over, true);
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&n_failures), 0);
    assert_true(is_lawful(&w, context));
    assert_true(stats_of(&w).blocks_spilled > 10);
    ramet_context_destroy(&context);
    close_context(&asleep);
    free_content(&asleep_content);
    close_world(&w);
}

/* Negative control: the law sees a row of another context. */
static void the_law_sees_another_row(void **state) {
    (void)state;
    world w;
    open_world(&w, one_shape, PAGE_TOKENS, 512, 100);
    ramet_context *context;
    assert_ok(ramet_cache_context_create(w.cache, &context, error));
    enter(context);
    grow(&w, context, PREFIX, 1);
    assert_true(is_lawful(&w, context));
    ramet_context_page_write(context, 20)[0] ^= 1;
    assert_false(is_lawful(&w, context));
    ramet_context_destroy(&context);
    close_world(&w);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_law_sees_another_row),
        cmocka_unit_test(nobody_enters_while_one_is_inside),
        cmocka_unit_test(sixteen_threads_save_spill_evict_and_rewrite),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
