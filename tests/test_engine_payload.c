/* test_engine_payload.c - a real model's snapshots: pages of any size at every precision give the same next logits, and rows of
 * a narrower precision are taken only by whoever asked for them, and then do change bits. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_ok.h"

#include "ramet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"
enum { N = 300, N_MORE = 3, N_KV = 4 };

static ramet_model *model;
static uint32_t n_vocab;
static int32_t tokens[N + N_MORE];
static char directory[64], path[96], small[96];

static int open_model(void **state) {
    (void)state;
    ramet_model_info info;
    ramet_error error;
    if (ramet_model_open(MODEL, NULL, &model, &error) != RAMET_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    ramet_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    for (uint32_t i = 0; i < N + N_MORE; i++) tokens[i] = (int32_t)(i * 7919 % n_vocab);
    strcpy(directory, "/tmp/ramet-test-payload-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/context.ramet", directory);
    snprintf(small, sizeof small, "%s/small.ramet", directory);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    ramet_model_close(&model);
    unlink(path);
    unlink(small);
    return rmdir(directory);
}

static ramet_engine *open_engine(ramet_kv kv, uint32_t page_tokens, bool allow_lossy) {
    ramet_engine *engine;
    const ramet_engine_options options = {
        .threads = 2, .n_ctx = 512, .kv = kv, .page_tokens = page_tokens, .snapshots = {.allow_lossy = allow_lossy}};
    assert_ok(ramet_engine_create(model, &options, &engine, error));
    return engine;
}

/* Saved from a cache of these pages, and what comes after it: N_MORE rows of logits. The first is the file's own. */
static float *save_from(ramet_kv kv, uint32_t page_tokens) {
    ramet_engine *engine = open_engine(kv, page_tokens, false);
    ramet_context *context;
    float *rows = malloc((N_MORE + 1) * (size_t)n_vocab * sizeof *rows);
    assert_non_null(rows);
    assert_ok(ramet_context_create(engine, &context, error));
    assert_ok(ramet_context_extend(context, tokens, N, error));
    assert_ok(ramet_snapshot_save(context, path, NULL, NULL, error));
    for (uint32_t i = 0; i <= N_MORE; i++) {
        const float *row = NULL;
        assert_ok(ramet_context_logits(context, &row, error));
        memcpy(rows + i * (size_t)n_vocab, row, n_vocab * sizeof *row);
        if (i < N_MORE) assert_ok(ramet_context_extend(context, tokens + N + i, 1, error));
    }
    assert_ok(ramet_context_close(&context, error));
    ramet_engine_destroy(&engine);
    return rows;
}

/* How many of the rows that follow are these, bit for bit. */
static uint32_t count_equal_rows(ramet_engine *engine, const char *file, const float *rows) {
    ramet_context *context;
    uint32_t n_equal = 0;
    assert_ok(ramet_snapshot_restore(engine, file, NULL, &context, NULL, NULL, error));
    for (uint32_t i = 0; i <= N_MORE; i++) {
        const float *row = NULL;
        if (i > 0) assert_ok(ramet_context_extend(context, tokens + N + i - 1, 1, error));
        assert_ok(ramet_context_logits(context, &row, error));
        n_equal += memcmp(row, rows + i * (size_t)n_vocab, n_vocab * sizeof *row) == 0;
    }
    assert_ok(ramet_context_close(&context, error));
    return n_equal;
}

static void pages_of_any_size_go_on_with_the_same_bits(void **state) {
    (void)state;
    static const uint32_t page_sizes[] = {256, 64, 16, 128};
    for (int kv = 0; kv < N_KV; kv++) {
        float *rows = save_from((ramet_kv)kv, 16);
        for (size_t i = 0; i < sizeof page_sizes / sizeof page_sizes[0]; i++) {
            ramet_engine *engine = open_engine((ramet_kv)kv, page_sizes[i], false);
            assert_int_equal(count_equal_rows(engine, path, rows), N_MORE + 1);
            ramet_engine_destroy(&engine);
        }
        free(rows);
    }
}

