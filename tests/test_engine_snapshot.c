/* test_engine_snapshot.c - snapshots and spills beside other calls: the engine's threads are borrowed when they are idle
 * and done without when they are not, and nothing waits, tears or changes a bit. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_ok.h"

#include "ramet.h"

#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"
enum { N = 1100, TURNS = 6 };

static ramet_model *model;
static ramet_engine *engine;
static uint32_t n_vocab;
static int32_t tokens[N];
static char directory[64], path[96];

static int open_engine(void **state) {
    (void)state;
    ramet_error error;
    ramet_model_info info;
    const ramet_engine_options options = {
        .threads = 3, .n_ctx = 2048, .kv = RAMET_KV_F32, .spill_directory = directory};
    strcpy(directory, "/tmp/ramet-test-engine-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    if (ramet_model_open(MODEL, NULL, &model, &error) != RAMET_OK ||
        ramet_engine_create(model, &options, &engine, &error) != RAMET_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    ramet_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    for (uint32_t i = 0; i < N; i++) tokens[i] = (int32_t)(i * 7919 % n_vocab);
    snprintf(path, sizeof path, "%s/context.ramet", directory);
    return 0;
}

static int close_engine(void **state) {
    (void)state;
    ramet_engine_destroy(&engine);
    ramet_model_close(&model);
    unlink(path);
    return rmdir(directory);
}

static ramet_context *context_of(uint32_t n) {
    ramet_context *context;
    assert_ok(ramet_context_create(engine, &context, error));
    assert_ok(ramet_context_extend(context, tokens, n, error));
    return context;
}

static void copy_logits(ramet_context *context, float *out) {
    const float *row = NULL;
    assert_ok(ramet_context_logits(context, &row, error));
    memcpy(out, row, n_vocab * sizeof *row);
}

static void require_ok(ramet_status status, const ramet_error *error) {
    if (status == RAMET_OK) return;
    print_error("%s\n", error->message);
    abort(); /* not on the test's own thread */
}

static void require_logits(ramet_context *context, const float *expected) {
    const float *row = NULL;
    ramet_error error;
    require_ok(ramet_context_logits(context, &row, &error), &error);
    if (memcmp(row, expected, n_vocab * sizeof *row) != 0) abort();
}

/* Saved, restored, spilled and read back, the next token gives the logits that it gave before. */
static void go_round(ramet_context *context, uint32_t length, const float *expected) {
    const ramet_snapshot_options options = {.skip_sync = true};
    ramet_context *back, *fork;
    ramet_error error;
    require_ok(ramet_snapshot_save(context, path, &options, NULL, &error), &error);
    require_ok(ramet_snapshot_restore(engine, path, NULL, &back, NULL, NULL, &error), &error);
    require_ok(ramet_context_spill(back, &error), &error);
    require_ok(ramet_context_fork(back, &fork, &error), &error);
    require_ok(ramet_context_extend(fork, tokens + length, 1, &error), &error);
    require_logits(fork, expected);
    ramet_context_close(&fork, NULL);
    ramet_context_close(&back, NULL);
}

typedef struct worker {
    ramet_context *context;
    uint32_t length;
    float *expected; /* after one more token */
} worker;

static worker start(uint32_t length) {
    worker w = {context_of(length), length, malloc(n_vocab * sizeof *w.expected)};
    ramet_context *next;
    assert_ok(ramet_context_fork(w.context, &next, error));
    assert_ok(ramet_context_extend(next, tokens + length, 1, error));
    copy_logits(next, w.expected);
    ramet_context_close(&next, NULL);
    return w;
}

static void stop(worker *w) {
    ramet_context_close(&w->context, NULL);
    free(w->expected);
}

static void *decode(void *user) {
    const worker *w = user;
    for (int turn = 0; turn < 10 * TURNS; turn++) {
        ramet_context *fork;
        ramet_error error;
        require_ok(ramet_context_fork(w->context, &fork, &error), &error);
        require_ok(ramet_context_extend(fork, tokens + w->length, 1, &error), &error);
        require_logits(fork, w->expected);
        ramet_context_close(&fork, NULL);
    }
    return NULL;
}

static void a_snapshot_races_a_decode(void **state) {
    (void)state;
    worker saver = start(700), decoder = start(90);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, decode, &decoder), 0);
    for (int turn = 0; turn < TURNS; turn++) go_round(saver.context, saver.length, saver.expected);
    pthread_join(thread, NULL);
    go_round(saver.context, saver.length, saver.expected);
    stop(&saver);
    stop(&decoder);
    assert_ok(ramet_engine_check(engine, error));
}

