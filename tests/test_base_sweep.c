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
    make("ramet-00000000000000aa/spill");
    make("ramet-00000000000000aa/spill-too");
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

static void what_is_held_stays(void **state) {
    (void)state;
    ramet_publisher p;
    ramet_scratch s;
    char *spill;
    assert_ok(ramet_publish_begin(in_parent("a"), &p, error));
    assert_ok(ramet_scratch_create(parent, "x", &s, error));
    assert_ok(ramet_nest_add(parent, "spill", &spill, error));
    assert_int_equal(count_entries(), 3);
    ramet_temporary_sweep_again(parent);
    assert_int_equal(count_entries(), 3);
    ramet_nest_remove(spill);
    free(spill);
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

static void leave_all_three(void) {
    ramet_publisher p;
    ramet_scratch s;
    char *spill;
    if (ramet_publish_begin(in_parent("a"), &p, NULL) != RAMET_OK ||
        ramet_scratch_create(parent, NULL, &s, NULL) != RAMET_OK ||
        ramet_nest_add(parent, "spill", &spill, NULL) != RAMET_OK)
        _exit(1);
    close(open(spill, O_WRONLY | O_CREAT, 0600));
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
    assert_int_equal(waitpid(start(leave_all_three), &status, 0) > 0 && WIFSIGNALED(status), 1);
    assert_int_equal(count_entries(), 3);
    char *spill; /* this process has swept here before, and forgets it over 16 other directories */
    assert_ok(ramet_nest_add(parent, "spill", &spill, error));
    assert_int_equal(count_entries(), 4);
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
    assert_int_equal(count_entries(), 1); /* the nest that is in use */
    ramet_nest_remove(spill);
    free(spill);
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
        char *spill;
        assert_ok(ramet_publish_begin(in_parent("raced"), &p, error));
        p.skip_sync = true;
        assert_ok(ramet_nest_add(parent, "spill", &spill, error));
        int fd = open(spill, O_WRONLY | O_CREAT | O_EXCL, 0600);
        assert_true(fd >= 0);
        close(fd);
        assert_ok(ramet_publish_commit(&p, error));
        assert_true(exists("raced"));
        assert_int_equal(access(spill, F_OK), 0);
        ramet_nest_remove(spill);
        free(spill);
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
        cmocka_unit_test(what_is_held_stays),
        cmocka_unit_test(a_sweeper_may_be_faster),
        cmocka_unit_test(a_start_sweeps_once),
        cmocka_unit_test(publishing_races_a_sweeper),
    };
    return cmocka_run_group_tests(tests, make_parent, remove_parent);
}
