/* test_engine_faults.c - each operation on contexts, with each of its file calls failing in turn, and each of its
 * allocations: a typed error that names the file, and then everything is as before (cases 31, 32, 38). The library is
 * the real one, on a small model; the file calls fail by faults/shim.h. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_ok.h"

#include "base/memory.h"
#include "base/sweep.h"
#include "faults/shim.h"
#include "ramet.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"
enum { LENGTH = 90, N = 200 };

static ramet_model *model;
static ramet_engine *engine;
static uint32_t n_vocab;
static int32_t tokens[N];
static char directory[64], path[96], spill_directory[80]; /* within `directory`, and not counted there */

/* ---- the scene: a context, what it gives next, an entry of the tree, and a file of it ---- */

static ramet_context *subject, *result; /* `result`: what an operation makes */
static ramet_context *away;             /* a spilled one, for what reads back */
static ramet_snapshot_sampler sampler;
static float *next_logits;
static uint8_t *old_file;
static size_t old_bytes;

static uint8_t *read_file(size_t *out_bytes) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *out_bytes = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*out_bytes);
    assert_int_equal(fread(data, 1, *out_bytes, f), *out_bytes);
    fclose(f);
    return data;
}

static void next_of(ramet_context *context, float *out) {
    ramet_context *fork;
    const float *row;
    assert_ok(ramet_context_fork(context, &fork, error));
    assert_ok(ramet_context_extend(fork, tokens + LENGTH, 1, error));
    assert_ok(ramet_context_logits(fork, &row, error));
    memcpy(out, row, n_vocab * sizeof *row);
    assert_ok(ramet_context_close(&fork, error));
}

static void assert_is_whole(ramet_context *context) {
    float *next = malloc(n_vocab * sizeof *next);
    assert_int_equal(ramet_context_length(context), LENGTH);
    next_of(context, next);
    assert_memory_equal(next, next_logits, n_vocab * sizeof *next);
    free(next);
}

static int open_engine(void **state) {
    (void)state;
    ramet_model_info info;
    const ramet_engine_options options = {.threads = 2, .n_ctx = 512, .spill_directory = spill_directory};
    strcpy(directory, "/tmp/ramet-test-faults-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/context.ramet", directory);
    snprintf(spill_directory, sizeof spill_directory, "%s/.spill", directory);
    if (mkdir(spill_directory, 0700) != 0) return -1;
    assert_ok(ramet_model_open(MODEL, NULL, &model, error));
    assert_ok(ramet_engine_create(model, &options, &engine, error));
    ramet_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    next_logits = malloc(n_vocab * sizeof *next_logits);
    for (uint32_t i = 0; i < N; i++) tokens[i] = (int32_t)(i * 7919 % n_vocab);
    assert_ok(ramet_context_create(engine, &subject, error));
    assert_ok(ramet_context_extend(subject, tokens + 1, LENGTH - 1, error)); /* an entry of the tree, not of it alone */
    assert_ok(ramet_prefix_retain(subject, NULL, error));
    assert_ok(ramet_context_truncate(subject, 0, error));
    assert_ok(ramet_context_extend(subject, tokens, LENGTH, error));
    next_of(subject, next_logits);
    return 0;
}

static int close_engine(void **state) {
    (void)state;
    ramet_context_close(&subject, NULL);
    ramet_engine_destroy(&engine);
    ramet_model_close(&model);
    free(next_logits);
    unlink(path);
    rmdir(spill_directory);
    return rmdir(directory);
}

/* ---- operations ---- */

typedef struct operation {
    const char *name;
    void (*prepare)(void);
    ramet_status (*run)(ramet_error *error);
    bool reads; /* files, and nothing is written */
} operation;

static void nothing(void) {}
static void no_file(void) {
    unlink(path);
}
static void a_file(void) {
    const ramet_snapshot_options options = {
        .owner = "before", .sampler_state = "state", .sampler_state_bytes = 5, .skip_sync = true};
    assert_ok(ramet_snapshot_save(subject, path, &options, NULL, error));
}
static void no_prefix(void) {
    ramet_prefix_clear(engine);
}
static void a_prefix(void) {
    assert_ok(ramet_prefix_retain(subject, NULL, error));
}
static void one_is_away(void) {
    assert_ok(ramet_context_create(engine, &away, error));
    assert_ok(ramet_context_extend(away, tokens, LENGTH, error));
    assert_ok(ramet_context_spill(away, error));
}

