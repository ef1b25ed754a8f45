/* test_store_save.c - case 32: a save that fails says so, leaves the old file as it was and nothing else behind. */
#include "test_store_fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const shape wide = {RAMET_KV_F16, 2, 2, 64}; /* 1 KiB a row */

typedef struct scene {
    world w;
    content old, fresh;
    ramet_context *old_context, *fresh_context;
    const char *path;
} scene;

/* A sound file of the old context at `path`. */
static void open_scene(scene *s, const char *name) {
    static char path[160];
    open_world(&s->w, wide, 16, 1024, 64);
    s->old = make_content(&s->w.layout, 10);
    s->fresh = make_content(&s->w.layout, 40);
    s->old_context = make_context(&s->w, &s->old);
    s->fresh_context = make_context(&s->w, &s->fresh);
    snprintf(path, sizeof path, "%s", in_directory(name));
    s->path = path;
    assert_ok(save(&s->w, s->old_context, NULL, path, NULL, error));
}

static void close_scene(scene *s) {
    close_context(&s->old_context);
    close_context(&s->fresh_context);
    free_content(&s->old);
    free_content(&s->fresh);
    close_world(&s->w);
}

static void assert_restores(scene *s, const char *path, const content *c) {
    ramet_context *back;
    assert_ok(restore(&s->w, path, &back, error));
    assert_holds(&s->w, back, c);
    close_context(&back);
}

static ramet_status save_within(scene *s, const char *path, rlim_t limit, ramet_error *error) {
    struct rlimit old, tight;
    getrlimit(RLIMIT_FSIZE, &old);
    tight = (struct rlimit){.rlim_cur = limit, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    ramet_status status = save(&s->w, s->fresh_context, NULL, path, NULL, error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    return status;
}

static void test_case_32_disk_full_after_each_4_kib(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "kept.ramet");
    signal(SIGXFSZ, SIG_IGN);
    uint32_t files = count_files();
    bytes before = read_file(s.path);
    assert_ok(save(&s.w, s.fresh_context, NULL, in_directory("whole.ramet"), NULL, error));
    bytes whole = read_file(in_directory("whole.ramet"));
    unlink(in_directory("whole.ramet"));
    for (rlim_t limit = 0; limit < whole.n; limit += limit < 1024 ? 256 : 4096) {
        ramet_error error = {0};
        assert_status(RAMET_E_NO_DISK, save_within(&s, s.path, limit, &error));
        assert_non_null(strstr(error.message, s.path));
        assert_status(RAMET_E_NO_DISK, save_within(&s, in_directory("new.ramet"), limit, &error));
        assert_int_equal(count_files(), files);
        bytes after = read_file(s.path);
        assert_int_equal(after.n, before.n);
        assert_memory_equal(after.data, before.data, before.n);
        free(after.data);
    }
    assert_status(RAMET_E_NO_DISK, save_within(&s, s.path, whole.n - 1, NULL));
    assert_restores(&s, s.path, &s.old);
    assert_ok(save_within(&s, s.path, whole.n, error)); /* it was the limit */
    assert_restores(&s, s.path, &s.fresh);
    assert_int_equal(count_files(), files);
    free(before.data);
    free(whole.data);
    signal(SIGXFSZ, SIG_DFL);
    close_scene(&s);
}

static void test_case_32_no_such_directory(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "kept.ramet");
    ramet_error error = {0};
    assert_status(RAMET_E_NOT_FOUND, save(&s.w, s.fresh_context, NULL, in_directory("missing/x.ramet"), NULL, &error));
    assert_non_null(strstr(error.message, "missing/x.ramet"));
    char below_file[200];
    snprintf(below_file, sizeof below_file, "%s/x.ramet", s.path);
    assert_status(RAMET_E_IO, save(&s.w, s.fresh_context, NULL, below_file, NULL, &error));
    assert_restores(&s, s.path, &s.old);
    close_scene(&s);
}

/* The name is taken by a directory: the rename fails, after everything was written. */
static void test_case_32_rename_fails(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "kept.ramet");
    uint32_t files = count_files();
    ramet_error error = {0};
    ramet_status status = save(&s.w, s.fresh_context, NULL, directory, NULL, &error);
    assert_status(RAMET_E_IO, status);
    assert_int_equal(error.code, status);
    assert_int_equal(count_files(), files);
    char beside[200]; /* the temporary name was next to the directory */
    snprintf(beside, sizeof beside, "ls %s.ramet-tmp-* 2>/dev/null | grep -q .", directory);
    assert_int_not_equal(system(beside), 0);
    close_scene(&s);
}

