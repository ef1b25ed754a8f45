/* test_store_spill.c - K9: spilled means no pages, and reads back exactly; a lost file is an error, not wrong rows. */
#include "test_store_fixture.h"

#include "base/temporary.h"

static const shape shapes[] = {
    {RAMET_KV_F32, 2, 2, 16}, {RAMET_KV_F16, 1, 3, 40}, {RAMET_KV_VQ8, 2, 1, 64}, {RAMET_KV_Q8, 1, 2, 48}};

static ramet_status spill(const world *w, ramet_context *context, const char *where, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_store_spill(context, &w->identity, NULL, where, crew, error);
    ramet_context_leave(context);
    return status;
}

static ramet_status unspill(const world *w, ramet_context *context, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_store_unspill(context, &w->identity, NULL, crew, error);
    ramet_context_leave(context);
    return status;
}

static void close_spilled(ramet_context **context) {
    assert_ok(ramet_context_enter(*context, error));
    ramet_store_forget_spill(*context);
    ramet_context_destroy(context);
}

static uint64_t live_pages(const world *w) {
    ramet_engine_stats stats;
    ramet_cache_get_stats(w->cache, &stats);
    return stats.pages_live;
}

static void test_round_trip_k9(void **state) {
    (void)state;
    static const uint32_t lengths[] = {0, 1, 63, 64, 65, 130};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 6; k++) {
            world w;
            open_world(&w, shapes[i], 64, 512, 16);
            content c = make_content(&w.layout, lengths[k]);
            ramet_context *context = make_context(&w, &c);
            for (int turn = 0; turn < 2; turn++) {
                assert_ok(spill(&w, context, directory, error));
                assert_int_equal(live_pages(&w), 0);
                assert_int_equal(count_files(), 1);
                assert_ok(ramet_cache_check(w.cache, error));
                assert_ok(spill(&w, context, "/nowhere", error)); /* it is there already */
                assert_ok(unspill(&w, context, error));
                assert_holds(&w, context, &c);
                assert_int_equal(count_files(), 0);
                assert_ok(unspill(&w, context, error)); /* it is resident already */
            }
            close_context(&context);
            free_content(&c);
            close_world(&w);
        }
}

/* A fork keeps its pages while the other one is away, and both go on alone. */
static void test_forks_are_not_touched(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[1], 16, 512, 64);
    content c = make_content(&w.layout, 40), longer = make_content(&w.layout, 60);
    memcpy(longer.tokens, c.tokens, 40 * sizeof *c.tokens);
    memcpy(longer.rows, c.rows, 40 * c.row_bytes);
    ramet_context *context = make_context(&w, &c), *fork;
    assert_ok(ramet_context_enter(context, error));
    assert_ok(ramet_context_share(context, &fork, error));
    ramet_context_leave(context);
    assert_ok(spill(&w, context, directory, error));
    assert_holds(&w, fork, &c);
    assert_ok(ramet_context_enter(fork, error));
    extend(&w, fork, &longer, 60);
    ramet_context_leave(fork);
    assert_ok(unspill(&w, context, error));
    assert_holds(&w, context, &c);
    assert_holds(&w, fork, &longer);
    assert_ok(ramet_context_enter(context, error)); /* what came back can be written on */
    extend(&w, context, &longer, 60);
    ramet_context_leave(context);
    assert_holds(&w, context, &longer);
    close_context(&context);
    close_context(&fork);
    free_content(&c);
    free_content(&longer);
    close_world(&w);
}

static const char *spilled_path(ramet_context *context) {
    assert_non_null(ramet_context_where(context));
    return ramet_context_where(context);
}

static void assert_lost(const world *w, ramet_context *context, ramet_status expected) {
    ramet_error got = {0};
    assert_status(expected, unspill(w, context, &got));
    assert_non_null(strstr(got.message, "lost"));
    assert_non_null(strstr(got.message, spilled_path(context)));
    assert_int_equal(live_pages(w), 0);
    assert_ok(ramet_cache_check(w->cache, error));
}

static void test_case_31_damaged_spill_file(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[3], 16, 512, 16);
    content c = make_content(&w.layout, 20), other = make_content(&w.layout, 20);
    ramet_context *context = make_context(&w, &c);
    assert_ok(spill(&w, context, directory, error));
    const char *path = spilled_path(context);
    bytes file = read_file(path);
    for (size_t at = 0; at < file.n; at += 61) {
        file.data[at] ^= 4;
        write_file(path, file.data, file.n);
        assert_lost(&w, context, at >= 8 && at < 12 ? RAMET_E_UNSUPPORTED : RAMET_E_CORRUPT);
        file.data[at] ^= 4;
        write_file(path, file.data, at);
        assert_lost(&w, context, RAMET_E_CORRUPT);
    }
    assert_int_equal(unlink(path), 0);
    assert_lost(&w, context, RAMET_E_NOT_FOUND);
    /* a sound file, of another context */
    ramet_context *stranger = make_context(&w, &other);
    assert_ok(save(&w, stranger, NULL, path, NULL, error));
    close_context(&stranger);
    assert_lost(&w, context, RAMET_E_CORRUPT);
    /* its own file again: it was the files */
    write_file(path, file.data, file.n);
    assert_ok(unspill(&w, context, error));
    assert_holds(&w, context, &c);
    close_context(&context);
    free(file.data);
    free_content(&c);
    free_content(&other);
    close_world(&w);
}

