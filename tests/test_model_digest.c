/* test_model_digest.c - the directory of digests: what is remembered equals what is computed, a file that somebody wrote
 * to is never believed, and a directory or entry that is damaged costs a hash and nothing else. Files of one directory
 * (and one of a tmpfs, where a store through a mapping leaves the times alone), which are left alone for two seconds
 * before the first test. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "model/model.h"
#include "support/assert_ok.h"
#include "support/tiny_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ENTRY_BYTES = 112 };

static char directory[] = "/tmp/ramet-test-digest-XXXXXX", cache[64], on_tmpfs[64];
static volatile uint8_t *stored; /* the file on the tmpfs, mapped; or NULL */
/* Each test has files of its own. */
static const char *const names[] = {"hit",     "written",  "put-back",     "renamed",
                                    "damaged", "unusable", "while-cached", "while-hashed"};

static const char *at(const char *folder, const char *name) {
    static char paths[4][160];
    static unsigned next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

static void save_model(const char *path) {
    tiny_model m = tm_default("qwen3");
    gguf_builder g = tm_build(&m);
    gb_str(&g, "test.name", path); /* all are different */
    gb_save(&g, path);
    gb_end(&g);
}

static void true_digest(const char *path, uint8_t out[32]) {
    char *data;
    size_t bytes;
    assert_ok(ramet_read_all(path, &data, &bytes, error));
    ramet_sha256_once(data, bytes, out);
    free(data);
}

/* Opens, takes the digest with `with` as the cache, and compares it with the file's; was it remembered? */
static bool was_cached(const char *path, const char *with) {
    ramet_gguf *gguf;
    uint8_t digest[32], expected[32];
    bool is_cached;
    assert_ok(ramet_gguf_open(path, &gguf, error));
    assert_ok(ramet_gguf_digest(gguf, with, digest, &is_cached, error));
    ramet_gguf_close(&gguf);
    true_digest(path, expected);
    assert_memory_equal(digest, expected, 32);
    return is_cached;
}

/* The last byte of the last tensor, so that it stays a model of the same layout. */
static void change_last_byte(const char *path) {
    struct stat st;
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(pread(fd, &byte, 1, st.st_size - 1), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size - 1), 1);
    close(fd);
}

static unsigned count_files(const char *folder, char last[160]) {
    unsigned n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            n++;
            snprintf(last, 160, "%.60s/%.60s", folder, e->d_name);
        }
    closedir(d);
    return n;
}

/* A cache of its own with the entry of one file; the entry's path. */
static void remember(const char *path, const char *folder, char entry[160]) {
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_false(was_cached(path, folder));
    assert_int_equal(count_files(folder, entry), 1);
    assert_true(was_cached(path, folder));
}

static void a_second_time(void **state) {
    (void)state;
    const char *path = at(directory, "hit");
    assert_false(was_cached(path, NULL));
    assert_false(was_cached(path, cache));
    assert_true(was_cached(path, cache));
    assert_true(was_cached(path, cache));
    assert_false(was_cached(path, NULL));
}

static void a_new_file_is_not_trusted_yet(void **state) {
    (void)state;
    char folder[64], last[160];
    snprintf(folder, sizeof folder, "%s/early", directory);
    assert_int_equal(mkdir(folder, 0700), 0);
    const char *path = at(directory, "new");
    save_model(path);
    assert_false(was_cached(path, folder));
    assert_false(was_cached(path, folder));
    assert_int_equal(count_files(folder, last), 0);
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0); /* its mtime is old now; its ctime is not */
    assert_false(was_cached(path, folder));
    assert_int_equal(count_files(folder, last), 0);
}

static void a_file_written_to(void **state) {
    (void)state;
    const char *path = at(directory, "written");
    assert_false(was_cached(path, cache));
    assert_true(was_cached(path, cache));
    change_last_byte(path);
    assert_false(was_cached(path, cache));
}

static void an_mtime_put_back(void **state) {
    (void)state;
    struct stat before, after;
    const char *path = at(directory, "put-back");
    assert_int_equal(stat(path, &before), 0);
    assert_false(was_cached(path, cache));
    assert_true(was_cached(path, cache));
    change_last_byte(path);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){before.st_atim, before.st_mtim}, 0), 0);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(after.st_size, before.st_size);
    assert_memory_equal(&after.st_mtim, &before.st_mtim, sizeof after.st_mtim);
    assert_false(was_cached(path, cache));
}

