/* test_store_faults.c - file calls that fail, fall short, are interrupted, or give other bytes the second time (cases
 * 31, 32), by faults/shim.h in front of the C library's. First each by name, then every single call of each operation. */
#include "test_store_fixture.h"

#include "base/sweep.h"
#include "faults/shim.h"

#include <errno.h>

/* ---- the scene: 90 positions of 8 KiB, three chunks ---- */

static const shape big = {RAMET_KV_F32, 4, 4, 64};

typedef struct scene {
    world w;
    content c;
    ramet_context *context;
    const char *path;
} scene;

static void open_scene(scene *s) {
    static char path[160];
    open_world(&s->w, big, 64, 512, 5);
    s->c = make_content(&s->w.layout, 90);
    s->context = make_context(&s->w, &s->c);
    snprintf(path, sizeof path, "%s", in_directory("faults.ramet"));
    s->path = path;
    shim_watch(directory);
    assert_ok(save(&s->w, s->context, NULL, path, NULL, error));
}

static void close_scene(scene *s) {
    shim_watch(NULL);
    close_context(&s->context);
    free_content(&s->c);
    unlink(s->path);
    close_world(&s->w);
}

static uint64_t live_pages(const world *w) {
    return stats_of(w).pages_live;
}

/* Preads of a restore: preamble, header, checksums, three chunks; the last four twice where pages must be evicted. */
enum { N_PREADS = 6, N_PREADS_TWICE = 10 };

static void restore_under(scene *s, unsigned n_preads, shim_effect kind, int error_number, ramet_status expected) {
    ramet_context *back;
    uint64_t live = live_pages(&s->w);
    for (unsigned nth = 1; nth <= n_preads; nth++) {
        shim_arm(SHIM_READ, kind, nth, error_number);
        ramet_status status = restore(&s->w, s->path, &back, NULL);
        assert_true(shim_disarm(NULL));
        assert_status(expected, status);
        if (status == RAMET_OK) {
            assert_holds(&s->w, back, &s->c);
            close_context(&back);
        }
        assert_null(back);
        assert_int_equal(live_pages(&s->w), live);
        assert_ok(ramet_cache_check(s->w.cache, error));
    }
    shim_arm(SHIM_READ, kind, n_preads + 1, error_number); /* there are no more */
    assert_ok(restore(&s->w, s->path, &back, error));
    assert_false(shim_disarm(NULL));
    close_context(&back);
}

static void test_case_31_reads_fail_while_restoring(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    restore_under(&s, N_PREADS, SHIM_FLIP, 0, RAMET_E_CORRUPT);
    restore_under(&s, N_PREADS, SHIM_ERROR, EIO, RAMET_E_IO);
    restore_under(&s, N_PREADS, SHIM_ERROR, EINTR, RAMET_OK);
    restore_under(&s, N_PREADS, SHIM_SHORT, 0, RAMET_OK);
    assert_holds(&s.w, s.context, &s.c);
    close_scene(&s);
}

/* Fills the slab: the context's two pages, and three that the tree alone holds. */
static uint64_t fill_slab(scene *s) {
    content c = make_content(&s->w.layout, 150);
    ramet_context *filler = make_context(&s->w, &c);
    retain(filler);
    close_context(&filler);
    free_content(&c);
    return live_pages(&s->w);
}

/* Where the pages of the tree must go the file is read twice, and the second reading is believed no more than the
 * first: a flip in it means that the file that was checked is not the file that is read. */
static void test_case_31_changes_between_two_readings(void **state) {
    (void)state;
    scene s;
    ramet_context *back;
    open_scene(&s);
    for (unsigned nth = 1; nth <= N_PREADS_TWICE; nth++) {
        uint64_t live = fill_slab(&s);
        shim_arm(SHIM_READ, SHIM_FLIP, nth, 0);
        ramet_status status = restore(&s.w, s.path, &back, NULL);
        assert_true(shim_disarm(NULL));
        assert_status(RAMET_E_CORRUPT, status);
        assert_null(back);
        if (nth <= N_PREADS) assert_int_equal(live_pages(&s.w), live); /* nothing was evicted */
        assert_ok(ramet_cache_check(s.w.cache, error));
        ramet_tree_clear(s.w.cache);
    }
    fill_slab(&s);
    shim_arm(SHIM_READ, SHIM_FLIP, N_PREADS_TWICE + 1, 0); /* there are no more */
    assert_ok(restore(&s.w, s.path, &back, error));
    assert_false(shim_disarm(NULL));
    assert_holds(&s.w, back, &s.c);
    close_context(&back);
    close_scene(&s);
}

/* ---- blocks that come back: two pages of five pieces each, and a row ---- */

typedef struct spill_scene {
    world w;
    content c, other;
    ramet_context *context, *stranger; /* both are out */
} spill_scene;

static ramet_status write_out(ramet_context *context, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(context, error));
    ramet_status status = ramet_context_write_out(context, error);
    ramet_context_leave(context);
    return status;
}