static void test_case_32_spill_fails(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[0], 16, 512, 16);
    content c = make_content(&w.layout, 40);
    ramet_context *context = make_context(&w, &c);
    assert_status(RAMET_E_NOT_FOUND, spill(&w, context, in_directory("missing"), NULL));
    assert_holds(&w, context, &c);
    ramet_status status = RAMET_E_NO_MEMORY;
    uint64_t n = 1;
    for (; n < 100; n++) {
        ramet_alloc_fail_after(n);
        status = spill(&w, context, directory, NULL);
        ramet_alloc_fail_after(0);
        if (status == RAMET_OK) break;
        assert_status(RAMET_E_NO_MEMORY, status);
        assert_int_equal(count_files(), 0);
        assert_holds(&w, context, &c);
    }
    assert_true(n > 2 && n < 100);
    for (n = 1; n < 1000; n++) {
        ramet_alloc_fail_after(n);
        status = unspill(&w, context, NULL);
        ramet_alloc_fail_after(0);
        if (status == RAMET_OK) break;
        assert_status(RAMET_E_NO_MEMORY, status);
        assert_int_equal(count_files(), 1);
        assert_int_equal(live_pages(&w), 0);
        assert_ok(ramet_cache_check(w.cache, error));
    }
    assert_true(n > 2 && n < 1000);
    assert_holds(&w, context, &c);
    assert_int_equal(count_files(), 0);
    close_context(&context);
    free_content(&c);
    close_world(&w);
}

/* No room to come back: it stays away, whole, until there is. */
static void test_over_budget_stays_spilled(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[0], 16, 512, 4);
    content c = make_content(&w.layout, 40), other = make_content(&w.layout, 30);
    ramet_context *context = make_context(&w, &c);
    assert_ok(spill(&w, context, directory, error));
    ramet_context *greedy = make_context(&w, &other);
    assert_status(RAMET_E_BUDGET, unspill(&w, context, NULL));
    assert_non_null(ramet_context_where(context));
    assert_ok(ramet_cache_check(w.cache, error));
    assert_holds(&w, greedy, &other);
    close_context(&greedy);
    assert_ok(unspill(&w, context, error));
    assert_holds(&w, context, &c);
    close_context(&context);
    free_content(&c);
    free_content(&other);
    close_world(&w);
}

static void test_closing_a_spilled_context(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[0], 16, 512, 16);
    content c = make_content(&w.layout, 40);
    ramet_context *context = make_context(&w, &c);
    assert_ok(spill(&w, context, directory, error));
    assert_int_equal(count_files(), 1);
    close_spilled(&context);
    assert_int_equal(count_files(), 0);
    context = make_context(&w, &c);
    ramet_store_forget_spill(context); /* resident: nothing */
    close_context(&context);
    free_content(&c);
    close_world(&w);
}

/* A process that a signal ends takes its spill files along; one that is back in memory leaves the list. */
static void test_a_spill_file_is_temporary(void **state) {
    (void)state;
    world w;
    open_world(&w, shapes[0], 16, 512, 16);
    content c = make_content(&w.layout, 40);
    ramet_context *context = make_context(&w, &c);
    assert_ok(spill(&w, context, directory, error));
    char *path = strdup(ramet_context_where(context));
    assert_non_null(path);
    assert_non_null(ramet_temporary_find(path));
    assert_ok(unspill(&w, context, error));
    assert_null(ramet_temporary_find(path));
    free(path);
    assert_ok(spill(&w, context, directory, error));
    ramet_temporary_remove_all();
    assert_int_equal(count_files(), 0);
    assert_status(RAMET_E_NOT_FOUND, unspill(&w, context, NULL));
    close_spilled(&context);
    free_content(&c);
    close_world(&w);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_k9),
        cmocka_unit_test(test_forks_are_not_touched),
        cmocka_unit_test(test_case_31_damaged_spill_file),
        cmocka_unit_test(test_case_32_spill_fails),
        cmocka_unit_test(test_over_budget_stays_spilled),
        cmocka_unit_test(test_closing_a_spilled_context),
        cmocka_unit_test(test_a_spill_file_is_temporary),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
