/* test_base_sweep.c - what dead processes left goes, what live ones work on stays, and nothing else is touched; also while
 * a sweeper runs all the time. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_ok.h"

#include "base/file.h"
#include "base/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char parent[] = "/tmp/ramet-sweep-XXXXXX";

static const char *in_parent(const char *name) {
    static char paths[4][160];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", parent, name);
    return path;
}

static void make(const char *name) {
    int fd = open(in_parent(name), O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static bool exists(const char *name) {
    struct stat st;
    return lstat(in_parent(name), &st) == 0;
}

static int count_entries(void) {
    DIR *d = opendir(parent);
    assert_non_null(d);
    int n = -2;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void only_the_names_of_temporary_things_go(void **state) {
    (void)state;
    static const char *const ours[] = {"a.ramet.ramet-tmp-0123456789abcdef", ".ramet-tmp-0123456789abcdef",
                                       "x.ramet-tmp-ffffffffffffffff"},
                             *const others[] = {"a.ramet",
                                                "ramet-tmp-0123456789abcdef",
                                                "a.ramet-tmp-0123456789abcde",
                                                "a.ramet-tmp-0123456789abcdeF",
                                                "a.ramet-tmp-0123456789abcdef0",
                                                "a.tmp-0123456789abcdef",
                                                "0123456789abcdef",
                                                "xramet-0123456789abcdef",
                                                "spill-0123456789abcdef0123456789abcdef.ramet"};
    for (size_t i = 0; i < 3; i++) make(ours[i]);
    for (size_t i = 0; i < 9; i++) make(others[i]);
    ramet_temporary_sweep_again(parent);
    for (size_t i = 0; i < 3; i++)
        if (exists(ours[i]) != (ours[i][0] == '.')) fail_msg("%s", ours[i]); /* a file without a name has none */
    for (size_t i = 0; i < 9; i++) {
        if (!exists(others[i])) fail_msg("%s is gone", others[i]);
        unlink(in_parent(others[i]));
    }
    unlink(in_parent(ours[1]));
    assert_int_equal(count_entries(), 0);
    ramet_temporary_sweep_again(in_parent("missing"));
}

static void directories_go_with_their_files(void **state) {
    (void)state;
    const char *dead = "ramet-00000000000000aa";
    assert_int_equal(mkdir(in_parent(dead), 0700), 0);
    make("ramet-00000000000000aa/0123456789abcdef");
    make("ramet-00000000000000aa/ramet-context.ramet");
    make("ramet-00000000000000aa/ramet-context.ramet.ramet-tmp-0123456789abcdef");
    make("kept");
    assert_int_equal(symlink(in_parent("kept"), in_parent("l.ramet-tmp-0123456789abcdef")), 0);
    assert_int_equal(symlink(parent, in_parent("ramet-00000000000000bb")), 0);
    ramet_temporary_sweep_again(parent);
    assert_false(exists(dead));
    assert_true(exists("kept")); /* links are not followed, and not ours to remove */
    assert_int_equal(count_entries(), 3);
    unlink(in_parent("kept"));
    unlink(in_parent("l.ramet-tmp-0123456789abcdef"));
    unlink(in_parent("ramet-00000000000000bb"));
}

/* The name alone may be somebody's: such a directory stays whole. */
static void directories_of_others_stay(void **state) {
    (void)state;
    static const char *const strangers[] = {"thesis.txt",       ".hidden",           "0123456789abcde",
                                            "0123456789abcdeF", "0123456789abcdef0", "a.ramet"};
    const char *name = "ramet-00000000000000cc", *ours = "ramet-00000000000000cc/0123456789abcdef";
    char theirs[64];
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        assert_int_equal(mkdir(in_parent(name), 0700), 0);
        make(ours);
        snprintf(theirs, sizeof theirs, "%s/%s", name, strangers[i]);
        make(theirs);
        ramet_temporary_sweep_again(parent);
        if (!exists(theirs) || !exists(ours)) fail_msg("with %s", strangers[i]);
        unlink(in_parent(theirs));
        assert_int_equal(chmod(in_parent(name), 0755), 0);
        ramet_temporary_sweep_again(parent);
        assert_true(exists(ours)); /* others may look into it */
        assert_int_equal(chmod(in_parent(name), 0700), 0);
        ramet_temporary_sweep_again(parent);
        assert_int_equal(count_entries(), 0); /* it was that */
    }
}

