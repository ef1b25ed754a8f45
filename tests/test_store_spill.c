/* test_store_spill.c - the pager on disk (K9): what was written comes back byte for byte or not at all, nothing readable is
 * on the disk, what fails leaves nothing, and nothing outlives the process. */
#include "test_store_fixture.h"

#include "base/sweep.h"
#include "base/temporary.h"
#include "faults/shim.h"
#include "store/spill.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

enum { PIECE = 128 << 10, TAG = 16, MANY = 40 };

static const uint8_t key[RAMET_KEY_BYTES] = {7, 1, 9};

/* ---- blocks and their files ---- */

typedef struct stock { /* blocks of one size under names from 1 on, and what they should hold */
    ramet_spill *spill;
    ramet_pager pager;
    uint32_t n;
    size_t bytes;
    uint8_t *sound, *data;
    ramet_pager_item items[MANY];
} stock;

static void fill_items(stock *s) {
    for (uint32_t i = 0; i < s->n; i++)
        s->items[i] = (ramet_pager_item){.name = i + 1, .data = s->data + i * s->bytes, .bytes = s->bytes};
}

static stock open_stock(uint32_t n, size_t block_bytes) {
    stock s = {.n = n, .bytes = block_bytes, .sound = malloc(n * block_bytes), .data = malloc(n * block_bytes)};
    assert_ok(ramet_spill_create(directory, key, crew, &s.spill, error));
    s.pager = ramet_spill_pager(s.spill);
    draw_bytes(s.sound, n * block_bytes);
    memcpy(s.data, s.sound, n * block_bytes);
    fill_items(&s);
    return s;
}

static ramet_status write_stock(stock *s, ramet_error *error) {
    fill_items(s);
    return s->pager.write(s->pager.user, s->items, s->n, error);
}

static ramet_status read_stock(stock *s, ramet_error *error) {
    memset(s->data, 0xee, s->n * s->bytes);
    fill_items(s);
    return s->pager.read(s->pager.user, s->items, s->n, error);
}

static bool is_sound(const stock *s, uint32_t i) {
    return memcmp(s->data + i * s->bytes, s->sound + i * s->bytes, s->bytes) == 0;
}

static void assert_sound(const stock *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        assert_status(RAMET_OK, s->items[i].status);
        assert_true(is_sound(s, i));
    }
}

static void close_stock(stock *s) {
    ramet_spill_destroy(&s->spill);
    assert_null(s->spill);
    assert_int_equal(count_files(), 0);
    free(s->sound);
    free(s->data);
}

/* The one directory in the test's. */
static const char *home(void) {
    static char path[400];
    DIR *d = opendir(directory);
    assert_non_null(d);
    path[0] = '\0';
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') snprintf(path, sizeof path, "%s/%.255s", directory, e->d_name);
    closedir(d);
    assert_true(path[0]);
    return path;
}

static const char *path_of(uint64_t name) { /* borrowed until the second next call */
    static char paths[2][450];
    static unsigned turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%016llx", home(), (unsigned long long)name);
    return path;
}

static uint32_t count_blocks(void) {
    uint32_t n = 0;
    DIR *d = opendir(home());
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* ---- there and back ---- */

static void test_round_trip_k9(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 100, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 17};
    for (int threads = 0; threads < 2; threads++) {
        if (threads) start_crew(3);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            for (uint32_t n = 1; n <= MANY; n += 13) {
                stock s = open_stock(n, sizes[k]);
                assert_ok(write_stock(&s, error));
                for (uint32_t i = 0; i < n; i++) assert_true(is_sound(&s, i)); /* it was only read */
                assert_int_equal(count_blocks(), n);
                assert_ok(read_stock(&s, error));
                assert_sound(&s);
                assert_int_equal(count_blocks(), n); /* not forgotten yet */
                for (uint32_t i = 0; i < n; i += 2) s.pager.forget(s.pager.user, i + 1);
                assert_int_equal(count_blocks(), n / 2);
                close_stock(&s);
            }
        if (threads) stop_crew();
    }
}

