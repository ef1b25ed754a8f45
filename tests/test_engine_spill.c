/* test_engine_spill.c - more contexts than memory has room for, through the public API on the bundled model: the logits are
 * those of an engine that spills nothing, memory stays within its budget, and what does not come back is lost alone. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/assert_ok.h"

#include "ramet.h"

#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"
enum { TEXTS = 10, LENGTH = 96, PAGE = 16, MAX_FILES = 64 };

static ramet_model *model;
static uint32_t n_vocab;
static char directory[64];
static int32_t texts[TEXTS][LENGTH]; /* they differ from the first token on */
static float *expected;              /* [TEXTS][LENGTH][n_vocab]: of an engine that spills nothing */
static uint64_t page_bytes, row_bytes;

static float *row_of(uint32_t text, uint32_t length) {
    return expected + ((size_t)text * LENGTH + length - 1) * n_vocab;
}

static void keep_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t width) {
    const uint32_t *text = user;
    memcpy(row_of(*text, first_pos + 1), rows, (size_t)n_rows * width * sizeof *rows);
}

static void make_expected(void) {
    const ramet_engine_options options = {.threads = 2, .n_ctx = LENGTH, .page_tokens = PAGE};
    ramet_engine *engine;
    ramet_engine_info info;
    assert_ok(ramet_engine_create(model, &options, &engine, error));
    ramet_engine_get_info(engine, &info);
    page_bytes = info.page_bytes;
    for (uint32_t i = 0; i < TEXTS; i++) {
        ramet_context *context;
        ramet_engine_stats stats;
        assert_ok(ramet_context_create(engine, &context, error));
        assert_ok(ramet_context_extend_rows(context, texts[i], LENGTH, 0, keep_rows, &i, error));
        ramet_engine_get_stats(engine, &stats);
        row_bytes = stats.memory_bytes - stats.pages_live * page_bytes;
        assert_ok(ramet_context_close(&context, error));
    }
    ramet_engine_destroy(&engine);
}

