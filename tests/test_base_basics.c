/* test_base_basics.c - errors, checked memory, files and the worker pool. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/pool.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void every_status_has_its_row(void **state) {
    (void)state;
    assert_string_equal(ramet_status_name(RAMET_E_CORRUPT), "E_CORRUPT");
    assert_int_equal(ramet_status_exit_code(RAMET_OK), 0);
    assert_int_equal(ramet_status_exit_code(RAMET_E_MODEL_MISMATCH), 4);
    assert_int_equal(ramet_status_exit_code(RAMET_E_CORRUPT), 5);
    assert_int_equal(ramet_status_http(RAMET_E_BUSY), 409);
    assert_string_equal(ramet_status_name((ramet_status)999), "E_FAILED");
}

static void messages_stay_on_one_line_and_keep_errno(void **state) {
    (void)state;
    ramet_error error;
    assert_int_equal(ramet_fail(&error, RAMET_E_CORRUPT, "bad key '%s'", "a\nb\x1b[31m"), RAMET_E_CORRUPT);
    assert_null(strpbrk(error.message, "\n\x1b"));
    errno = ENOSPC;
    assert_int_equal(ramet_fail_errno(&error, "cannot write %s", "x"), RAMET_E_NO_DISK);
    assert_int_equal(error.os_errno, ENOSPC);
    assert_int_equal(ramet_fail_prefix(&error, RAMET_E_FAILED, "file %s", "y"), RAMET_E_NO_DISK);
    assert_memory_equal(error.message, "file y: cannot write x: ", 24);
    char long_name[2000];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    ramet_fail(&error, RAMET_E_IO, "%s", long_name);
    ramet_fail_prefix(&error, RAMET_E_IO, "%s", long_name);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    assert_int_equal(ramet_fail(NULL, RAMET_E_IO, "nobody listens"), RAMET_E_IO);
}

static void sizes_do_not_wrap_and_allocations_fail_when_told(void **state) {
    (void)state;
    uint64_t out = 0;
    assert_false(ramet_mul_u64(UINT64_MAX / 2, 3, &out));
    assert_false(ramet_add_u64(UINT64_MAX, 1, &out));
    assert_true(ramet_mul_u64(6, 7, &out) && out == 42);
    assert_null(ramet_alloc(SIZE_MAX / 2, 3));
    ramet_alloc_fail_after(2);
    void *first = ramet_alloc(1, 1), *second = ramet_alloc(1, 1), *third = ramet_alloc(1, 1);
    assert_true(first && !second && third);
    free(first);
    free(third);
    void *array = NULL;
    size_t capacity = 0;
    assert_true(ramet_grow(&array, &capacity, 17, 8) && capacity >= 17);
    ramet_alloc_fail_after(1);
    size_t before = capacity;
    assert_false(ramet_grow(&array, &capacity, 1000, 8));
    assert_int_equal(capacity, before);
    free(array);
}

static int count_entries(const char *directory) {
    int n = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void publish(const char *path, const char *content) {
    ramet_publisher p;
    assert_int_equal(ramet_publish_begin(path, &p, NULL), RAMET_OK);
    assert_int_equal(ramet_publish_write(&p, content, strlen(content), NULL), RAMET_OK);
    assert_int_equal(ramet_publish_commit(&p, NULL), RAMET_OK);
}

static void a_file_is_published_whole_or_not_at_all(void **state) {
    (void)state;
    char directory[] = "/tmp/ramet-base-XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
    publish(path, "first");
    ramet_publisher p;
    assert_int_equal(ramet_publish_begin(path, &p, NULL), RAMET_OK);
    assert_int_equal(ramet_publish_write(&p, "second", 6, NULL), RAMET_OK);
    assert_int_equal(count_entries(directory), 2);
    ramet_publish_abort(&p);
    assert_int_equal(count_entries(directory), 1);
    char *content;
    size_t bytes;
    assert_int_equal(ramet_read_all(path, &content, &bytes, NULL), RAMET_OK);
    assert_string_equal(content, "first");
    free(content);
    publish(path, "third");
    ramet_file_map map;
    assert_int_equal(ramet_file_map_open(path, &map, NULL), RAMET_OK);
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.data, "third", 5);
    ramet_file_map_close(&map);
    ramet_error error;
    assert_int_equal(ramet_publish_begin("/nonexistent/x", &p, &error), RAMET_E_NOT_FOUND);
    assert_int_equal(ramet_file_map_open(directory, &map, &error), RAMET_E_ARGUMENT);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* as /dev/null would be: neither waited for nor replaced */
    assert_int_equal(ramet_file_map_open(path, &map, &error), RAMET_E_ARGUMENT);
    assert_int_equal(ramet_publish_begin(path, &p, &error), RAMET_E_ARGUMENT);
    unlink(path);
    rmdir(directory);
}

