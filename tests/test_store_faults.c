/* test_store_faults.c - system calls that fail, fall short, are interrupted, or give other bytes the second time (cases
 * 31, 32). This program's own pread, write, pwrite, fallocate, fsync, close and rename stand in front of the C library's
 * and fail on demand. */
#include "test_store_fixture.h"

#include <dlfcn.h>
#include <errno.h>

typedef enum fault_kind { NONE, FLIP, SHORT, ERROR } fault_kind;
typedef enum fault_call { PREAD, WRITE, FALLOCATE, FSYNC, CLOSE, RENAME } fault_call; /* WRITE: pwrite too */

static struct {
    fault_kind kind;
    fault_call call;
    unsigned countdown; /* the call that it hits; 0 afterwards */
    int error_number;
} fault;

static bool hits(fault_call call) {
    return fault.kind != NONE && fault.call == call && fault.countdown > 0 && --fault.countdown == 0;
}

static void arm(fault_call call, fault_kind kind, unsigned nth, int error_number) {
    fault.kind = kind;
    fault.call = call;
    fault.countdown = nth;
    fault.error_number = error_number;
}

/* Whether it has struck; switches it off. */
static bool disarm(void) {
    bool struck = fault.countdown == 0;
    fault.kind = NONE;
    return struck;
}

#define REAL(name, type) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))

ssize_t pread(int fd, void *buffer, size_t n, off_t at) {
    bool struck = hits(PREAD);
    if (struck && fault.kind == ERROR) {
        errno = fault.error_number;
        return -1;
    }
    if (struck && fault.kind == SHORT && n > 1) n /= 2;
    ssize_t got = REAL("pread", ssize_t(*)(int, void *, size_t, off_t))(fd, buffer, n, at);
    if (struck && fault.kind == FLIP && got > 0) ((uint8_t *)buffer)[got / 2] ^= 0x20;
    return got;
}

ssize_t write(int fd, const void *buffer, size_t n) {
    bool struck = hits(WRITE);
    if (struck && fault.kind == ERROR) {
        errno = fault.error_number;
        return -1;
    }
    if (struck && fault.kind == SHORT && n > 1) n /= 2;
    return REAL("write", ssize_t(*)(int, const void *, size_t))(fd, buffer, n);
}

ssize_t pwrite(int fd, const void *buffer, size_t n, off_t at) {
    bool struck = hits(WRITE);
    if (struck && fault.kind == ERROR) {
        errno = fault.error_number;
        return -1;
    }
    if (struck && fault.kind == SHORT && n > 1) n /= 2;
    return REAL("pwrite", ssize_t(*)(int, const void *, size_t, off_t))(fd, buffer, n, at);
}

int fallocate(int fd, int mode, off_t at, off_t n) {
    if (hits(FALLOCATE)) {
        errno = fault.error_number;
        return -1;
    }
    return REAL("fallocate", int (*)(int, int, off_t, off_t))(fd, mode, at, n);
}

/* Does the work, then says that it failed. */
static int fail_after(int result, fault_call call) {
    if (!hits(call)) return result;
    errno = fault.error_number;
    return -1;
}

int fsync(int fd) {
    return fail_after(REAL("fsync", int (*)(int))(fd), FSYNC);
}
int close(int fd) {
    return fail_after(REAL("close", int (*)(int))(fd), CLOSE);
}

int rename(const char *from, const char *to) {
    if (hits(RENAME)) {
        errno = fault.error_number;
        return -1;
    }
    return REAL("rename", int (*)(const char *, const char *))(from, to);
}

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
    assert_ok(save(&s->w, s->context, NULL, path, NULL, error));
}

static void close_scene(scene *s) {
    close_context(&s->context);
    free_content(&s->c);
    unlink(s->path);
    close_world(&s->w);
}

static uint64_t live_pages(const world *w) {
    ramet_engine_stats stats;
    ramet_cache_get_stats(w->cache, &stats);
    return stats.pages_live;
}

/* Preads of a restore: preamble, header, checksums, three chunks; the last four twice where pages must be evicted. */
enum { N_PREADS = 6, N_PREADS_TWICE = 10 };