static void test_names_in_any_order(void **state) {
    (void)state;
    stock s = open_stock(MANY, 200);
    assert_ok(write_stock(&s, error));
    for (uint32_t i = 0; i < s.n; i++) {
        uint32_t at = (i * 7 + 3) % s.n;
        ramet_pager_item item = {.name = at + 1, .data = s.data, .bytes = s.bytes};
        memset(s.data, 0, s.bytes);
        assert_ok(s.pager.read(s.pager.user, &item, 1, error));
        assert_memory_equal(s.data, s.sound + at * s.bytes, s.bytes);
    }
    close_stock(&s);
}

/* Neither the content, nor whether two blocks are equal, nor whether another process wrote the same. */
static void test_the_disk_shows_nothing(void **state) {
    (void)state;
    bytes files[4];
    for (int turn = 0; turn < 2; turn++) {
        stock s = open_stock(2, 4096);
        memset(s.sound, 'a', s.n * s.bytes);
        memset(s.data, 'a', s.n * s.bytes);
        assert_ok(write_stock(&s, error));
        for (int i = 0; i < 2; i++) {
            files[turn * 2 + i] = read_file(path_of((uint64_t)i + 1));
            assert_int_equal(files[turn * 2 + i].n, s.bytes + TAG);
        }
        struct stat st;
        assert_int_equal(stat(home(), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        assert_int_equal(stat(path_of(1), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        close_stock(&s);
    }
    for (int i = 0; i < 4; i++) {
        assert_null(memmem(files[i].data, files[i].n, "aaaaaaaa", 8));
        for (int j = 0; j < i; j++) assert_memory_not_equal(files[i].data, files[j].data, 64);
    }
    for (int i = 0; i < 4; i++) free(files[i].data);
}

/* ---- damage ---- */

/* Block 2 of three: its status, and the call's; the others are sound. */
static void assert_one_lost(stock *s, ramet_status expected) {
    ramet_error why = {0};
    assert_status(expected, read_stock(s, &why));
    assert_status(expected, s->items[1].status);
    if (!strstr(why.message, path_of(2))) fail_msg("'%s' does not name %s", why.message, path_of(2));
    if (!strstr(why.message, expected == RAMET_E_NO_MEMORY ? "try again" : "run its tokens again"))
        fail_msg("'%s' does not say what to do", why.message);
    for (uint32_t i = 0; i < s->n; i += 2) {
        assert_status(RAMET_OK, s->items[i].status);
        assert_true(is_sound(s, i));
    }
}

static void test_case_31_every_byte_and_length(void **state) {
    (void)state;
    stock s = open_stock(3, 100);
    assert_ok(write_stock(&s, error));
    const char *path = path_of(2);
    bytes file = read_file(path);
    for (size_t at = 0; at < file.n; at++) {
        uint8_t bit = (uint8_t)(1u << draw_below(8));
        file.data[at] ^= bit;
        write_file(path, file.data, file.n);
        assert_one_lost(&s, RAMET_E_AUTHENTICATION);
        file.data[at] ^= bit;
    }
    for (size_t n = 0; n < file.n; n++) {
        write_file(path, file.data, n);
        assert_one_lost(&s, RAMET_E_CORRUPT);
    }
    file.data[file.n] = 0;
    write_file(path, file.data, file.n + 1);
    assert_one_lost(&s, RAMET_E_CORRUPT);
    write_file(path, file.data, file.n);
    assert_ok(read_stock(&s, error)); /* it was the file */
    assert_sound(&s);
    free(file.data);
    close_stock(&s);
}

static void test_case_31_swapped_and_missing(void **state) {
    (void)state;
    stock s = open_stock(3, 2 * PIECE);
    assert_ok(write_stock(&s, error));
    bytes a = read_file(path_of(1)), b = read_file(path_of(2));
    write_file(path_of(2), a.data, a.n); /* a sound block of another name */
    assert_one_lost(&s, RAMET_E_AUTHENTICATION);
    bytes swapped = {malloc(b.n), b.n}; /* its own pieces, in another order */
    memcpy(swapped.data, b.data + b.n / 2, b.n / 2);
    memcpy(swapped.data + b.n / 2, b.data, b.n / 2);
    write_file(path_of(2), swapped.data, swapped.n);
    assert_one_lost(&s, RAMET_E_AUTHENTICATION);
    assert_int_equal(unlink(path_of(2)), 0);
    assert_one_lost(&s, RAMET_E_CORRUPT);
    assert_int_equal(mkfifo(path_of(2), 0600), 0); /* not waited for */
    assert_one_lost(&s, RAMET_E_CORRUPT);
    assert_int_equal(unlink(path_of(2)), 0);
    write_file(path_of(2), b.data, b.n);
    assert_ok(read_stock(&s, error));
    assert_sound(&s);
    free(a.data);
    free(b.data);
    free(swapped.data);
    close_stock(&s);
}

/* The block of the same name from another object with the same key: another salt. */
static void test_case_31_of_another_object(void **state) {
    (void)state;
    stock s = open_stock(3, 100);
    assert_ok(write_stock(&s, error));
    bytes theirs = read_file(path_of(2));
    close_stock(&s);
    s = open_stock(3, 100);
    assert_ok(write_stock(&s, error));
    bytes own = read_file(path_of(2));
    write_file(path_of(2), theirs.data, theirs.n);
    assert_one_lost(&s, RAMET_E_AUTHENTICATION);
    write_file(path_of(2), own.data, own.n);
    assert_ok(read_stock(&s, error));
    free(theirs.data);
    free(own.data);
    close_stock(&s);
}

/* ---- failures ---- */

static const struct {
    int error_number;
    ramet_status expected;
} disk_errors[] = {{ENOSPC, RAMET_E_NO_DISK}, {EDQUOT, RAMET_E_NO_DISK}, {EIO, RAMET_E_IO}};

/* Every call of a batch in turn. All of its files go, also those that were whole. */
static void test_case_32_writes_fail(void **state) {
    (void)state;
    unsigned n_struck = 0;
    for (size_t k = 0; k < sizeof disk_errors / sizeof disk_errors[0]; k++)
        for (unsigned nth = 1;; nth++) {
            stock s = open_stock(3, PIECE + 50);
            ramet_error why = {0};
            shim_watch(home());
            shim_arm(SHIM_ANY, SHIM_ERROR, nth, disk_errors[k].error_number);
            ramet_status status = write_stock(&s, &why);
            bool has_struck = shim_disarm(NULL);
            shim_watch(NULL);
            if (has_struck) {
                assert_status(disk_errors[k].expected, status);
                assert_int_equal(why.os_errno, disk_errors[k].error_number);
                assert_non_null(strstr(why.message, "free space, or give another spill directory: cannot "));
                assert_non_null(strstr(why.message, home()));
                assert_int_equal(count_blocks(), 0);
                n_struck++;
                assert_ok(write_stock(&s, error)); /* and then it goes well */
            }
            assert_ok(read_stock(&s, error));
            assert_sound(&s);
            close_stock(&s);
            if (!has_struck) break;
        }
    assert_int_equal(n_struck, 3 * 3 * 4); /* open, two writes and close of three blocks */
}

static void test_case_32_short_transfers(void **state) {
    (void)state;
    for (unsigned nth = 1; nth <= 6; nth++) {
        stock s = open_stock(3, PIECE + 50);
        shim_watch(home());
        shim_arm(SHIM_WRITE, SHIM_SHORT, nth, 0);
        assert_ok(write_stock(&s, error));
        assert_true(shim_disarm(NULL));
        shim_arm(SHIM_READ, SHIM_SHORT, nth, 0);
        assert_ok(read_stock(&s, error));
        assert_true(shim_disarm(NULL));
        shim_watch(NULL);
        assert_sound(&s);
        close_stock(&s);
    }
}

static void test_case_32_reads_fail(void **state) {
    (void)state;
    static const struct {
        shim_call call;
        shim_effect effect;
        int error_number;
        ramet_status expected;
    } faults[] = {
        {SHIM_OPEN, SHIM_ERROR, EMFILE, RAMET_E_NO_MEMORY}, {SHIM_OPEN, SHIM_ERROR, ENFILE, RAMET_E_NO_MEMORY},
        {SHIM_OPEN, SHIM_ERROR, ENOMEM, RAMET_E_NO_MEMORY}, {SHIM_OPEN, SHIM_ERROR, EINTR, RAMET_E_NO_MEMORY},
        {SHIM_OPEN, SHIM_ERROR, EIO, RAMET_E_IO},           {SHIM_READ, SHIM_ERROR, EIO, RAMET_E_IO},
        {SHIM_READ, SHIM_FLIP, 0, RAMET_E_AUTHENTICATION},
    };
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++) {
        stock s = open_stock(3, 100);
        assert_ok(write_stock(&s, error));
        shim_watch(home());
        shim_arm(faults[k].call, faults[k].effect, 2, faults[k].error_number);
        assert_one_lost(&s, faults[k].expected);
        assert_true(shim_disarm(NULL));
        shim_watch(NULL);
        assert_ok(read_stock(&s, error)); /* the next try */
        assert_sound(&s);
        close_stock(&s);
    }
}

/* Both ways, any allocation, that of the cipher included. */
static void test_no_memory(void **state) {
    (void)state;
    stock s = open_stock(3, 100);
    assert_ok(write_stock(&s, error)); /* what the cipher sets up once is set up */
    for (uint32_t i = 0; i < 3; i++) s.pager.forget(s.pager.user, i + 1);
    unsigned n_failed = 0;
    for (unsigned nth = 1; nth < 100; nth++) {
        if (!shim_fail_malloc(nth)) break;
        ramet_status status = write_stock(&s, NULL);
        bool has_failed = shim_malloc_has_failed();
        if (status != RAMET_OK) {
            assert_status(RAMET_E_NO_MEMORY, status);
            assert_int_equal(count_blocks(), 0);
            assert_ok(write_stock(&s, error));
        }
        shim_fail_malloc(nth);
        status = read_stock(&s, NULL);
        n_failed += has_failed + shim_malloc_has_failed();
        if (status != RAMET_OK) assert_status(RAMET_E_NO_MEMORY, status);
        assert_ok(read_stock(&s, error));
        assert_sound(&s);
        for (uint32_t i = 0; i < 3; i++) s.pager.forget(s.pager.user, i + 1);
        if (!has_failed) break;
    }
    if (shim_fail_malloc(0)) assert_true(n_failed > 5);
    close_stock(&s);
}

static void test_creating_fails(void **state) {
    (void)state;
    ramet_spill *spill;
    ramet_error why = {0};
    assert_status(RAMET_E_NOT_FOUND, ramet_spill_create(in_directory("missing"), key, NULL, &spill, &why));
    assert_non_null(strstr(why.message, in_directory("missing")));
    assert_null(spill);
    assert_status(RAMET_E_ARGUMENT, ramet_spill_create("", key, NULL, &spill, NULL));
    assert_null(spill);
    write_file(in_directory("a file"), key, 1);
    assert_status(RAMET_E_IO, ramet_spill_create(in_directory("a file"), key, NULL, &spill, NULL));
    unlink(in_directory("a file"));
    uint64_t n = 1;
    for (; n < 100; n++) {
        ramet_alloc_fail_after(n);
        ramet_status status = ramet_spill_create(directory, key, NULL, &spill, NULL);
        ramet_alloc_fail_after(0);
        if (status == RAMET_OK) break;
        assert_status(RAMET_E_NO_MEMORY, status);
        assert_null(spill);
        assert_int_equal(count_files(), 0);
    }
    assert_true(n > 2 && n < 100);
    ramet_spill_destroy(&spill);
    ramet_spill_destroy(&spill); /* NULL does nothing */
    assert_int_equal(count_files(), 0);
}

/* ---- where it is ---- */

/* A relative name means what it meant when it was given. */
static void test_the_process_changes_its_directory(void **state) {
    (void)state;
    char *before = getcwd(NULL, 0);
    assert_non_null(before);
    assert_int_equal(chdir(directory), 0);
    stock s = {.n = 2, .bytes = 100, .sound = malloc(200), .data = malloc(200)};
    assert_ok(ramet_spill_create(".", key, NULL, &s.spill, error));
    s.pager = ramet_spill_pager(s.spill);
    draw_bytes(s.sound, 200);
    memcpy(s.data, s.sound, 200);
    for (int turn = 0; turn < 2; turn++) { /* what was written here is read there, and then all is there */
        if (turn == 0) assert_ok(write_stock(&s, error));
        assert_int_equal(chdir("/"), 0);
        if (turn == 1) assert_ok(write_stock(&s, error));
        assert_ok(read_stock(&s, error));
        assert_sound(&s);
        for (uint32_t i = 0; i < 2; i++) s.pager.forget(s.pager.user, i + 1);
        assert_int_equal(count_blocks(), 0);
    }
    close_stock(&s);
    assert_int_equal(chdir(before), 0);
    free(before);
}

/* As deep as a path may be, and one that is deeper. */
static void test_a_very_long_path(void **state) {
    (void)state;
    enum { STEP = 200 };
    char path[RAMET_SCRATCH_PATH_BYTES];
    size_t length = strlen(directory), top = length;
    memcpy(path, directory, length + 1);
    while (length + 1 + STEP < sizeof path - 50) {
        path[length++] = '/';
        memset(path + length, 'd', STEP);
        path[length += STEP] = '\0';
        assert_int_equal(mkdir(path, 0700), 0);
    }
    stock s = {.n = 2, .bytes = 100, .sound = malloc(200), .data = malloc(200)};
    assert_ok(ramet_spill_create(path, key, NULL, &s.spill, error));
    s.pager = ramet_spill_pager(s.spill);
    draw_bytes(s.sound, 200);
    memcpy(s.data, s.sound, 200);
    assert_ok(write_stock(&s, error));
    assert_ok(read_stock(&s, error));
    assert_sound(&s);
    ramet_spill_destroy(&s.spill);
    path[length] = '/'; /* so that a file in a directory in it would be too deep */
    memset(path + length + 1, 'd', sizeof path - 32 - length - 1);
    path[sizeof path - 32] = '\0';
    assert_int_equal(mkdir(path, 0700), 0);
    assert_status(RAMET_E_ARGUMENT, ramet_spill_create(path, key, NULL, &s.spill, NULL));
    assert_int_equal(rmdir(path), 0);
    for (path[length] = '\0'; length > top; path[length] = '\0') { /* each is empty */
        assert_int_equal(rmdir(path), 0);
        length -= STEP + 1;
    }
    close_stock(&s);
}

/* ---- the end of a process ---- */

static void die(int signal_number) {
    ramet_temporary_remove_all();
    _exit(128 + signal_number);
}

/* Spills in a child, which then sends itself the signal; returns how many things are left in the directory. */
static uint32_t left_by(int signal_number) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGTERM, die);
        stock s = open_stock(MANY, 1000);
        if (write_stock(&s, NULL) != RAMET_OK) _exit(1);
        raise(signal_number);
        close_stock(&s);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) % 128, signal_number);
    return count_files();
}