static unsigned permissions_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

/* Also while it is written. */
static void a_file_keeps_the_permissions_of_the_one_it_replaces(void **state) {
    (void)state;
    static const unsigned modes[] = {0600, 0640, 0664, 0666, 0444, 0};
    char directory[] = "/tmp/ramet-base-XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
    mode_t mask = umask(022);
    publish(path, "new");
    assert_int_equal(permissions_of(path), 0644);
    ramet_publisher p;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(ramet_publish_begin(path, &p, NULL), RAMET_OK);
        assert_int_equal(permissions_of(p.temporary), modes[i]);
        assert_int_equal(ramet_publish_commit(&p, NULL), RAMET_OK);
        assert_int_equal(permissions_of(path), modes[i]);
    }
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(ramet_publish_begin(path, &p, NULL), RAMET_OK);
    assert_int_equal(ramet_publish_restrict(&p, NULL), RAMET_OK);
    assert_int_equal(permissions_of(p.temporary), 0600);
    assert_int_equal(ramet_publish_commit(&p, NULL), RAMET_OK);
    assert_int_equal(permissions_of(path), 0600);
    umask(mask);
    unlink(path);
    rmdir(directory);
}

static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    char directory[] = "/tmp/ramet-base-XXXXXX", path[64], big[8192] = {0};
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
    publish(path, "old");
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    ramet_publisher p;
    ramet_error error;
    assert_int_equal(ramet_publish_begin(path, &p, &error), RAMET_OK);
    assert_int_equal(ramet_publish_write(&p, big, sizeof big, &error), RAMET_E_NO_DISK);
    ramet_publish_abort(&p);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(count_entries(directory), 1);
    char *content;
    size_t bytes;
    assert_int_equal(ramet_read_all(path, &content, &bytes, NULL), RAMET_OK);
    assert_string_equal(content, "old");
    free(content);
    unlink(path);
    rmdir(directory);
}