/* Not a time moves, and the entry is there: only the bytes tell. */
static void stored_to_through_a_mapping(void **state) {
    (void)state;
    struct stat before, after;
    if (!stored) skip(); /* no tmpfs here */
    assert_int_equal(stat(on_tmpfs, &before), 0);
    assert_false(was_cached(on_tmpfs, cache));
    assert_true(was_cached(on_tmpfs, cache));
    for (int i = 0; i < 2; i++) {
        stored[before.st_size - 1] ^= 1;
        assert_int_equal(stat(on_tmpfs, &after), 0);
        assert_memory_equal(&after.st_mtim, &before.st_mtim, sizeof after.st_mtim);
        assert_memory_equal(&after.st_ctim, &before.st_ctim, sizeof after.st_ctim);
        assert_false(was_cached(on_tmpfs, cache));
        assert_true(was_cached(on_tmpfs, cache)); /* the entry was written again */
    }
}

static void another_in_its_place(void **state) {
    (void)state;
    const char *path = at(directory, "renamed"), *copy = at(directory, "copy");
    uint8_t first[32], second[32];
    true_digest(path, first);
    assert_false(was_cached(path, cache));
    assert_true(was_cached(path, cache));
    assert_int_equal(rename(path, copy), 0); /* the same model under another name; a rename changes the ctime */
    assert_false(was_cached(copy, cache));
    true_digest(copy, second);
    assert_memory_equal(first, second, 32);
    save_model(path);
    change_last_byte(path);
    assert_false(was_cached(path, cache));
}

static void damaged_entries(void **state) {
    (void)state;
    const char *path = at(directory, "damaged");
    char folder[64], entry[160], *good;
    size_t bytes;
    snprintf(folder, sizeof folder, "%s/entries", directory);
    remember(path, folder, entry);
    assert_ok(ramet_read_all(entry, &good, &bytes, error));
    assert_int_equal(bytes, ENTRY_BYTES);
    uint8_t bad[2 * ENTRY_BYTES] = {0};
    for (size_t i = 0; i < ENTRY_BYTES; i++) {
        memcpy(bad, good, ENTRY_BYTES);
        bad[i] ^= 0x10;
        gb_save_bytes(entry, bad, ENTRY_BYTES);
        assert_false(was_cached(path, folder));
        assert_true(was_cached(path, folder)); /* it was written again */
    }
    memcpy(bad, good, ENTRY_BYTES);
    for (size_t n = 0; n <= sizeof bad; n++) {
        gb_save_bytes(entry, bad, n);
        assert_int_equal(was_cached(path, folder), n == ENTRY_BYTES);
    }
    free(good);
}

static void directories_that_cannot_be_used(void **state) {
    (void)state;
    const char *path = at(directory, "unusable");
    char folder[64], entry[160];
    snprintf(folder, sizeof folder, "%s/private", directory);
    assert_false(was_cached(path, "/nonexistent/ramet"));
    assert_false(was_cached(path, path)); /* not a directory */
    remember(path, folder, entry);
    for (mode_t others = 020; others >= 02; others /= 8) { /* others can write there */
        assert_int_equal(chmod(folder, 0700 | others), 0);
        assert_false(was_cached(path, folder));
    }
    assert_int_equal(chmod(folder, 0500), 0);
    assert_true(was_cached(path, folder));
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(unlink(entry), 0);
    if (geteuid() != 0) { /* root writes everywhere */
        assert_int_equal(chmod(folder, 0500), 0);
        assert_false(was_cached(path, folder));
        assert_int_equal(chmod(folder, 0700), 0);
    }
    assert_int_equal(mkdir(entry, 0700), 0); /* where nothing can be published */
    assert_false(was_cached(path, folder));
    assert_false(was_cached(path, folder));
    assert_int_equal(count_files(folder, entry), 1);
}