static int open_model(void **state) {
    (void)state;
    ramet_model_info info;
    assert_ok(ramet_model_open(MODEL, NULL, &model, error));
    ramet_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    uint64_t x = 1;
    for (uint32_t i = 0; i < TEXTS; i++)
        for (uint32_t k = 0; k < LENGTH; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            texts[i][k] = k == 0 ? (int32_t)i + 5 : (int32_t)((x >> 33) % n_vocab);
        }
    expected = malloc((size_t)TEXTS * LENGTH * n_vocab * sizeof *expected);
    make_expected();
    strcpy(directory, "/tmp/ramet-test-spill-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int close_model(void **state) {
    (void)state;
    ramet_model_close(&model);
    free(expected);
    return rmdir(directory); /* empty */
}

/* Room for all that so many contexts of full length reach. */
static uint64_t room_for(uint32_t n_contexts) {
    return n_contexts * (LENGTH / PAGE * page_bytes + row_bytes);
}

static ramet_engine *open_engine(uint64_t budget_bytes) {
    const ramet_engine_options options = {.threads = 2,
                                          .n_ctx = LENGTH,
                                          .page_tokens = PAGE,
                                          .kv_budget_bytes = budget_bytes,
                                          .spill_directory = directory};
    ramet_engine *engine;
    assert_ok(ramet_engine_create(model, &options, &engine, error));
    return engine;
}

static ramet_engine_stats stats_of(ramet_engine *engine) {
    ramet_engine_stats stats;
    ramet_engine_info info;
    ramet_engine_get_stats(engine, &stats);
    ramet_engine_get_info(engine, &info);
    assert_true(stats.memory_bytes <= info.kv_budget_bytes);
    return stats;
}

static ramet_context *context_of(ramet_engine *engine, uint32_t text, uint32_t length) {
    ramet_context *context;
    assert_ok(ramet_context_create(engine, &context, error));
    assert_ok(ramet_context_extend(context, texts[text], length, error));
    return context;
}

static void assert_exact(ramet_context *context, uint32_t text) {
    const float *row;
    assert_ok(ramet_context_logits(context, &row, error));
    assert_memory_equal(row, row_of(text, ramet_context_length(context)), n_vocab * sizeof *row);
}

/* ---- within the budget ---- */

static void ten_contexts_in_room_for_two(void **state) {
    (void)state;
    ramet_engine *engine = open_engine(room_for(2));
    ramet_context *contexts[TEXTS];
    for (uint32_t i = 0; i < TEXTS; i++) contexts[i] = context_of(engine, i, 1 + i);
    for (uint32_t step = 0; step < 40; step++)
        for (uint32_t i = 0; i < TEXTS; i++) {
            uint32_t length = ramet_context_length(contexts[i]), n = 1 + (step + i) % 3;
            if (length + n > LENGTH) continue;
            assert_ok(ramet_context_extend(contexts[i], texts[i] + length, n, error));
            assert_exact(contexts[i], i);
            assert_ok(ramet_context_spill(contexts[(i + 5) % TEXTS], error)); /* its row was looked at */
            stats_of(engine);
        }
    ramet_engine_stats stats = stats_of(engine);
    assert_true(stats.blocks_spilled > 100 && stats.blocks_read_back > 100);
    assert_true(stats.spilled_bytes > room_for(2));
    assert_int_equal(stats.contexts_lost, 0);
    assert_ok(ramet_engine_check(engine, error));
    for (uint32_t i = 0; i < TEXTS; i++) assert_ok(ramet_context_close(&contexts[i], error));
    stats = stats_of(engine);
    assert_int_equal(stats.memory_bytes + stats.spilled_bytes + stats.pages_live, 0);
    ramet_engine_destroy(&engine);
}

/* Forks share blocks on the disk, too; a batch needs all of its contexts at once, and one that does not fit has not
 * happened. */
static void batches_of_forks(void **state) {
    (void)state;
    ramet_engine *engine = open_engine(room_for(3));
    ramet_context *contexts[6];
    for (uint32_t i = 0; i < 2; i++) contexts[i] = context_of(engine, i, 40);
    for (uint32_t i = 2; i < 6; i++) assert_ok(ramet_context_fork(contexts[i % 2], &contexts[i], error));
    for (uint32_t turn = 0; turn < 30; turn++) {
        uint32_t a = turn % 6, b = (turn + 1) % 6;
        ramet_batch_item items[2] = {{contexts[a], texts[a % 2] + ramet_context_length(contexts[a]), 1},
                                     {contexts[b], texts[b % 2] + ramet_context_length(contexts[b]), 3}};
        assert_ok(ramet_batch_extend(items, 2, error));
        assert_exact(contexts[a], a % 2);
        assert_exact(contexts[b], b % 2);
        for (uint32_t i = 0; i < 6; i++) assert_ok(ramet_context_spill(contexts[i], error));
        assert_int_equal(stats_of(engine).memory_bytes, 0);
    }
    for (uint32_t i = 0; i < 6; i++) assert_ok(ramet_context_close(&contexts[i], error));
    ramet_batch_item items[4];
    for (uint32_t i = 0; i < 4; i++) {
        contexts[i] = context_of(engine, i, LENGTH - 1);
        items[i] = (ramet_batch_item){contexts[i], texts[i] + LENGTH - 1, 1};
    }
    assert_int_equal(ramet_batch_extend(items, 4, NULL), RAMET_E_BUDGET);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(ramet_context_length(contexts[i]), LENGTH - 1);
        assert_exact(contexts[i], i);
        assert_ok(ramet_context_extend(contexts[i], texts[i] + LENGTH - 1, 1, error)); /* one by one it fits */
        assert_exact(contexts[i], i);
        assert_ok(ramet_context_spill(contexts[i], error));
    }
    for (uint32_t i = 0; i < 4; i++) assert_ok(ramet_context_close(&contexts[i], error));
    ramet_engine_destroy(&engine);
}

/* ---- what needs nothing back ---- */