/* An owner that changes its directory removes what it made, and so does a signal. */
static void a_scratch_directory_has_an_absolute_path(void **state) {
    (void)state;
    ramet_scratch s;
    char *before = getcwd(NULL, 0);
    assert_non_null(before);
    assert_int_equal(mkdir(in_parent("d"), 0700), 0);
    for (int by_signal = 0; by_signal < 2; by_signal++) {
        assert_int_equal(chdir(parent), 0);
        assert_ok(ramet_scratch_create("d/../d", "x", &s, error));
        assert_int_equal(chdir("/"), 0);
        assert_int_equal(strncmp(s.directory, in_parent("d/ramet-"), strlen(in_parent("d/ramet-"))), 0);
        int fd = open(s.file, O_WRONLY | O_CREAT | O_EXCL, 0600);
        assert_true(fd >= 0);
        close(fd);
        if (by_signal) ramet_temporary_remove_all();
        if (!by_signal) ramet_scratch_remove(&s);
        assert_int_not_equal(access(s.file, F_OK), 0);
        ramet_scratch_remove(&s);
        assert_int_equal(rmdir(in_parent("d")) || mkdir(in_parent("d"), 0700), 0); /* it was empty */
    }
    rmdir(in_parent("d"));
    assert_int_equal(chdir(before), 0);
    free(before);
}

static void names_that_no_directory_has_are_refused(void **state) {
    (void)state;
    static char endless[2 * RAMET_SCRATCH_PATH_BYTES];
    ramet_scratch s;
    ramet_error why;
    assert_int_equal(ramet_scratch_create("", NULL, &s, &why), RAMET_E_ARGUMENT);
    ramet_scratch_remove(&s);
    memset(endless, 'd', sizeof endless - 1);
    assert_int_equal(ramet_scratch_create(endless, NULL, &s, &why), RAMET_E_ARGUMENT);
    assert_int_equal(ramet_scratch_create(in_parent("missing"), NULL, &s, &why), RAMET_E_NOT_FOUND);
    assert_non_null(strstr(why.message, in_parent("missing")));
    assert_int_equal(count_entries(), 0);
}

/* More than one reading of the directory gives, and none of them registered. */
static void a_scratch_directory_goes_with_thousands_of_files(void **state) {
    (void)state;
    ramet_scratch s;
    char path[RAMET_SCRATCH_PATH_BYTES];
    for (int by_signal = 0; by_signal < 2; by_signal++) {
        assert_ok(ramet_scratch_create(parent, NULL, &s, error));
        for (int i = 0; i < 3000; i++) {
            snprintf(path, sizeof path, "%s/%016d", s.directory, i);
            int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
            assert_true(fd >= 0);
            close(fd);
        }
        if (by_signal) ramet_temporary_remove_all();
        if (!by_signal) ramet_scratch_remove(&s);
        assert_int_equal(count_entries(), 0);
    }
    ramet_scratch_remove(&s); /* gone already: nothing */
}

static void what_is_held_stays(void **state) {
    (void)state;
    ramet_publisher p;
    ramet_scratch s;
    assert_ok(ramet_publish_begin(in_parent("a"), &p, error));
    assert_ok(ramet_scratch_create(parent, "x", &s, error));
    assert_int_equal(count_entries(), 2);
    ramet_temporary_sweep_again(parent);
    assert_int_equal(count_entries(), 2);
    ramet_scratch_remove(&s);
    assert_ok(ramet_publish_commit(&p, error));
    assert_int_equal(count_entries(), 1);
    assert_true(exists("a"));
    unlink(in_parent("a"));
}

/* Whoever comes second at the lock leaves it to the first. */
static void a_sweeper_may_be_faster(void **state) {
    (void)state;
    make("b");
    const char *path = in_parent("b");
    int ours = open(path, O_WRONLY), sweeper = open(path, O_RDONLY);
    assert_int_equal(flock(sweeper, LOCK_EX), 0);
    assert_false(ramet_temporary_hold(ours, path)); /* it is about to remove it */
    close(sweeper);
    assert_true(ramet_temporary_hold(ours, path));
    unlink(path);
    assert_false(ramet_temporary_hold(ours, path)); /* it has */
    make("b");
    assert_false(ramet_temporary_hold(ours, path)); /* another file of this name */
    close(ours);
    unlink(path);
}