static ramet_status save(ramet_error *error) {
    return ramet_snapshot_save(subject, path, NULL, NULL, error);
}
static ramet_status save_unsynced(ramet_error *error) {
    const ramet_snapshot_options options = {.skip_sync = true};
    return ramet_snapshot_save(subject, path, &options, NULL, error);
}
static ramet_status restore(ramet_error *error) {
    return ramet_snapshot_restore(engine, path, NULL, &result, &sampler, NULL, error);
}
static ramet_status spill(ramet_error *error) {
    return ramet_context_spill(subject, error);
}
static ramet_status read_back(ramet_error *error) {
    const float *row;
    return ramet_context_logits(away, &row, error);
}
static ramet_status create(ramet_error *error) {
    return ramet_context_create(engine, &result, error);
}
static ramet_status fork_it(ramet_error *error) {
    return ramet_context_fork(subject, &result, error);
}
static ramet_status retain(ramet_error *error) {
    return ramet_prefix_retain(subject, NULL, error);
}
static ramet_status match(ramet_error *error) {
    size_t matched;
    return ramet_prefix_match(engine, NULL, tokens, LENGTH, &result, &matched, error);
}
static ramet_status extend(ramet_error *error) {
    return ramet_context_extend(subject, tokens + LENGTH, N - LENGTH, error);
}

/* On an engine that has nothing set aside yet. */
static ramet_status live_on(ramet_engine *fresh, ramet_error *error) {
    ramet_context *context, *other;
    size_t matched;
    RAMET_TRY(ramet_context_create(fresh, &context, error));
    ramet_status status = ramet_context_extend(context, tokens, LENGTH, error);
    if (status == RAMET_OK) status = ramet_context_fork(context, &other, error);
    if (status == RAMET_OK) {
        status = ramet_prefix_retain(context, NULL, error);
        if (status == RAMET_OK) status = ramet_context_extend(other, tokens + LENGTH, 10, error);
        ramet_context_close(&other, NULL);
    }
    if (status == RAMET_OK) status = ramet_prefix_match(fresh, NULL, tokens, N, &other, &matched, error);
    if (status == RAMET_OK) ramet_context_close(&other, NULL);
    assert_int_equal(ramet_engine_check(fresh, NULL), RAMET_OK);
    ramet_context_close(&context, NULL);
    return status;
}

static ramet_status live(ramet_error *error) {
    const ramet_engine_options options = {.threads = 2, .n_ctx = 512, .spill_directory = spill_directory};
    ramet_engine *fresh;
    ramet_status status = ramet_engine_create(model, &options, &fresh, error);
    assert_int_equal(status == RAMET_OK, fresh != NULL);
    if (status == RAMET_OK) status = live_on(fresh, error);
    ramet_engine_destroy(&fresh);
    return status;
}

static const operation with_files[] = {
    {"save to a new file", no_file, save, false},
    {"save over a file", a_file, save, false},
    {"save without sync", a_file, save_unsynced, false},
    {"restore", a_file, restore, true},
    {"spill", a_file, spill, false},
    {"read back", one_is_away, read_back, true},
};
static const operation in_memory[] = {
    {"create", nothing, create, false}, {"fork", nothing, fork_it, false},  {"retain", no_prefix, retain, false},
    {"match", a_prefix, match, false},  {"extend", nothing, extend, false}, {"an engine's life", nothing, live, false},
};

/* ---- before and after ---- */

static ramet_engine_stats before;
static size_t files_before, blocks_before;