static void hashes_are_the_published_ones(void **state) {
    (void)state;
    uint8_t digest[32];
    char hex[65];
    ramet_sha256_once("abc", 3, digest); /* FIPS 180-4's example */
    ramet_hex(digest, 32, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ramet_xxh128("", 0, digest); /* xxHash's published value for the empty input */
    ramet_hex(digest, 16, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
}

struct tally {
    _Atomic uint32_t seen[1000];
    _Atomic uint32_t bad_worker;
    uint32_t threads;
};

static void count(void *user, uint32_t index, uint32_t worker) {
    struct tally *t = user;
    atomic_fetch_add(&t->seen[index], 1);
    if (worker >= t->threads) atomic_store(&t->bad_worker, 1);
}

static void *note_mask(void *out) {
    pthread_sigmask(SIG_SETMASK, NULL, out);
    return NULL;
}

static void started_threads_take_no_signals(void **state) {
    (void)state;
    pthread_t thread;
    sigset_t own, ours;
    assert_true(ramet_thread_start(&thread, note_mask, &own));
    pthread_join(thread, NULL);
    note_mask(&ours);
    assert_int_equal(sigismember(&own, SIGINT), 1);
    assert_int_equal(sigismember(&own, SIGTERM), 1);
    assert_int_equal(sigismember(&own, SIGSEGV), 0); /* a fault is the thread's own */
    assert_int_equal(sigismember(&ours, SIGINT), 0); /* and the caller is as before */
}

static void the_pool_runs_each_index_once(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 8; threads += 3) {
        ramet_pool *pool;
        assert_int_equal(ramet_pool_create(threads, &pool, NULL), RAMET_OK);
        static struct tally tally;
        memset(&tally, 0, sizeof tally);
        tally.threads = threads;
        for (uint32_t round = 1; round <= 200; round++) {
            ramet_pool_run(pool, 1000, count, &tally);
            if (round % 100 == 0) usleep(2000); /* long enough for the workers to fall asleep */
            for (int i = 0; i < 1000; i += 37) assert_int_equal(tally.seen[i], round);
        }
        assert_int_equal(tally.bad_worker, 0);
        ramet_pool_destroy(&pool);
        assert_null(pool);
    }
    ramet_pool *pool;
    assert_int_equal(ramet_pool_create(0, &pool, NULL), RAMET_E_ARGUMENT);
}

/* ---- where workers may run ---- */

struct bound {
    _Atomic uint32_t n_here;
    cpu_set_t of_worker;
};

/* Index 0 and 1 wait for each other, so that both threads of the pool take part. */
static void note_processors(void *user, uint32_t index, uint32_t worker) {
    (void)index;
    struct bound *b = user;
    atomic_fetch_add(&b->n_here, 1);
    while (atomic_load(&b->n_here) < 2) sched_yield();
    if (worker == 1) sched_getaffinity(0, sizeof b->of_worker, &b->of_worker);
}

static int processors_of_a_worker(uint32_t threads, bool is_bound) {
    ramet_pool *pool;
    struct bound b = {0};
    assert_int_equal(ramet_pool_create(threads, &pool, NULL), RAMET_OK);
    if (is_bound) ramet_pool_bind(pool);
    ramet_pool_run(pool, 2, note_processors, &b);
    ramet_pool_destroy(&pool);
    return CPU_COUNT(&b.of_worker);
}

static void workers_are_bound_when_the_pool_takes_every_processor(void **state) {
    (void)state;
    cpu_set_t all, two;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) skip();
    CPU_ZERO(&two);
    for (size_t cpu = 0; CPU_COUNT(&two) < 2; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &two);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0); /* a pool of two then takes every one */
    assert_int_equal(processors_of_a_worker(2, true), 1);
    assert_int_equal(processors_of_a_worker(2, false), 2);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) > 2) assert_int_equal(processors_of_a_worker(2, true), CPU_COUNT(&all));
}

/* One processor, and more threads than it: who spins must let the others run, and nobody waits for who sleeps. */
static void a_pool_larger_than_the_machine_comes_to_an_end(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) < 1; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    ramet_pool *pool;
    static struct tally tally;
    tally = (struct tally){.threads = 4};
    assert_int_equal(ramet_pool_create(4, &pool, NULL), RAMET_OK);
    for (uint32_t round = 1; round <= 2000; round++) ramet_pool_run(pool, 5, count, &tally);
    for (int i = 0; i < 5; i++) assert_int_equal(tally.seen[i], 2000);
    assert_int_equal(tally.bad_worker, 0);
    ramet_pool_destroy(&pool);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_row),
        cmocka_unit_test(messages_stay_on_one_line_and_keep_errno),
        cmocka_unit_test(sizes_do_not_wrap_and_allocations_fail_when_told),
        cmocka_unit_test(a_file_is_published_whole_or_not_at_all),
        cmocka_unit_test(a_file_keeps_the_permissions_of_the_one_it_replaces),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(hashes_are_the_published_ones),
        cmocka_unit_test(started_threads_take_no_signals),
        cmocka_unit_test(the_pool_runs_each_index_once),
        cmocka_unit_test(workers_are_bound_when_the_pool_takes_every_processor),
        cmocka_unit_test(a_pool_larger_than_the_machine_comes_to_an_end),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
