/* test_store_crash.c - case 32: whenever the machine stops, and whatever of the calls since the last sync reached the
 * disk, a path that was saved to holds the old file or the new one, whole, and after the save has returned the new one.
 * The calls of real saves are recorded (faults/shim.h) and played to a disk that loses power (faults/crash.h); without
 * any one of the syncs in the record it must find a loss. */
#include "test_store_fixture.h"

#include "faults/crash.h"
#include "faults/shim.h"

static const shape small_shape = {RAMET_KV_F16, 1, 2, 32}, /* 256 bytes a position */
    large_shape = {RAMET_KV_F32, 4, 4, 64};                /* 8 KiB */

typedef struct recording {
    world w;
    content fresh;
    bool has_old;
    char path[160];
    bytes old_bytes, new_bytes;
    const shim_event *events;
    size_t n_events;
    /* of a walk */
    bool has_returned;
    size_t n_states, n_old, n_new, n_none, n_damaged, n_lost, n_refused;
} recording;

static void record_save(recording *r, shape s, uint32_t n_tokens, bool has_old, bool skip_sync) {
    const ramet_snapshot_options options = {.skip_sync = skip_sync};
    *r = (recording){.has_old = has_old};
    open_world(&r->w, s, 64, 512, 8);
    snprintf(r->path, sizeof r->path, "%s", in_directory("published.ramet"));
    content old = make_content(&r->w.layout, n_tokens / 2);
    r->fresh = make_content(&r->w.layout, n_tokens);
    ramet_context *context = make_context(&r->w, &old);
    if (has_old) {
        assert_ok(save(&r->w, context, NULL, r->path, NULL, error));
        r->old_bytes = read_file(r->path);
    }
    close_context(&context);
    free_content(&old);
    context = make_context(&r->w, &r->fresh);
    shim_watch(directory);
    shim_record(true);
    assert_ok(save(&r->w, context, &options, r->path, NULL, error));
    shim_record(false);
    close_context(&context);
    r->events = shim_recorded(&r->n_events);
    r->new_bytes = read_file(r->path);
}

static void end_recording(recording *r) {
    shim_watch(NULL);
    unlink(r->path);
    free_content(&r->fresh);
    free(r->old_bytes.data);
    free(r->new_bytes.data);
    close_world(&r->w);
}

static bool equals(const crash_file *f, const bytes *b) {
    return f->bytes == b->n && memcmp(f->data, b->data, b->n) == 0;
}

/* No damaged file passes for a whole one, whatever its name. */
static void assert_refused(recording *r, const crash_file *f) {
    const char *path = in_directory("after-crash");
    write_file(path, f->data, f->bytes);
    assert_int_not_equal(ramet_store_verify(path, NULL, NULL), RAMET_OK);
    unlink(path);
    r->n_refused++;
}

static void judge_published(recording *r, const crash_file *f) {
    if (!f) {
        r->n_none++;
        r->n_lost += r->has_old || r->has_returned;
    } else if (equals(f, &r->new_bytes)) {
        r->n_new++;
    } else if (r->has_old && equals(f, &r->old_bytes)) {
        r->n_old++;
        r->n_lost += r->has_returned;
    } else {
        r->n_damaged++;
        assert_refused(r, f);
    }
}

static void judge(void *user, const crash_file *files, size_t n_files) {
    recording *r = user;
    const crash_file *published = NULL;
    for (size_t i = 0; i < n_files; i++)
        if (strcmp(files[i].path, r->path) == 0)
            published = &files[i];
        else if (!equals(&files[i], &r->new_bytes))
            assert_refused(r, &files[i]);
    judge_published(r, published);
}

/* Crashes after each call of the record. */
static void crash_everywhere(recording *r, const shim_event *events, size_t n_events, unsigned tears) {
    const crash_file old = {r->path, r->old_bytes.data, r->old_bytes.n};
    r->n_states = r->n_old = r->n_new = r->n_none = r->n_damaged = r->n_lost = r->n_refused = 0;
    for (size_t n = 0; n <= n_events; n++) {
        r->has_returned = n == n_events;
        r->n_states += crash_each(events, n, &old, r->has_old, tears, judge, r);
    }
}

static void report(const recording *r, const char *what) {
    print_message("%s: %zu calls, %zu states after a crash: %zu new, %zu old, %zu none, %zu damaged, %zu lost; "
                  "%zu unfinished files refused\n",
                  what, r->n_events, r->n_states, r->n_new, r->n_old, r->n_none, r->n_damaged, r->n_lost, r->n_refused);
}

/* The published path restores what was saved. */
static void assert_new_restores(recording *r) {
    ramet_context *back;
    assert_ok(restore(&r->w, r->path, &back, error));
    assert_holds(&r->w, back, &r->fresh);
    close_context(&back);
}

/* The record without its nth sync. */
static size_t without_sync(const recording *r, unsigned nth, shim_event *out) {
    size_t n = 0;
    unsigned n_syncs = 0;
    for (size_t i = 0; i < r->n_events; i++)
        if (r->events[i].call != SHIM_SYNC || ++n_syncs != nth) out[n++] = r->events[i];
    assert_int_equal(n, r->n_events - 1);
    return n;
}

static void must_find_losses(recording *r, unsigned tears) {
    static shim_event fewer[64];
    assert_true(r->n_events <= 64);
    size_t n = without_sync(r, 1, fewer);
    crash_everywhere(r, fewer, n, tears);
    print_message("control: without the sync of the file %zu damaged of %zu\n", r->n_damaged, r->n_states);
    assert_true(r->n_damaged > 0);
    n = without_sync(r, 2, fewer);
    crash_everywhere(r, fewer, n, tears);
    print_message("control: without the sync of the directory %zu lost of %zu\n", r->n_lost, r->n_states);
    assert_true(r->n_lost > 0);
    assert_int_equal(r->n_damaged, 0);
}

static void try_crashes(shape s, uint32_t n_tokens, unsigned tears, const char *what) {
    for (int has_old = 0; has_old < 2; has_old++) {
        recording r;
        record_save(&r, s, n_tokens, has_old, false);
        crash_everywhere(&r, r.events, r.n_events, tears);
        report(&r, what);
        assert_int_equal(r.n_damaged, 0);
        assert_int_equal(r.n_lost, 0);
        assert_true(r.n_states > 200 && r.n_new > 0 && r.n_refused > 0);
        assert_true((has_old ? r.n_old : r.n_none) > 0);
        assert_new_restores(&r);
        must_find_losses(&r, tears);
        end_recording(&r);
    }
}

static void test_case_32_every_crash_of_a_small_save(void **state) {
    (void)state;
    try_crashes(small_shape, 20, 1, "5 KB, torn at every 512 bytes");
}

static void test_case_32_crashes_of_a_large_save(void **state) {
    (void)state;
    try_crashes(large_shape, 90, 1999, "740 KB, torn now and then");
}

/* Who asks for no sync gets none, and the model knows. */
static void test_control_a_save_without_sync_is_lost(void **state) {
    (void)state;
    recording r;
    record_save(&r, small_shape, 20, true, true);
    crash_everywhere(&r, r.events, r.n_events, 1);
    report(&r, "control: no sync at all");
    assert_true(r.n_damaged > 0 && r.n_lost > 0);
    end_recording(&r);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_case_32_every_crash_of_a_small_save),
        cmocka_unit_test(test_case_32_crashes_of_a_large_save),
        cmocka_unit_test(test_control_a_save_without_sync_is_lost),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