static size_t count_entries(const char *where) {
    size_t n = 0;
    DIR *d = opendir(where);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static size_t count_files(void) {
    return count_entries(directory);
}

/* In the one directory of the engine. */
static size_t count_blocks(void) {
    char home[400] = "";
    DIR *d = opendir(spill_directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        assert_int_equal(home[0], 0);
        snprintf(home, sizeof home, "%s/%s", spill_directory, e->d_name);
    }
    closedir(d);
    return count_entries(home);
}

/* One whose blocks did not come back is emptied: that is all that a fault may change. */
static bool is_lost(const ramet_context *context) {
    return context && ramet_context_length(context) == 0;
}

static void prepare(const operation *op) {
    op->prepare();
    before = (ramet_engine_stats){0};
    ramet_engine_get_stats(engine, &before);
    files_before = count_files();
    blocks_before = count_blocks();
    old_file = access(path, F_OK) == 0 ? read_file(&old_bytes) : NULL;
}

static void assert_file_is_old(void) {
    size_t n;
    if (!old_file) {
        assert_int_not_equal(access(path, F_OK), 0);
        return;
    }
    uint8_t *data = read_file(&n);
    assert_int_equal(n, old_bytes);
    assert_memory_equal(data, old_file, n);
    free(data);
}

/* What failed changed nothing: pages, contexts, entries, files; and the subject goes on as it would have. */
static void assert_as_before(void) {
    ramet_engine_stats after;
    assert_null(result);
    assert_null(sampler.data);
    ramet_engine_get_stats(engine, &after);
    if (is_lost(away)) {
        assert_int_equal(after.pages_live, before.pages_live - 2);
        assert_int_equal(after.contexts_lost, before.contexts_lost + 1);
        assert_int_equal(count_blocks(), 0);
    } else {
        assert_int_equal(after.pages_live, before.pages_live);
        assert_int_equal(after.contexts_lost, before.contexts_lost);
        assert_int_equal(after.memory_bytes + after.spilled_bytes, before.memory_bytes + before.spilled_bytes);
    }
    assert_int_equal(after.contexts, before.contexts);
    assert_int_equal(after.tree_entries, before.tree_entries);
    assert_int_equal(after.tree_bytes, before.tree_bytes);
    assert_int_equal(count_files(), files_before);
    assert_ok(ramet_engine_check(engine, error));
}

/* What it made is whole and goes, and the subject is again what it was. */
static void clean_up(void) {
    if (access(path, F_OK) == 0) assert_ok(ramet_snapshot_verify(path, NULL, error));
    if (result && ramet_context_length(result) == LENGTH) assert_is_whole(result);
    ramet_context_close(&result, NULL);
    free(sampler.data);
    sampler = (ramet_snapshot_sampler){0};
    free(old_file);
    old_file = NULL;
    const float *row;
    if (away && !is_lost(away)) assert_is_whole(away);
    ramet_context_close(&away, NULL);
    assert_ok(ramet_context_truncate(subject, LENGTH, error));
    if (ramet_context_logits(subject, &row, NULL) != RAMET_OK) { /* it was longer */
        assert_ok(ramet_context_truncate(subject, LENGTH - 1, error));
        assert_ok(ramet_context_extend(subject, tokens + LENGTH - 1, 1, error));
    }
    assert_is_whole(subject);
    assert_ok(ramet_engine_check(engine, error));
}

/* ---- each file call ---- */

static unsigned count_calls(const operation *op) {
    size_t n;
    prepare(op);
    shim_record(true);
    assert_ok(op->run(error));
    shim_record(false);
    shim_recorded(&n);
    assert_true(n > 0);
    clean_up();
    return (unsigned)n;
}

/* Nobody waits for these: closing what was read or only synced, removing what is not needed any more. */
static bool is_harmless(const operation *op, const shim_event *e) {
    bool is_directory = strstr(e->path, ".ramet") == NULL && strstr(e->path, "/.spill/") == NULL;
    if (e->call == SHIM_CLOSE) return op->reads || is_directory;
    return e->call == SHIM_UNLINK || e->call == SHIM_RMDIR;
}

/* The last step of a save: the new file is in place and whole, only its name may not outlive a power loss. */
static bool is_after_rename(const operation *op, const shim_event *e) {
    return op->run == save && strcmp(e->path, directory) == 0;
}

static void assert_refused(const operation *op, const shim_event *e, int error_number, ramet_status status,
                           const ramet_error *error) {
    ramet_status expected = error_number == ENOSPC ? RAMET_E_NO_DISK : RAMET_E_IO;
    const char *named = strstr(e->path, ".ramet") ? ".ramet" : directory; /* the file, or where it was to be */
    if (status != expected || error->code != status || error->os_errno != error_number ||
        !strstr(error->message, named))
        fail_msg("%s: %s of %s failed with errno %d, then: %s, \"%s\"", op->name, shim_call_name(e->call), e->path,
                 error_number, ramet_status_name(status), error->message);
    if (!is_after_rename(op, e)) {
        assert_as_before();
        assert_file_is_old();
        return;
    }
    files_before = 1;
    assert_as_before();
    assert_int_equal(ramet_snapshot_verify(path, NULL, NULL), RAMET_OK);
}

static unsigned try_call(const operation *op, unsigned nth, shim_effect effect, int error_number) {
    ramet_error error = {0};
    shim_event hit;
    prepare(op);
    shim_arm(SHIM_ANY, effect, nth, error_number);
    ramet_status status = op->run(&error);
    if (!shim_disarm(&hit)) fail_msg("%s has no call %u", op->name, nth);
    bool must_fail = effect == SHIM_ERROR && !is_harmless(op, &hit);
    if (must_fail)
        assert_refused(op, &hit, error_number, status, &error);
    else if (status != RAMET_OK)
        fail_msg("%s: %s of %s: %s", op->name, shim_call_name(hit.call), hit.path, error.message);
    clean_up();
    ramet_temporary_sweep_again(directory); /* what could not be removed */
    assert_int_equal(count_files(), access(path, F_OK) == 0);
    return must_fail;
}

static void each_file_call_fails(void **state) {
    (void)state;
    shim_watch(directory);
    for (size_t i = 0; i < sizeof with_files / sizeof with_files[0]; i++) {
        const operation *op = &with_files[i];
        unsigned n = count_calls(op), n_refused = 0;
        for (unsigned nth = 1; nth <= n; nth++) {
            n_refused += try_call(op, nth, SHIM_ERROR, ENOSPC);
            n_refused += try_call(op, nth, SHIM_ERROR, EIO);
            try_call(op, nth, SHIM_SHORT, 0);
        }
        assert_true(n_refused > 0);
        print_message("%-20s %2u calls, %3u faults, %2u refused\n", op->name, n, 3 * n, n_refused);
    }
    shim_watch(NULL);
}

/* `n` descriptors more, and no others. */
static void limit_descriptors(rlim_t n) {
    struct rlimit limit;
    int next = dup(0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = n == RLIM_INFINITY ? limit.rlim_max : (rlim_t)next + n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static ramet_status try_descriptors(const operation *op, rlim_t n) {
    ramet_error error = {0};
    prepare(op);
    limit_descriptors(n);
    ramet_status status = op->run(&error);
    limit_descriptors(RLIM_INFINITY);
    if (status != RAMET_OK) {
        assert_int_equal(status, op->run == read_back ? RAMET_E_NO_MEMORY : RAMET_E_IO); /* it may be tried again */
        assert_int_equal(error.os_errno, EMFILE);
        if (!strstr(error.message, directory)) fail_msg("%s: %s", op->name, error.message);
        assert_as_before();
        assert_file_is_old();
    }
    clean_up();
    return status;
}

static void each_descriptor_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof with_files / sizeof with_files[0]; i++) {
        rlim_t n = 0;
        while (try_descriptors(&with_files[i], n) != RAMET_OK && n < 100) n++;
        assert_in_range(n, 1, 4);
        print_message("%-20s needs %u descriptors\n", with_files[i].name, (unsigned)n);
    }
}

/* ---- each allocation ---- */

/* Who counts and fails allocations: those of the library, or all of the program, the C library's too, some of which it
 * can do without. */
typedef struct allocator {
    const char *what;
    void (*fail_after)(uint64_t n);
    bool (*has_failed)(void); /* NULL: not known, but when one failed so did the operation */
} allocator;

static void fail_malloc_after(uint64_t n) {
    shim_fail_malloc((unsigned)n);
}

static const allocator the_librarys = {"allocations of the library", ramet_alloc_fail_after, NULL},
                       all_mallocs = {"mallocs of the program", fail_malloc_after, shim_malloc_has_failed};

/* False: there is no nth. */
static bool try_allocation(const operation *op, const allocator *a, uint64_t nth) {
    ramet_error error = {0};
    prepare(op);
    a->fail_after(nth);
    ramet_status status = op->run(&error);
    bool has_failed = a->has_failed ? a->has_failed() : status != RAMET_OK;
    a->fail_after(0);
    if (status != RAMET_OK) {
        if (!has_failed || status != RAMET_E_NO_MEMORY || error.code != status || !error.message[0])
            fail_msg("%s, number %u of the %s: %s, \"%s\"", op->name, (unsigned)nth, a->what, ramet_status_name(status),
                     error.message);
        assert_as_before();
        assert_file_is_old();
    }
    clean_up();
    return has_failed;
}

static unsigned try_operations(const operation *ops, size_t n_ops, const allocator *a) {
    unsigned n = 0;
    for (size_t i = 0; i < n_ops; i++) {
        uint64_t nth = 1;
        while (try_allocation(&ops[i], a, nth)) nth++;
        print_message("%-20s %u %s\n", ops[i].name, (unsigned)nth - 1, a->what);
        n += (unsigned)nth - 1;
    }
    return n;
}

static void each_allocation_fails(void **state) {
    (void)state;
    const allocator *allocators[] = {&the_librarys, &all_mallocs};
    for (size_t i = 0; i < 1 + (size_t)shim_fail_malloc(0); i++) {
        unsigned n = try_operations(with_files, sizeof with_files / sizeof with_files[0], allocators[i]);
        assert_true(n > 20);
        n += try_operations(in_memory, sizeof in_memory / sizeof in_memory[0], allocators[i]);
        print_message("%u %s failed, each without a trace\n", n, allocators[i]->what);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_call_fails),
        cmocka_unit_test(each_descriptor_is_refused),
        cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