static void leave_both(void) {
    ramet_publisher p;
    ramet_scratch s;
    if (ramet_publish_begin(in_parent("a"), &p, NULL) != RAMET_OK ||
        ramet_scratch_create(parent, "spill", &s, NULL) != RAMET_OK)
        _exit(1);
    close(open(s.file, O_WRONLY | O_CREAT, 0600));
    kill(getpid(), SIGKILL);
}

static pid_t start(void (*step)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        step();
        _exit(0);
    }
    return child;
}

static void a_start_sweeps_once(void **state) {
    (void)state;
    int status;
    assert_int_equal(waitpid(start(leave_both), &status, 0) > 0 && WIFSIGNALED(status), 1);
    assert_int_equal(count_entries(), 2);
    ramet_scratch s; /* this process has swept here before, and forgets it over 16 other directories */
    assert_ok(ramet_scratch_create(parent, NULL, &s, error));
    assert_int_equal(count_entries(), 3);
    for (int i = 0; i < 16; i++) {
        const char name[] = {'d', (char)('a' + i), 0};
        assert_int_equal(mkdir(in_parent(name), 0700), 0);
        ramet_temporary_sweep(in_parent(name));
    }
    ramet_temporary_sweep(parent);
    for (int i = 0; i < 16; i++) {
        const char name[] = {'d', (char)('a' + i), 0};
        rmdir(in_parent(name));
    }
    assert_int_equal(count_entries(), 1); /* what is in use */
    ramet_scratch_remove(&s);
    assert_int_equal(count_entries(), 0);
}

static pid_t starter;

/* As long as the one who started it lives, who is not there to end it when a check below has failed. */
static void sweep_on_and_on(void) {
    while (getppid() == starter) ramet_temporary_sweep_again(parent);
}

static void publishing_races_a_sweeper(void **state) {
    (void)state;
    starter = getpid();
    pid_t sweepers[2] = {start(sweep_on_and_on), start(sweep_on_and_on)};
    for (int i = 0; i < 1000; i++) {
        ramet_publisher p;
        ramet_scratch s;
        assert_ok(ramet_publish_begin(in_parent("raced"), &p, error));
        p.skip_sync = true;
        assert_ok(ramet_scratch_create(parent, "spill", &s, error));
        int fd = open(s.file, O_WRONLY | O_CREAT | O_EXCL, 0600);
        assert_true(fd >= 0);
        close(fd);
        assert_ok(ramet_publish_commit(&p, error));
        assert_true(exists("raced"));
        assert_int_equal(access(s.file, F_OK), 0);
        ramet_scratch_remove(&s);
        unlink(in_parent("raced"));
    }
    for (int i = 0; i < 2; i++) {
        kill(sweepers[i], SIGKILL);
        waitpid(sweepers[i], NULL, 0);
    }
    assert_int_equal(count_entries(), 0);
}

static int make_parent(void **state) {
    (void)state;
    return mkdtemp(parent) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st, (void)type, (void)where;
    return remove(path);
}

/* It should be empty. */
static int remove_parent(void **state) {
    (void)state;
    if (rmdir(parent) == 0) return 0;
    nftw(parent, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_names_of_temporary_things_go),
        cmocka_unit_test(directories_go_with_their_files),
        cmocka_unit_test(directories_of_others_stay),
        cmocka_unit_test(a_scratch_directory_goes_with_thousands_of_files),
        cmocka_unit_test(what_is_held_stays),
        cmocka_unit_test(a_sweeper_may_be_faster),
        cmocka_unit_test(a_start_sweeps_once),
        cmocka_unit_test(publishing_races_a_sweeper),
        /* last: inodes come round again, and a_start_sweeps_once counts those that this process has swept */
        cmocka_unit_test(a_scratch_directory_has_an_absolute_path),
        cmocka_unit_test(names_that_no_directory_has_are_refused),
    };
    return cmocka_run_group_tests(tests, make_parent, remove_parent);
}