static void memory_is_no_file(void **state) {
    (void)state;
    const char *path = at(directory, "hit");
    char *data;
    size_t bytes;
    ramet_gguf *gguf;
    uint8_t digest[32];
    bool is_cached;
    (void)was_cached(path, cache);
    assert_ok(ramet_read_all(path, &data, &bytes, error));
    assert_ok(ramet_gguf_open_memory((uint8_t *)data, bytes, path, &gguf, error));
    assert_ok(ramet_gguf_digest(gguf, cache, digest, &is_cached, error));
    assert_false(is_cached);
    ramet_gguf_close(&gguf);
    free(data);
}

/* The identity of a split model is that of its parts in a row, so one entry stands for all of them. */
static void any_part_counts(void **state) {
    (void)state;
    const char *first = at(directory, "m-00001-of-00002.gguf"), *second = at(directory, "m-00002-of-00002.gguf");
    for (int i = 0; i < 3; i++) {
        ramet_gguf *gguf;
        uint8_t digest[32], expected[32];
        bool is_cached;
        char *data[2];
        size_t bytes[2];
        if (i == 2) change_last_byte(second);
        assert_ok(ramet_gguf_open(i ? second : first, &gguf, error));
        assert_ok(ramet_gguf_digest(gguf, cache, digest, &is_cached, error));
        assert_int_equal(is_cached, i == 1);
        ramet_gguf_close(&gguf);
        assert_ok(ramet_read_all(first, &data[0], &bytes[0], error));
        assert_ok(ramet_read_all(second, &data[1], &bytes[1], error));
        ramet_sha256_pieces((ramet_piece[]){{data[0], bytes[0]}, {data[1], bytes[1]}}, 2, expected);
        assert_memory_equal(digest, expected, 32);
        free(data[0]);
        free(data[1]);
    }
}

static bool load_weights(const ramet_gguf *gguf, const char *adapter, float scale, const char *with, uint8_t out[32]) {
    const ramet_model_options options = {.lora_path = adapter, .lora_scale = scale, .digest_cache = with};
    ramet_weights *w;
    assert_ok(ramet_weights_load(gguf, &options, NULL, &w, error));
    bool is_cached = w->digest_cached;
    memcpy(out, w->sha256, 32);
    ramet_weights_destroy(&w);
    return is_cached;
}

/* What was repacked and what the digest is of might differ then. */
static void changed_while_it_is_loaded(void **state) {
    (void)state;
    uint8_t before[32], after[32], expected[32];
    for (int i = 0; i < 2; i++) {
        const char *path = at(directory, i ? "while-hashed" : "while-cached"), *with = i ? NULL : cache;
        const ramet_model_options options = {.digest_cache = with};
        ramet_gguf *gguf;
        ramet_weights *w;
        ramet_error why;
        assert_false(was_cached(path, with));
        assert_ok(ramet_gguf_open(path, &gguf, error));
        assert_int_equal(load_weights(gguf, NULL, 1, with, before), i == 0);
        change_last_byte(path);
        assert_int_equal(ramet_weights_load(gguf, &options, NULL, &w, &why), RAMET_E_IO);
        assert_null(w);
        assert_non_null(strstr(why.message, path));
        ramet_gguf_close(&gguf);
        assert_ok(ramet_gguf_open(path, &gguf, error));
        assert_false(load_weights(gguf, NULL, 1, cache, after));
        ramet_gguf_close(&gguf);
        true_digest(path, expected);
        assert_memory_equal(after, expected, 32);
        assert_memory_not_equal(before, after, 32);
    }
}

/* Another process changes it all the time, so one of many loads is met. */
static void an_adapter_changed_while_it_is_loaded(void **state) {
    (void)state;
    const char *adapter = at(directory, "moving");
    const ramet_model_options options = {.lora_path = adapter, .lora_scale = 1};
    ramet_gguf *gguf;
    ramet_status status = RAMET_OK;
    ramet_error why;
    const pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0)
        for (;;) utimensat(AT_FDCWD, adapter, NULL, 0);
    assert_ok(ramet_gguf_open(at(directory, "hit"), &gguf, error));
    for (int i = 0; i < 20000 && status == RAMET_OK; i++) {
        ramet_weights *w;
        status = ramet_weights_load(gguf, &options, NULL, &w, &why);
        ramet_weights_destroy(&w);
    }
    ramet_gguf_close(&gguf);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_int_equal(status, RAMET_E_IO);
    assert_non_null(strstr(why.message, adapter));
}