static void spilled_contexts_come_back_by_themselves(void **state) {
    (void)state;
    ramet_engine *engine = open_engine(0);
    ramet_context *context = context_of(engine, 0, 70), *fork, *matched;
    size_t n_matched;
    int32_t back[70];
    assert_ok(ramet_context_spill(context, error));
    assert_true(ramet_context_is_spilled(context));
    assert_ok(ramet_context_spill(context, error)); /* nothing more to do */
    assert_int_equal(stats_of(engine).memory_bytes, 0);
    assert_int_equal(stats_of(engine).blocks_spilled, 6);
    assert_ok(ramet_context_tokens(context, 0, 70, back, error));
    assert_memory_equal(back, texts[0], sizeof back);
    assert_ok(ramet_context_fork(context, &fork, error));
    assert_ok(ramet_prefix_retain(context, NULL, error));
    assert_ok(ramet_prefix_match(engine, NULL, texts[0], 70, &matched, &n_matched, error));
    assert_int_equal(n_matched, 70);
    assert_ok(ramet_context_truncate(fork, 33, error));
    assert_int_equal(stats_of(engine).blocks_read_back, 0);
    assert_ok(ramet_context_extend(fork, texts[0] + 33, 1, error));
    assert_exact(fork, 0);
    assert_int_equal(stats_of(engine).blocks_read_back, 3); /* of the part that it kept */
    size_t kept;
    assert_ok(ramet_context_sync(matched, texts[1], 1, &kept, error)); /* nothing of it */
    assert_exact(matched, 1);
    assert_int_equal(stats_of(engine).blocks_read_back, 3);
    assert_ok(ramet_context_extend(context, texts[0] + 70, 1, error));
    assert_exact(context, 0);
    assert_false(ramet_context_is_spilled(context));
    assert_ok(ramet_context_spill(context, error));
    assert_ok(ramet_context_close(&context, error));
    assert_ok(ramet_context_close(&fork, error));
    assert_ok(ramet_context_close(&matched, error));
    ramet_prefix_clear(engine);
    assert_int_equal(stats_of(engine).spilled_bytes, 0);
    ramet_engine_destroy(&engine);
}

/* A row that was peeked at stays where it is, whatever others need. */
static void a_borrowed_row_stays(void **state) {
    (void)state;
    ramet_engine *engine = open_engine(room_for(1) + row_bytes);
    ramet_context *context = context_of(engine, 0, LENGTH - 20);
    const float *row;
    assert_ok(ramet_context_logits(context, &row, error));
    for (uint32_t i = 1; i < 5; i++) {
        ramet_context *other = context_of(engine, i, LENGTH);
        assert_exact(other, i);
        assert_memory_equal(row, row_of(0, LENGTH - 20), n_vocab * sizeof *row);
        assert_ok(ramet_context_close(&other, error));
    }
    assert_true(ramet_context_is_spilled(context));
    assert_ok(ramet_context_close(&context, error));
    ramet_engine_destroy(&engine);
}

static void refusals(void **state) {
    (void)state;
    char missing[96];
    ramet_engine *engine;
    snprintf(missing, sizeof missing, "%s/missing", directory);
    ramet_engine_options options = {.threads = 1, .n_ctx = LENGTH, .spill_directory = missing};
    ramet_error why = {0};
    assert_int_equal(ramet_engine_create(model, &options, &engine, &why), RAMET_E_NOT_FOUND);
    assert_non_null(strstr(why.message, missing));
    options.spill_directory = NULL;
    assert_ok(ramet_engine_create(model, &options, &engine, error));
    ramet_context *context = context_of(engine, 0, 5);
    assert_int_equal(ramet_context_spill(context, NULL), RAMET_E_ARGUMENT);
    assert_exact(context, 0);
    assert_ok(ramet_context_close(&context, error));
    ramet_engine_destroy(&engine);
}

/* ---- what does not come back ---- */

typedef struct files {
    char paths[MAX_FILES][160];
    size_t n;
} files;

static files list_files(void) {
    files f = {.n = 0};
    glob_t found;
    char pattern[96];
    snprintf(pattern, sizeof pattern, "%s/ramet-*/*", directory);
    if (glob(pattern, 0, NULL, &found) != 0) return f;
    for (; f.n < found.gl_pathc && f.n < MAX_FILES; f.n++) snprintf(f.paths[f.n], 160, "%s", found.gl_pathv[f.n]);
    globfree(&found);
    return f;
}

static void flip(const char *path) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 1000), 1);
    byte ^= 16;
    assert_int_equal(pwrite(fd, &byte, 1, 1000), 1);
    close(fd);
}
static void shorten(const char *path) {
    assert_int_equal(truncate(path, 1000), 0);
}
static void take_away(const char *path) {
    assert_int_equal(unlink(path), 0);
}