static void restore_under(scene *s, unsigned n_preads, fault_kind kind, int error_number, ramet_status expected) {
    ramet_context *back;
    uint64_t live = live_pages(&s->w);
    for (unsigned nth = 1; nth <= n_preads; nth++) {
        arm(PREAD, kind, nth, error_number);
        ramet_status status = restore(&s->w, s->path, &back, NULL);
        assert_true(disarm());
        assert_status(expected, status);
        if (status == RAMET_OK) {
            assert_holds(&s->w, back, &s->c);
            close_context(&back);
        }
        assert_null(back);
        assert_int_equal(live_pages(&s->w), live);
        assert_ok(ramet_cache_check(s->w.cache, error));
    }
    arm(PREAD, kind, n_preads + 1, error_number); /* there are no more */
    assert_ok(restore(&s->w, s->path, &back, error));
    assert_false(disarm());
    close_context(&back);
}

static void test_case_31_reads_fail_while_restoring(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    restore_under(&s, N_PREADS, FLIP, 0, RAMET_E_CORRUPT);
    restore_under(&s, N_PREADS, ERROR, EIO, RAMET_E_IO);
    restore_under(&s, N_PREADS, ERROR, EINTR, RAMET_OK);
    restore_under(&s, N_PREADS, SHORT, 0, RAMET_OK);
    assert_holds(&s.w, s.context, &s.c);
    close_scene(&s);
}

/* Fills the slab: the context's two pages, and three that the tree alone holds. */
static uint64_t fill_slab(scene *s) {
    content c = make_content(&s->w.layout, 150);
    ramet_context *filler = make_context(&s->w, &c);
    assert_ok(ramet_context_enter(filler, error));
    assert_ok(ramet_tree_retain(filler, error));
    ramet_context_destroy(&filler);
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
        arm(PREAD, FLIP, nth, 0);
        ramet_status status = restore(&s.w, s.path, &back, NULL);
        assert_true(disarm());
        assert_status(RAMET_E_CORRUPT, status);
        assert_null(back);
        if (nth <= N_PREADS) assert_int_equal(live_pages(&s.w), live); /* nothing was evicted */
        assert_ok(ramet_cache_check(s.w.cache, error));
        ramet_tree_clear(s.w.cache);
    }
    fill_slab(&s);
    arm(PREAD, FLIP, N_PREADS_TWICE + 1, 0); /* there are no more */
    assert_ok(restore(&s.w, s.path, &back, error));
    assert_false(disarm());
    assert_holds(&s.w, back, &s.c);
    close_context(&back);
    close_scene(&s);
}

static ramet_status spill_or_back(scene *s, bool spill, ramet_error *error) {
    RAMET_TRY(ramet_context_enter(s->context, error));
    ramet_status status = spill ? ramet_store_spill(s->context, &s->w.identity, directory, crew, error)
                                : ramet_store_unspill(s->context, &s->w.identity, crew, error);
    ramet_context_leave(s->context);
    return status;
}

static void test_k9_reads_fail_while_coming_back(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    assert_status(RAMET_OK, spill_or_back(&s, true, NULL));
    for (unsigned nth = 1; nth <= N_PREADS; nth++)
        for (int io = 0; io < 2; io++) {
            ramet_error got = {0};
            arm(PREAD, io ? ERROR : FLIP, nth, EIO);
            ramet_status status = spill_or_back(&s, false, &got);
            assert_true(disarm());
            assert_status(io ? RAMET_E_IO : RAMET_E_CORRUPT, status);
            assert_int_equal(strstr(got.message, "lost") != NULL, !io); /* an I/O error may go away */
            assert_non_null(ramet_context_where(s.context));
            assert_int_equal(live_pages(&s.w), 0);
            assert_ok(ramet_cache_check(s.w.cache, error));
        }
    assert_status(RAMET_OK, spill_or_back(&s, false, NULL));
    assert_holds(&s.w, s.context, &s.c);
    close_scene(&s);
}

/* ---- writing ---- */