/* Of the rows after a lossy restore the first alone is equal: those logits are in the file. */
static void assert_lossy(const float *rows, ramet_kv engine_kv, ramet_kv payload) {
    ramet_context *context;
    ramet_engine *strict = open_engine(engine_kv, 64, false), *lenient = open_engine(engine_kv, 64, true);
    ramet_error error = {0};
    ramet_status status = ramet_snapshot_restore(strict, small, NULL, &context, NULL, NULL, &error);
    assert_null(context);
    assert_int_equal(status, engine_kv == payload ? RAMET_E_MODEL_MISMATCH : RAMET_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, engine_kv == payload ? "start with --kv" : "--allow-lossy-payload"));
    assert_int_equal(count_equal_rows(lenient, small, rows), 1);
    ramet_engine_destroy(&strict);
    ramet_engine_destroy(&lenient);
}

static void narrower_rows_are_asked_for(void **state) {
    (void)state;
    for (int kv = 0; kv < N_KV; kv++) {
        float *rows = save_from((ramet_kv)kv, 16);
        uint64_t bytes = UINT64_MAX;
        for (int payload = kv; payload < N_KV; payload++) {
            const ramet_convert_options options = {.payload = (ramet_kv)payload, .threads = 2};
            ramet_snapshot_info info;
            assert_ok(ramet_snapshot_convert(path, NULL, small, &options, &info, error));
            assert_true(info.file_bytes < bytes);
            bytes = info.file_bytes;
            if (payload == kv) continue;
            assert_lossy(rows, (ramet_kv)kv, (ramet_kv)payload);
            assert_lossy(rows, (ramet_kv)payload, (ramet_kv)payload);
        }
        free(rows);
    }
}

/* What a q8 cache holds and what q8 rows of an f32 cache are differ too: those keys and values came out of exact ones. */
static void a_cache_of_the_payload_s_precision_has_other_bits(void **state) {
    (void)state;
    float *own = save_from(RAMET_KV_Q8, 16);
    free(save_from(RAMET_KV_F32, 16));
    const ramet_convert_options options = {.payload = RAMET_KV_Q8};
    assert_ok(ramet_snapshot_convert(path, NULL, small, &options, NULL, error));
    ramet_engine *engine = open_engine(RAMET_KV_Q8, 64, true);
    assert_int_equal(count_equal_rows(engine, small, own), 0);
    ramet_engine_destroy(&engine);
    free(own);
}

/* Nobody else meets what came out of rounded rows, and no file hides where it came from. */
static void what_is_lossy_stays_marked(void **state) {
    (void)state;
    free(save_from(RAMET_KV_F32, 16));
    const ramet_convert_options options = {.payload = RAMET_KV_Q8};
    const ramet_snapshot_options as_q8 = {.payload = RAMET_KV_Q8};
    assert_ok(ramet_snapshot_convert(path, NULL, small, &options, NULL, error));
    ramet_engine *engine = open_engine(RAMET_KV_F32, 64, true);
    ramet_context *context, *fork;
    assert_ok(ramet_snapshot_restore(engine, small, NULL, &context, NULL, NULL, error));
    assert_ok(ramet_context_extend(context, tokens + N, 1, error));
    assert_ok(ramet_context_fork(context, &fork, error));
    for (int i = 0; i < 2; i++) {
        ramet_context *one = i == 0 ? context : fork;
        assert_int_equal(ramet_prefix_retain(one, NULL, NULL), RAMET_E_UNSUPPORTED);
        assert_int_equal(ramet_snapshot_save(one, path, NULL, NULL, NULL), RAMET_E_UNSUPPORTED);
        assert_ok(ramet_snapshot_save(one, small, &as_q8, NULL, error));
    }
    size_t kept;
    assert_ok(ramet_context_truncate(fork, 0, error));
    assert_ok(ramet_context_sync(fork, tokens, N, &kept, error)); /* its tokens have run: it is exact again */
    assert_ok(ramet_snapshot_save(fork, path, NULL, NULL, error));
    assert_ok(ramet_prefix_retain(fork, NULL, error));
    assert_ok(ramet_context_close(&fork, error));
    assert_ok(ramet_context_close(&context, error));
    ramet_engine_destroy(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_any_size_go_on_with_the_same_bits),
        cmocka_unit_test(narrower_rows_are_asked_for),
        cmocka_unit_test(a_cache_of_the_payload_s_precision_has_other_bits),
        cmocka_unit_test(what_is_lossy_stays_marked),
    };
    return cmocka_run_group_tests_name("payloads", tests, open_model, close_model);
}