static const struct {
    void (*damage)(const char *path);
    ramet_status expected;
} damages[] = {{flip, RAMET_E_AUTHENTICATION}, {shorten, RAMET_E_CORRUPT}, {take_away, RAMET_E_CORRUPT}};
enum { DAMAGES = sizeof damages / sizeof damages[0] };

static void assert_lost(ramet_context **context, ramet_status why_lost) {
    const float *row;
    ramet_context *fork;
    ramet_error why = {0};
    assert_int_equal(ramet_context_extend(*context, texts[0], 1, &why), why_lost);
    assert_true(why.message[0]);
    assert_int_equal(ramet_context_length(*context), 0);
    assert_int_equal(ramet_context_logits(*context, &row, NULL), why_lost);
    assert_int_equal(ramet_context_fork(*context, &fork, NULL), why_lost);
    assert_null(fork);
    assert_int_equal(ramet_prefix_retain(*context, NULL, NULL), why_lost);
    assert_ok(ramet_context_close(context, error));
}

static void a_damaged_file_loses_its_context_alone(void **state) {
    (void)state;
    for (int k = 0; k < DAMAGES; k++) {
        ramet_engine *engine = open_engine(0);
        ramet_context *lost = context_of(engine, 0, 70), *sound = context_of(engine, 1, 70);
        assert_ok(ramet_context_spill(lost, error));
        files f = list_files();
        assert_int_equal(f.n, 6); /* five pages, and the logits */
        damages[k].damage(f.paths[k]);
        assert_ok(ramet_context_spill(sound, error));
        assert_lost(&lost, damages[k].expected);
        assert_int_equal(stats_of(engine).contexts_lost, 1);
        assert_exact(sound, 1);
        assert_ok(ramet_context_extend(sound, texts[1] + 70, 3, error));
        assert_exact(sound, 1);
        assert_ok(ramet_engine_check(engine, error));
        assert_ok(ramet_context_close(&sound, error));
        assert_int_equal(stats_of(engine).spilled_bytes + stats_of(engine).memory_bytes, 0);
        ramet_engine_destroy(&engine);
    }
}

/* Both forks need it, and the entry of the tree; what shares nothing with them does not. */
static void a_shared_block_is_lost_to_all_that_need_it(void **state) {
    (void)state;
    ramet_engine *engine = open_engine(0);
    ramet_context *first = context_of(engine, 0, 70), *second, *sound = context_of(engine, 1, 40), *matched;
    size_t n;
    assert_ok(ramet_context_fork(first, &second, error));
    assert_ok(ramet_prefix_retain(first, NULL, error));
    assert_ok(ramet_prefix_retain(sound, NULL, error));
    assert_ok(ramet_context_spill(first, error));
    files f = list_files();
    assert_int_equal(f.n, 6);
    flip(f.paths[1]);
    assert_lost(&first, RAMET_E_AUTHENTICATION);
    assert_ok(ramet_prefix_match(engine, NULL, texts[0], 70, &matched, &n, error));
    assert_int_equal(n, 0);
    assert_ok(ramet_context_close(&matched, error));
    assert_lost(&second, RAMET_E_AUTHENTICATION);
    assert_int_equal(stats_of(engine).contexts_lost, 2);
    assert_ok(ramet_prefix_match(engine, NULL, texts[1], 40, &matched, &n, error));
    assert_int_equal(n, 40);
    assert_exact(matched, 1);
    assert_exact(sound, 1);
    assert_ok(ramet_context_close(&matched, error));
    assert_ok(ramet_context_close(&sound, error));
    ramet_engine_destroy(&engine);
}

/* ---- prefixes ---- */