static void test_case_32_no_memory(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "kept.ramet");
    uint32_t files = count_files();
    ramet_status status = RAMET_E_NO_MEMORY;
    uint64_t n = 1;
    for (; n < 100; n++) {
        ramet_alloc_fail_after(n);
        status = save(&s.w, s.fresh_context, NULL, s.path, NULL, NULL);
        ramet_alloc_fail_after(0);
        if (status == RAMET_OK) break;
        assert_status(RAMET_E_NO_MEMORY, status);
        assert_int_equal(count_files(), files);
        assert_restores(&s, s.path, &s.old);
    }
    assert_true(n > 2 && n < 100);
    assert_restores(&s, s.path, &s.fresh);
    close_scene(&s);
}

static void test_case_32_empty_context(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "kept.ramet");
    content nothing = make_content(&s.w.layout, 0);
    ramet_context *context = make_context(&s.w, &nothing);
    ramet_snapshot_info info;
    assert_ok(save(&s.w, context, NULL, s.path, &info, error));
    assert_int_equal(info.file_bytes, info.header_bytes);
    assert_false(info.has_logits);
    assert_restores(&s, s.path, &nothing);
    int32_t *tokens;
    uint32_t n = 1;
    assert_ok(ramet_store_read_tokens(s.path, NULL, &tokens, &n, error));
    assert_int_equal(n, 0);
    free(tokens);
    close_context(&context);
    free_content(&nothing);
    close_scene(&s);
}

/* The writer is killed at random points: what is at the final name is always one whole context. */
static void test_case_32_killed_while_saving(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "kept.ramet");
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            for (unsigned turn = 0;; turn++)
                if (save(&s.w, turn % 2 ? s.old_context : s.fresh_context, NULL, s.path, NULL, NULL) != RAMET_OK)
                    _exit(1);
        usleep(200 + draw_below(4000));
        kill(pid, SIGKILL);
        int how;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_true(WIFSIGNALED(how));
        ramet_snapshot_info info;
        assert_ok(ramet_store_read_info(s.path, &info, error));
        assert_restores(&s, s.path, info.n_tokens == s.old.n ? &s.old : &s.fresh);
    }
    close_scene(&s);
}

static ramet_status save_to_stdout(scene *s, const char *sink, ramet_error *error) {
    fflush(stdout);
    int keep = dup(STDOUT_FILENO), fd = open(sink, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(keep >= 0 && fd >= 0);
    dup2(fd, STDOUT_FILENO);
    ramet_status status = save(&s->w, s->fresh_context, NULL, "-", NULL, error);
    dup2(keep, STDOUT_FILENO);
    close(fd);
    close(keep);
    return status;
}

static void test_standard_output(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "kept.ramet");
    const char *sink = in_directory("sink.ramet");
    assert_ok(save_to_stdout(&s, sink, error));
    assert_ok(save(&s.w, s.fresh_context, NULL, s.path, NULL, error));
    assert_same_file(sink, s.path);
    if (access("/dev/full", W_OK) == 0) assert_status(RAMET_E_NO_DISK, save_to_stdout(&s, "/dev/full", NULL));
    close_scene(&s);
}

static void test_precision_for_tests_is_refused(void **state) {
    (void)state;
    world w;
    open_world(&w, (shape){RAMET_KV_ONE_BIT, 1, 1, 32}, 16, 64, 4);
    content c = make_content(&w.layout, 2);
    ramet_context *context = make_context(&w, &c);
    assert_status(RAMET_E_ARGUMENT, save(&w, context, NULL, in_directory("bit.ramet"), NULL, NULL));
    close_context(&context);
    free_content(&c);
    close_world(&w);
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_case_32_disk_full_after_each_4_kib),
        cmocka_unit_test(test_case_32_no_such_directory),
        cmocka_unit_test(test_case_32_rename_fails),
        cmocka_unit_test(test_case_32_no_memory),
        cmocka_unit_test(test_case_32_empty_context),
        cmocka_unit_test(test_standard_output),
        cmocka_unit_test(test_precision_for_tests_is_refused),
        cmocka_unit_test(test_case_32_killed_while_saving),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