static void open_spill_scene(spill_scene *s) {
    open_spilling_world(&s->w, big, 64, 512, 5, directory);
    s->c = make_content(&s->w.layout, 90);
    s->other = make_content(&s->w.layout, 20);
    s->context = make_context(&s->w, &s->c);
    s->stranger = make_context(&s->w, &s->other);
    assert_ok(write_out(s->context, error));
    assert_ok(write_out(s->stranger, error));
    shim_watch(directory);
}

static void close_spill_scene(spill_scene *s) {
    shim_watch(NULL);
    assert_holds(&s->w, s->stranger, &s->other);
    close_context(&s->context);
    close_context(&s->stranger);
    free_content(&s->c);
    free_content(&s->other);
    close_world(&s->w);
    assert_int_equal(count_files(), 0);
}

/* The nth call of the use fails; false: it has fewer. */
static bool fail_use(shim_call call, shim_effect effect, unsigned nth, int error_number, ramet_status expected,
                     bool is_for_good) {
    spill_scene s;
    ramet_error why = {0};
    open_spill_scene(&s);
    shim_arm(call, effect, nth, error_number);
    ramet_status status = try_enter(s.context, &why);
    bool has_struck = shim_disarm(NULL);
    if (has_struck) {
        assert_status(expected, status);
        assert_int_equal(why.code, expected);
        assert_true(why.message[0]);
        assert_int_equal(ramet_context_length(s.context), is_for_good ? 0 : 90);
        assert_int_equal(stats_of(&s.w).contexts_lost, is_for_good);
        assert_ok(ramet_cache_check(s.w.cache, error));
        if (is_for_good)
            assert_status(expected, try_enter(s.context, NULL));
        else
            assert_holds(&s.w, s.context, &s.c);
    } else {
        assert_status(RAMET_OK, status);
        ramet_context_leave(s.context);
    }
    close_spill_scene(&s);
    return has_struck;
}

static void test_k9_reads_fail_while_coming_back(void **state) {
    (void)state;
    unsigned n = 0;
    while (fail_use(SHIM_READ, SHIM_FLIP, n + 1, 0, RAMET_E_AUTHENTICATION, true)) n++;
    assert_true(n > 3);
    n = 0;
    while (fail_use(SHIM_READ, SHIM_ERROR, n + 1, EIO, RAMET_E_IO, true)) n++;
    assert_true(n > 3);
    n = 0;
    while (fail_use(SHIM_OPEN, SHIM_ERROR, n + 1, EMFILE, RAMET_E_NO_MEMORY, false)) n++;
    assert_int_equal(n, 3);
}

/* ---- writing ---- */

static void save_under(scene *s, shim_call call, shim_effect kind, unsigned nth, int error_number,
                       ramet_status expected) {
    uint32_t files = count_files();
    shim_arm(call, kind, nth, error_number);
    ramet_status status = save(&s->w, s->context, NULL, s->path, NULL, NULL);
    assert_true(shim_disarm(NULL));
    assert_status(expected, status);
    assert_int_equal(count_files(), files);
    assert_ok(ramet_store_verify(s->path, NULL, error)); /* the old one or the new one, whole */
}

static void test_case_32_writes_fail(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    for (unsigned nth = 1; nth <= 5; nth++) { /* header, three chunks, checksums */
        save_under(&s, SHIM_WRITE, SHIM_ERROR, nth, EIO, RAMET_E_IO);
        save_under(&s, SHIM_WRITE, SHIM_ERROR, nth, ENOSPC, RAMET_E_NO_DISK);
        save_under(&s, SHIM_WRITE, SHIM_ERROR, nth, EDQUOT, RAMET_E_NO_DISK);
        save_under(&s, SHIM_WRITE, SHIM_ERROR, nth, EINTR, RAMET_OK);
        save_under(&s, SHIM_WRITE, SHIM_SHORT, nth, 0, RAMET_OK);
    }
    save_under(&s, SHIM_RESERVE, SHIM_ERROR, 1, ENOSPC, RAMET_E_NO_DISK);
    save_under(&s, SHIM_RESERVE, SHIM_ERROR, 1, EIO, RAMET_E_IO);
    save_under(&s, SHIM_RESERVE, SHIM_ERROR, 1, EINTR, RAMET_OK);
    save_under(&s, SHIM_RESERVE, SHIM_ERROR, 1, EOPNOTSUPP, RAMET_OK); /* some file systems cannot */
    close_scene(&s);
}

static void test_case_32_publishing_fails(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    save_under(&s, SHIM_SYNC, SHIM_ERROR, 1, EIO, RAMET_E_IO); /* of the file */
    save_under(&s, SHIM_SYNC, SHIM_ERROR, 2, EIO,
               RAMET_E_IO); /* of the directory: the new file is there, maybe not for ever */
    save_under(&s, SHIM_CLOSE, SHIM_ERROR, 1, EIO, RAMET_E_IO);
    save_under(&s, SHIM_CLOSE, SHIM_ERROR, 1, ENOSPC, RAMET_E_NO_DISK);
    save_under(&s, SHIM_RENAME, SHIM_ERROR, 1, EIO, RAMET_E_IO);
    save_under(&s, SHIM_RENAME, SHIM_ERROR, 1, ENOSPC, RAMET_E_NO_DISK);
    close_scene(&s);
}