static void the_adapter_and_its_scale(void **state) {
    (void)state;
    const char *path = at(directory, "hit"), *adapter = at(directory, "adapter");
    ramet_gguf *gguf;
    uint8_t plain[32], hashed[32], computed[32], remembered[32], other[32];
    (void)was_cached(path, cache);
    assert_ok(ramet_gguf_open(path, &gguf, error));
    assert_true(load_weights(gguf, NULL, 1, cache, plain));
    assert_false(load_weights(gguf, adapter, 1, NULL, hashed));
    load_weights(gguf, adapter, 1, cache, computed);
    assert_true(was_cached(adapter, cache));
    load_weights(gguf, adapter, 1, cache, remembered);
    load_weights(gguf, adapter, 0.5f, cache, other);
    assert_memory_equal(hashed, computed, 32);
    assert_memory_equal(hashed, remembered, 32);
    assert_memory_not_equal(hashed, plain, 32);
    assert_memory_not_equal(hashed, other, 32);
    ramet_gguf_close(&gguf);
}

static void save_split(void) {
    for (uint32_t no = 0; no < 2; no++) {
        gguf_builder g = gb_begin();
        const float value = (float)no;
        gb_key(&g, "split.no", 2), gb_uint(&g.values, no, 2);
        gb_key(&g, "split.count", 2), gb_uint(&g.values, 2, 2);
        gb_tensor(&g, no ? "two" : "one", 1, 1, 0, &value, 4);
        gb_save(&g, at(directory, no ? "m-00002-of-00002.gguf" : "m-00001-of-00002.gguf"));
        gb_end(&g);
    }
}

static void save_adapter(const char *path) {
    const float a[32] = {1}, b[16] = {1};
    gguf_builder g = gb_begin();
    gb_str(&g, "general.type", "adapter");
    gb_str(&g, "general.architecture", "qwen3");
    gb_str(&g, "adapter.type", "lora");
    gb_f32(&g, "adapter.lora.alpha", 8);
    gb_tensor(&g, "blk.0.attn_k.weight.lora_a", 32, 1, 0, a, sizeof a);
    const uint64_t dims[2] = {1, 16};
    gb_pad(&g.data, g.alignment);
    gb_info(&g, "blk.0.attn_k.weight.lora_b", 2, dims, 2, 0, g.data.bytes);
    gb_put(&g.data, b, sizeof b);
    gb_save(&g, path);
    gb_end(&g);
}

/* A page's first store moves the times; nothing is ever written back from a tmpfs, so later ones do not. */
static void map_file_on_tmpfs(void) {
    struct stat st;
    struct statfs fs;
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC || access("/dev/shm", W_OK) != 0) return;
    snprintf(on_tmpfs, sizeof on_tmpfs, "/dev/shm/%s", strrchr(directory, '/') + 1);
    save_model(on_tmpfs);
    int fd = open(on_tmpfs, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    stored = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(stored != MAP_FAILED);
    stored[st.st_size - 1] ^= 1;
    close(fd);
}

static int make_files(void **state) {
    (void)state;
    if (!mkdtemp(directory)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", directory);
    if (mkdir(cache, 0700) != 0) return -1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) save_model(at(directory, names[i]));
    map_file_on_tmpfs();
    save_split();
    save_adapter(at(directory, "adapter"));
    save_adapter(at(directory, "moving"));
    const struct timespec settled = {.tv_sec = 2, .tv_nsec = 50000000};
    return nanosleep(&settled, NULL);
}

static int remove_files(void **state) {
    (void)state;
    char command[64];
    unlink(on_tmpfs);
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_time),
        cmocka_unit_test(a_new_file_is_not_trusted_yet),
        cmocka_unit_test(a_file_written_to),
        cmocka_unit_test(an_mtime_put_back),
        cmocka_unit_test(stored_to_through_a_mapping),
        cmocka_unit_test(another_in_its_place),
        cmocka_unit_test(damaged_entries),
        cmocka_unit_test(directories_that_cannot_be_used),
        cmocka_unit_test(memory_is_no_file),
        cmocka_unit_test(any_part_counts),
        cmocka_unit_test(changed_while_it_is_loaded),
        cmocka_unit_test(an_adapter_changed_while_it_is_loaded),
        cmocka_unit_test(the_adapter_and_its_scale),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
