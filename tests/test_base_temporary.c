/* test_base_temporary.c - a signal that strikes in the very moment a file or directory comes into being leaves nothing. This
 * program's own open and mkdir stand in front of the C library's and raise the signal on the way out. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool strikes;

#define REAL(name, type) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    int fd = REAL("open", int (*)(const char *, int, ...))(path, flags, mode);
    if (strikes && flags & O_CREAT) raise(SIGTERM);
    return fd;
}

int mkdir(const char *path, mode_t mode) {
    int result = REAL("mkdir", int (*)(const char *, mode_t))(path, mode);
    if (strikes) raise(SIGTERM);
    return result;
}

static void die(int signal_number) {
    ramet_temporary_remove_all();
    _exit(128 + signal_number);
}

/* Entries of a directory, "." and ".." not counted. */
static int count_entries(const char *path) {
    DIR *d = opendir(path);
    assert_non_null(d);
    int n = -2;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static char parent[] = "/tmp/ramet-temporary-XXXXXX";

static void begin_file(void) {
    ramet_publisher p;
    char path[64];
    snprintf(path, sizeof path, "%s/file", parent);
    ramet_publish_begin(path, &p, NULL);
}

static void begin_scratch(void) {
    ramet_scratch s;
    ramet_scratch_create(parent, "x", &s, NULL);
}

static void use_scratch(void) {
    ramet_scratch s;
    strikes = false;
    if (ramet_scratch_create(parent, "x", &s, NULL) != RAMET_OK) _exit(1);
    int fd = open(s.file, O_WRONLY | O_CREAT, 0600);
    if (fd < 0) _exit(1);
    raise(SIGTERM);
}

static void begin_unregistered(void) {
    char path[64];
    snprintf(path, sizeof path, "%s/stays", parent);
    if (open(path, O_WRONLY | O_CREAT, 0600) < 0) _exit(1);
}

/* Runs `step` in a child that dies of the signal; returns what it left in the directory. */
static int left_by(void (*step)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGTERM, die);
        strikes = true;
        step();
        _exit(0); /* it was not struck */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
    return count_entries(parent);
}

static void nothing_is_left_whenever_a_signal_strikes(void **state) {
    (void)state;
    assert_int_equal(left_by(begin_file), 0);
    assert_int_equal(left_by(begin_scratch), 0);
    assert_int_equal(left_by(use_scratch), 0);
    assert_int_equal(left_by(begin_unregistered), 1); /* the check can fail */
    char path[64];
    snprintf(path, sizeof path, "%s/stays", parent);
    unlink(path);
}

static void what_was_published_stays(void **state) {
    (void)state;
    char path[64];
    ramet_publisher p;
    snprintf(path, sizeof path, "%s/a.ramet-tmp-0123456789abcdef", parent);
    assert_int_equal(ramet_publish_begin(path, &p, NULL), RAMET_OK);
    assert_int_equal(ramet_publish_commit(&p, NULL), RAMET_OK);
    ramet_temporary *many[100];
    for (int i = 0; i < 100; i++) assert_non_null(many[i] = ramet_temporary_add(path));
    for (int i = 0; i < 100; i++) ramet_temporary_forget(many[i]);
    ramet_temporary_forget(NULL);
    ramet_temporary_remove_all();
    assert_int_equal(count_entries(parent), 1);
    many[0] = ramet_temporary_add(path); /* a node used before serves again */
    ramet_temporary_remove_all();
    assert_int_equal(count_entries(parent), 0);
    ramet_temporary_forget(many[0]);
}

/* What a torn path could name. */
static void what_has_no_temporary_name_stays(void **state) {
    (void)state;
    static const char *const names[] = {"d", "d/ramet-0123456789abcdef0", "d/a.ramet", "d/0123456789abcdef", "d/", ""};
    char directory[64], path[3][128];
    ramet_temporary *marks[6];
    snprintf(directory, sizeof directory, "%s/d", parent);
    assert_int_equal(mkdir(directory, 0700), 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", parent, names[i + 1]);
        close(open(path[i], O_WRONLY | O_CREAT, 0600));
    }
    for (int i = 0; i < 6; i++) {
        char registered[128];
        snprintf(registered, sizeof registered, "%s/%s", parent, names[i]);
        assert_non_null(marks[i] = ramet_temporary_add(registered));
    }
    ramet_temporary_remove_all();
    for (int i = 0; i < 6; i++) ramet_temporary_forget(marks[i]);
    assert_int_equal(count_entries(directory), 3);
    for (int i = 0; i < 3; i++) unlink(path[i]);
    rmdir(directory);
}

static int make_parent(void **state) {
    (void)state;
    return mkdtemp(parent) ? 0 : -1;
}

static int remove_parent(void **state) {
    (void)state;
    return rmdir(parent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_whenever_a_signal_strikes),
        cmocka_unit_test(what_was_published_stays),
        cmocka_unit_test(what_has_no_temporary_name_stays),
    };
    return cmocka_run_group_tests(tests, make_parent, remove_parent);
}