static void test_nothing_outlives_its_process(void **state) {
    (void)state;
    size_t length = strlen(directory);
    strcat(directory, "/fresh"); /* where this process, whose memory its children have, has not swept */
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(left_by(SIGTERM), 0);
    assert_int_equal(left_by(SIGKILL), 1);
    assert_int_equal(count_blocks(), MANY); /* so there is something to sweep */
    assert_int_equal(left_by(SIGTERM), 0);  /* before the next process makes its own */
    stock s = open_stock(1, 10);
    assert_ok(write_stock(&s, error));
    ramet_temporary_sweep_again(directory);
    assert_int_equal(count_files(), 1); /* held */
    assert_ok(read_stock(&s, error));
    assert_sound(&s);
    close_stock(&s);
    assert_int_equal(rmdir(directory), 0);
    directory[length] = '\0';
}

int main(int argc, char **argv) {
    seed_from(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_k9),
        cmocka_unit_test(test_names_in_any_order),
        cmocka_unit_test(test_the_disk_shows_nothing),
        cmocka_unit_test(test_case_31_every_byte_and_length),
        cmocka_unit_test(test_case_31_swapped_and_missing),
        cmocka_unit_test(test_case_31_of_another_object),
        cmocka_unit_test(test_case_32_writes_fail),
        cmocka_unit_test(test_case_32_short_transfers),
        cmocka_unit_test(test_case_32_reads_fail),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_creating_fails),
        cmocka_unit_test(test_the_process_changes_its_directory),
        cmocka_unit_test(test_a_very_long_path),
        cmocka_unit_test(test_nothing_outlives_its_process),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