/* The engine is in the middle of a prefill, on this very thread: a save that waited for it would wait for ever. */
static void save_in_the_middle(void *user, uint32_t pos, uint32_t n, const float *rows, uint32_t width) {
    const ramet_snapshot_options options = {.skip_sync = true};
    const worker *w = user;
    ramet_context *back;
    ramet_error error;
    (void)pos, (void)n, (void)rows, (void)width;
    require_ok(ramet_snapshot_save(w->context, path, &options, NULL, &error), &error);
    require_ok(ramet_snapshot_restore(engine, path, NULL, &back, NULL, NULL, &error), &error);
    ramet_context_close(&back, NULL);
}

static void a_snapshot_does_not_wait_for_a_prefill(void **state) {
    (void)state;
    worker saver = start(700);
    ramet_context *other;
    assert_ok(ramet_context_create(engine, &other, error));
    assert_ok(ramet_context_extend_rows(other, tokens, 40, 20, save_in_the_middle, &saver, error));
    ramet_context_close(&other, NULL);
    go_round(saver.context, saver.length, saver.expected);
    stop(&saver);
}

/* ---- keys ---- */

/* The engine copies the key: the caller's may go at once. A policy of the call's own goes before the engine's. */
static void an_engine_keeps_its_key(void **state) {
    (void)state;
    uint8_t key[RAMET_KEY_BYTES] = {7};
    const uint8_t kept[RAMET_KEY_BYTES] = {7};
    const ramet_snapshot_policy with_key = {.context_key = kept}, without = {0};
    const ramet_engine_options options = {.threads = 2, .n_ctx = 256, .snapshots = {.context_key = key}};
    ramet_engine *keyed;
    ramet_context *context, *back;
    ramet_snapshot_info info;
    assert_ok(ramet_engine_create(model, &options, &keyed, error));
    memset(key, 0, sizeof key);
    assert_ok(ramet_context_create(keyed, &context, error));
    assert_ok(ramet_context_extend(context, tokens, 70, error));
    assert_ok(ramet_snapshot_save(context, path, NULL, &info, error));
    assert_true(info.encrypted);
    ramet_context_close(&context, NULL);
    assert_ok(ramet_snapshot_restore(keyed, path, NULL, &back, NULL, NULL, error));
    ramet_context_close(&back, NULL);
    assert_int_equal(ramet_snapshot_restore(keyed, path, &without, &back, NULL, NULL, NULL), RAMET_E_AUTHENTICATION);
    assert_int_equal(ramet_snapshot_restore(engine, path, NULL, &back, NULL, NULL, NULL), RAMET_E_AUTHENTICATION);
    assert_null(back);
    assert_ok(ramet_snapshot_restore(engine, path, &with_key, &back, NULL, NULL, error));
    ramet_context_close(&back, NULL);
    assert_ok(ramet_snapshot_verify(path, &with_key, error));
    ramet_engine_destroy(&keyed);
}

/* Whether the file shows what the logits are. */
static bool shows(const char *name, const float *logits) {
    static uint8_t data[4 << 20];
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    assert_in_range(n, n_vocab * sizeof *logits, sizeof data - 1);
    return memmem(data, n, logits, 64) != NULL;
}

/* Also where nobody gave a key, and then with one that no other engine has. */
static void what_is_spilled_is_encrypted(void **state) {
    (void)state;
    ramet_context *context = context_of(70);
    char pattern[128];
    float *logits = malloc(n_vocab * sizeof *logits);
    copy_logits(context, logits);
    assert_ok(ramet_snapshot_save(context, path, NULL, NULL, error));
    assert_true(shows(path, logits)); /* it would be seen */
    assert_ok(ramet_context_spill(context, error));
    snprintf(pattern, sizeof pattern, "%s/ramet-*/*", directory);
    glob_t found;
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 3); /* two pages, and the logits */
    for (size_t i = 0; i < found.gl_pathc; i++) assert_false(shows(found.gl_pathv[i], logits));
    globfree(&found);
    assert_ok(ramet_context_extend(context, tokens + 70, 1, error));
    assert_int_equal(glob(pattern, 0, NULL, &found), GLOB_NOMATCH);
    ramet_context_close(&context, NULL);
    free(logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_races_a_decode),
        cmocka_unit_test(a_snapshot_does_not_wait_for_a_prefill),
        cmocka_unit_test(an_engine_keeps_its_key),
        cmocka_unit_test(what_is_spilled_is_encrypted),
    };
    return cmocka_run_group_tests_name("snapshots", tests, open_engine, close_engine);
}