static void save_under(scene *s, fault_call call, fault_kind kind, unsigned nth, int error_number,
                       ramet_status expected) {
    uint32_t files = count_files();
    arm(call, kind, nth, error_number);
    ramet_status status = save(&s->w, s->context, NULL, s->path, NULL, NULL);
    assert_true(disarm());
    assert_status(expected, status);
    assert_int_equal(count_files(), files);
    assert_ok(ramet_store_verify(s->path, error)); /* the old one or the new one, whole */
}

static void test_case_32_writes_fail(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    for (unsigned nth = 1; nth <= 5; nth++) { /* header, three chunks, checksums */
        save_under(&s, WRITE, ERROR, nth, EIO, RAMET_E_IO);
        save_under(&s, WRITE, ERROR, nth, ENOSPC, RAMET_E_NO_DISK);
        save_under(&s, WRITE, ERROR, nth, EDQUOT, RAMET_E_NO_DISK);
        save_under(&s, WRITE, ERROR, nth, EINTR, RAMET_OK);
        save_under(&s, WRITE, SHORT, nth, 0, RAMET_OK);
    }
    save_under(&s, FALLOCATE, ERROR, 1, ENOSPC, RAMET_E_NO_DISK);
    save_under(&s, FALLOCATE, ERROR, 1, EIO, RAMET_E_IO);
    save_under(&s, FALLOCATE, ERROR, 1, EINTR, RAMET_OK);
    save_under(&s, FALLOCATE, ERROR, 1, EOPNOTSUPP, RAMET_OK); /* some file systems cannot */
    close_scene(&s);
}

static void test_case_32_publishing_fails(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    save_under(&s, FSYNC, ERROR, 1, EIO, RAMET_E_IO); /* of the file */
    save_under(&s, FSYNC, ERROR, 2, EIO, RAMET_E_IO); /* of the directory: the new file is there, maybe not for ever */
    save_under(&s, CLOSE, ERROR, 1, EIO, RAMET_E_IO);
    save_under(&s, CLOSE, ERROR, 1, ENOSPC, RAMET_E_NO_DISK);
    save_under(&s, RENAME, ERROR, 1, EIO, RAMET_E_IO);
    save_under(&s, RENAME, ERROR, 1, ENOSPC, RAMET_E_NO_DISK);
    close_scene(&s);
}

/* Who asks for no sync gets none, and every other failure still. */
static void test_case_32_publishing_without_sync_fails(void **state) {
    (void)state;
    scene s;
    open_scene(&s);
    const ramet_snapshot_options options = {.skip_sync = true};
    static const fault_call steps[] = {CLOSE, RENAME};
    bytes old = read_file(s.path);
    uint32_t files = count_files();
    for (size_t i = 0; i < 2; i++) {
        arm(steps[i], ERROR, 1, EIO);
        ramet_status status = save(&s.w, s.context, &options, s.path, NULL, NULL);
        assert_true(disarm());
        assert_status(RAMET_E_IO, status);
        assert_int_equal(count_files(), files);
        assert_ok(ramet_store_verify(s.path, error));
    }
    arm(FSYNC, ERROR, 1, EIO);
    assert_ok(save(&s.w, s.context, &options, s.path, NULL, error));
    assert_false(disarm());
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
    static const struct {
        fault_call call;
        unsigned nth;
    } steps[] = {{FALLOCATE, 1}, {WRITE, 1}, {WRITE, 5}, {CLOSE, 1}, {RENAME, 1}};
    scene s;
    open_scene(&s);
    uint32_t files = count_files();
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        arm(steps[i].call, ERROR, steps[i].nth, ENOSPC);
        ramet_status status = spill_or_back(&s, true, NULL);
        assert_true(disarm());
        assert_status(RAMET_E_NO_DISK, status);
        assert_null(ramet_context_where(s.context));
        assert_holds(&s.w, s.context, &s.c);
        assert_int_equal(count_files(), files);
    }
    arm(FSYNC, ERROR, 1, EIO);
    assert_status(RAMET_OK, spill_or_back(&s, true, NULL));
    assert_false(disarm());
    assert_status(RAMET_OK, spill_or_back(&s, false, NULL));
    assert_holds(&s.w, s.context, &s.c);
    close_scene(&s);
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
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