/* Who asks for no sync gets none, and every other failure still. */
static void test_case_32_publishing_without_sync_fails(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    const ramet_snapshot_options options = {.skip_sync = true};
    static const shim_call steps[] = {SHIM_CLOSE, SHIM_RENAME};
    bytes old = read_file(s.path);
    uint32_t files = count_files();
    for (size_t i = 0; i < 2; i++) {
        shim_arm(steps[i], SHIM_ERROR, 1, EIO);
        ramet_status status = save(&s.w, s.context, &options, s.path, NULL, NULL);
        assert_true(shim_disarm(NULL));
        assert_status(RAMET_E_IO, status);
        assert_int_equal(count_files(), files);
        assert_ok(ramet_store_verify(s.path, NULL, error));
    }
    shim_arm(SHIM_SYNC, SHIM_ERROR, 1, EIO);
    assert_ok(save(&s.w, s.context, &options, s.path, NULL, error));
    assert_false(shim_disarm(NULL));
    bytes fresh = read_file(s.path); /* the bytes do not say how they were saved */
    assert_int_equal(fresh.n, old.n);
    assert_memory_equal(fresh.data, old.data, old.n);
    free(old.data);
    free(fresh.data);
    close_scene(&s);
}

/* A spill that fails at any step leaves the context where it was. It syncs nothing. */
static void test_case_32_spill_writes_fail(void **state) {
    (void)state;
    static const shim_call steps[] = {SHIM_OPEN, SHIM_WRITE, SHIM_CLOSE};
    spill_scene s;
    open_spill_scene(&s);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        for (unsigned nth = 1;; nth++) {
            assert_holds(&s.w, s.context, &s.c); /* it is back */
            shim_arm(steps[i], SHIM_ERROR, nth, ENOSPC);
            ramet_status status = write_out(s.context, NULL);
            if (!shim_disarm(NULL)) {
                assert_status(RAMET_OK, status);
                assert_true(nth > 3);
                break;
            }
            assert_status(RAMET_E_NO_DISK, status);
            assert_false(ramet_context_is_spilled(s.context));
            assert_ok(ramet_cache_check(s.w.cache, error));
        }
    assert_holds(&s.w, s.context, &s.c);
    shim_arm(SHIM_SYNC, SHIM_ERROR, 1, EIO);
    assert_ok(write_out(s.context, error));
    assert_false(shim_disarm(NULL));
    assert_holds(&s.w, s.context, &s.c);
    close_spill_scene(&s);
}

/* The same where nobody asked for it: a context that grows needs the room of another one. */
static void test_case_32_no_room_and_no_disk(void **state) {
    (void)state;
    world w;
    open_spilling_world(&w, big, 64, 512, 3, directory);
    content idle = make_content(&w.layout, 100), busy = make_content(&w.layout, 120);
    ramet_context *idle_context = make_context(&w, &idle), *busy_context;
    assert_ok(ramet_cache_context_create(w.cache, &busy_context, error));
    enter(busy_context);
    extend(&w, busy_context, &busy, 60);
    shim_watch(directory);
    for (unsigned nth = 1; nth <= 3; nth++) {
        ramet_error why = {0};
        shim_arm(SHIM_WRITE, SHIM_ERROR, 1, ENOSPC);
        assert_status(RAMET_E_NO_DISK, ramet_context_writable(busy_context, 60, &why));
        assert_true(shim_disarm(NULL));
        assert_true(why.message[0]);
        assert_int_equal(ramet_context_length(busy_context), 60);
        assert_false(ramet_context_is_spilled(idle_context));
    }
    shim_watch(NULL);
    extend(&w, busy_context, &busy, 120);
    assert_true(ramet_context_is_spilled(idle_context));
    ramet_context_leave(busy_context);
    assert_holds(&w, idle_context, &idle);
    assert_holds(&w, busy_context, &busy);
    close_context(&idle_context);
    close_context(&busy_context);
    free_content(&idle);
    free_content(&busy);
    close_world(&w);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_case_31_reads_fail_while_restoring),
        cmocka_unit_test(test_case_31_changes_between_two_readings),
        cmocka_unit_test(test_k9_reads_fail_while_coming_back),
        cmocka_unit_test(test_case_32_writes_fail),
        cmocka_unit_test(test_case_32_publishing_fails),
        cmocka_unit_test(test_case_32_publishing_without_sync_fails),
        cmocka_unit_test(test_case_32_spill_writes_fail),
        cmocka_unit_test(test_case_32_no_room_and_no_disk),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