static void pins_stay_and_owners_keep_theirs(void **state) {
    (void)state;
    const ramet_engine_options options = {.threads = 1,
                                          .n_ctx = LENGTH,
                                          .page_tokens = PAGE,
                                          .kv_budget_bytes = 8 * room_for(1),
                                          .tree_budget_bytes = 3 * room_for(1),
                                          .pin_budget_bytes = room_for(1),
                                          .spill_directory = directory};
    const ramet_prefix_options pinned = {.owner = "a", .pin = true};
    ramet_engine *engine;
    assert_ok(ramet_engine_create(model, &options, &engine, error));
    for (uint32_t i = 0; i < TEXTS; i++) {
        ramet_context *context = context_of(engine, i, LENGTH);
        ramet_status status = ramet_prefix_retain(context, i < 2 ? &pinned : NULL, NULL);
        assert_int_equal(status, i == 1 ? RAMET_E_BUDGET : RAMET_OK); /* room for one pin */
        assert_ok(ramet_context_close(&context, error));
    }
    assert_int_equal(stats_of(engine).tree_pinned, 1);
    assert_int_equal(stats_of(engine).tree_entries, 3);
    ramet_context *matched;
    size_t n;
    assert_ok(ramet_prefix_match(engine, "b", texts[0], LENGTH, &matched, &n, error));
    assert_int_equal(n, 0);
    assert_ok(ramet_context_close(&matched, error));
    assert_ok(ramet_prefix_match(engine, "a", texts[0], LENGTH, &matched, &n, error));
    assert_int_equal(n, LENGTH);
    assert_exact(matched, 0);
    assert_ok(ramet_context_close(&matched, error));
    assert_int_equal(ramet_prefix_unpin(engine, NULL, texts[0], LENGTH, NULL), RAMET_E_NOT_FOUND);
    assert_ok(ramet_prefix_unpin(engine, "a", texts[0], LENGTH, error));
    assert_int_equal(stats_of(engine).tree_pinned, 0);
    ramet_engine_destroy(&engine);
}

/* ---- threads ---- */

enum { THREADS = 4, EACH = 2 };

typedef struct worker {
    ramet_engine *engine;
    uint32_t first_text;
    uint64_t rng;
} worker;

static void require(ramet_status status, const ramet_error *error) {
    if (status == RAMET_OK) return;
    print_error("%s\n", error->message);
    abort(); /* not on the test's own thread */
}

/* Extends, forks, spills, starts anew; and every row is as it should be. */
static void turn(worker *w, ramet_context **context, uint32_t text) {
    ramet_error error = {0};
    const float *row;
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    uint32_t dice = (uint32_t)(w->rng >> 40), length = ramet_context_length(*context), n = 1 + dice % 4;
    if (length + n > LENGTH) {
        require(ramet_context_truncate(*context, dice % LENGTH, &error), &error);
        return;
    }
    require(ramet_context_extend(*context, texts[text] + length, n, &error), &error);
    require(ramet_context_logits(*context, &row, &error), &error);
    if (memcmp(row, row_of(text, length + n), n_vocab * sizeof *row) != 0) abort();
    if (dice / 4 % 4 == 0) require(ramet_context_spill(*context, &error), &error);
    if (dice / 16 % 4 == 0) {
        ramet_context *fork;
        require(ramet_context_fork(*context, &fork, &error), &error);
        require(ramet_context_close(context, &error), &error);
        *context = fork;
    }
}

static void *work(void *user) {
    worker *w = user;
    ramet_context *contexts[EACH];
    ramet_error error = {0};
    for (uint32_t i = 0; i < EACH; i++) require(ramet_context_create(w->engine, &contexts[i], &error), &error);
    for (uint32_t step = 0; step < 200; step++) turn(w, &contexts[step % EACH], w->first_text + step % EACH);
    for (uint32_t i = 0; i < EACH; i++) require(ramet_context_close(&contexts[i], &error), &error);
    return NULL;
}

static void four_threads_in_room_for_five(void **state) {
    (void)state;
    ramet_engine *engine = open_engine(room_for(5));
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.engine = engine, .first_text = i * EACH, .rng = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    ramet_engine_stats stats = stats_of(engine);
    assert_true(stats.blocks_spilled > 50 && stats.blocks_read_back > 50);
    assert_int_equal(stats.memory_bytes + stats.spilled_bytes, 0);
    assert_ok(ramet_engine_check(engine, error));
    ramet_engine_destroy(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_contexts_in_room_for_two),
        cmocka_unit_test(batches_of_forks),
        cmocka_unit_test(spilled_contexts_come_back_by_themselves),
        cmocka_unit_test(a_borrowed_row_stays),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_damaged_file_loses_its_context_alone),
        cmocka_unit_test(a_shared_block_is_lost_to_all_that_need_it),
        cmocka_unit_test(pins_stay_and_owners_keep_theirs),
        cmocka_unit_test(four_threads_in_room_for_five),
    };
    return cmocka_run_group_tests_name("spill", tests, open_model, close_model);
}
