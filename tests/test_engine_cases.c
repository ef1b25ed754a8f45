/* test_engine_cases.c - faults that users of other engines met, each with the right answer: budgets that do not hold, a hit that
 * brings another's content, prompts equal to what is kept, page boundaries, tenants, fragmentation, memory that runs out. On the
 * bundled trained model; every row of logits is compared with a cold prefill's, bit for bit. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/temporary.h"
#include "ramet.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"
enum { LONGEST = 3 * 256 + 255 + 16, CONVERSATIONS = 10, CONVERSATION = 150 };

static ramet_model *model;
static uint32_t n_vocab;
static int32_t tokens[LONGEST];
static float *cold; /* [LONGEST][n_vocab]: after each token, prefilled in one piece */
static ramet_scratch scratch;

static void require(ramet_status status, const ramet_error *error) {
    if (status != RAMET_OK) fail_msg("%s", error->message);
}

static ramet_engine *engine_with(ramet_engine_options options) {
    ramet_engine *engine;
    ramet_error error;
    if (options.n_ctx == 0) options.n_ctx = 2048;
    if (options.threads == 0) options.threads = 1;
    require(ramet_engine_create(model, &options, &engine, &error), &error);
    return engine;
}

static ramet_context *context_with(ramet_engine *engine, const int32_t *prompt, uint32_t n) {
    ramet_context *context;
    ramet_error error;
    require(ramet_context_create(engine, &context, &error), &error);
    require(ramet_context_extend(context, prompt, n, &error), &error);
    return context;
}

static void keep_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t width) {
    memcpy((float *)user + (size_t)first_pos * width, rows, (size_t)n_rows * width * sizeof *rows);
}

static void draw(uint64_t seed, int32_t *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        out[i] = (int32_t)((seed >> 33) % n_vocab);
    }
}

static int open_all(void **state) {
    (void)state;
    ramet_error error;
    ramet_model_info info;
    require(ramet_model_open(MODEL, NULL, &model, &error), &error);
    ramet_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    draw(1, tokens, LONGEST);
    cold = malloc((size_t)LONGEST * n_vocab * sizeof *cold);
    ramet_engine *engine = engine_with((ramet_engine_options){.chunk_tokens = LONGEST});
    ramet_context *context = context_with(engine, tokens, 0);
    require(ramet_context_extend_rows(context, tokens, LONGEST, 0, keep_rows, cold, &error), &error);
    ramet_context_close(&context, NULL);
    ramet_engine_destroy(&engine);
    require(ramet_scratch_create("/tmp", NULL, &scratch, &error), &error);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    ramet_scratch_remove(&scratch);
    free(cold);
    ramet_model_close(&model);
    return 0;
}

static void assert_logits(ramet_context *context, const float *expected) {
    const float *row;
    ramet_error error;
    require(ramet_context_logits(context, &row, &error), &error);
    assert_memory_equal(row, expected, n_vocab * sizeof *row);
}

static const float *cold_after(uint32_t n) {
    return cold + (size_t)(n - 1) * n_vocab;
}

static void require_sound(ramet_engine *engine) {
    ramet_error error;
    require(ramet_engine_check(engine, &error), &error);
}

static void close_engine(ramet_engine *engine) {
    require_sound(engine);
    ramet_engine_destroy(&engine);
}

static uint64_t page_bytes_of(uint32_t page_tokens) {
    ramet_engine *engine = engine_with((ramet_engine_options){.page_tokens = page_tokens});
    ramet_engine_info info;
    ramet_engine_get_info(engine, &info);
    ramet_engine_destroy(&engine);
    return info.page_bytes;
}

/* ---- case 9: the memory budget is one ---- */

/* kB of this process in memory; 0 where that is not known, or a sanitizer's own memory would be in it. */
static uint64_t resident_kb(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kb = 0;
    for (char line[256]; file && fgets(line, sizeof line, file);)
        if (sscanf(line, "VmRSS: %llu", &kb) == 1) break;
    if (file) fclose(file);
    return kb;
#endif
}

static void keep_many(const char *spill_directory) {
    enum { PROMPTS = 300, SLACK_KB = 3 * 2048 + 1024 }; /* a huge page at the end of each kind of block; headers */
    uint64_t page = page_bytes_of(64), budget = 24 * page;
    ramet_engine *engine = engine_with((ramet_engine_options){
        .kv_budget_bytes = budget, .tree_budget_bytes = 12 * page, .spill_directory = spill_directory});
    ramet_context *first = context_with(engine, tokens, 1); /* the forward pass has its scratch memory from here on */
    ramet_context_close(&first, NULL);
    uint64_t before = resident_kb();
    for (uint32_t i = 0; i < PROMPTS; i++) {
        int32_t prompt[200];
        draw(100 + i, prompt, 200);
        ramet_context *context = context_with(engine, prompt, 60 + i % 140);
        assert_int_equal(ramet_prefix_retain(context, NULL, NULL), RAMET_OK);
        ramet_context_close(&context, NULL);
        ramet_engine_stats stats;
        ramet_engine_get_stats(engine, &stats);
        assert_true(stats.memory_bytes <= budget && stats.tree_bytes <= 12 * page);
        uint64_t now = resident_kb();
        if (now > before + budget / 1024 + SLACK_KB)
            fail_msg("%llu kB more are resident, the budget is %llu", (unsigned long long)(now - before),
                     (unsigned long long)budget / 1024);
    }
    ramet_context *large = context_with(engine, tokens, 64 * 13); /* it alone exceeds the tree's budget */
    assert_int_equal(ramet_prefix_retain(large, NULL, NULL), RAMET_E_BUDGET);
    assert_logits(large, cold_after(64 * 13));
    ramet_context_close(&large, NULL);
    ramet_context *miss;
    size_t matched;
    assert_int_equal(ramet_prefix_match(engine, NULL, tokens, 64 * 13, &miss, &matched, NULL), RAMET_OK);
    assert_int_equal(matched, 0);
    ramet_context_close(&miss, NULL);
    close_engine(engine);
}

static void case_9_the_budget_holds(void **state) {
    (void)state;
    keep_many(NULL);
    keep_many(scratch.directory);
}

/* ---- case 23: no marker crosses ---- */

typedef struct conversation {
    int32_t tokens[CONVERSATION + 2];
    float next[2][64 * 1024 / sizeof(float)]; /* logits after the whole, and after a token more */
    ramet_context *context;
} conversation;

typedef struct asker {
    conversation *all;
    ramet_engine *engine;
    uint64_t seed;
    int n_answers;
} asker;

static bool is_out_of_room(ramet_status status, const ramet_error *error) {
    if (status != RAMET_OK && status != RAMET_E_BUDGET && status != RAMET_E_BUSY) fail_msg("%s", error->message);
    return status != RAMET_OK;
}

/* A fork of a conversation, or a context found by its tokens, says a token more. */
static void *ask(void *argument) {
    asker *a = argument;
    for (int round = 0; round < 60; round++) {
        a->seed = a->seed * 6364136223846793005u + 1442695040888963407u;
        conversation *c = &a->all[(a->seed >> 33) % CONVERSATIONS];
        ramet_context *context = NULL;
        ramet_error error;
        size_t matched = CONVERSATION;
        ramet_status status =
            round % 3 == 0 ? ramet_prefix_match(a->engine, NULL, c->tokens, CONVERSATION, &context, &matched, &error)
                           : ramet_context_fork(c->context, &context, &error);
        if (is_out_of_room(status, &error)) continue;
        size_t kept;
        status = ramet_context_sync(context, c->tokens, CONVERSATION + 1, &kept, &error);
        if (!is_out_of_room(status, &error)) {
            assert_int_equal(kept, matched);
            assert_logits(context, c->next[1]);
            a->n_answers++;
        }
        if (round % 5 == 0 && status == RAMET_OK) ramet_prefix_retain(context, NULL, NULL);
        ramet_context_close(&context, NULL);
    }
    return NULL;
}

static void case_23_no_marker_crosses(void **state) {
    (void)state;
    enum { ASKERS = 3 };
    assert_true(n_vocab * sizeof(float) <= sizeof((conversation *)0)->next[0]);
    conversation *all = calloc(CONVERSATIONS, sizeof *all);
    ramet_engine *engine =
        engine_with((ramet_engine_options){.page_tokens = 16,
                                           .kv_budget_bytes = 4 * (CONVERSATION / 16 + 2) * page_bytes_of(16),
                                           .spill_directory = scratch.directory});
    ramet_engine *alone = engine_with((ramet_engine_options){0});
    for (uint32_t i = 0; i < CONVERSATIONS; i++) {
        draw(1000 + i, all[i].tokens, CONVERSATION + 2);
        ramet_context *context = context_with(alone, all[i].tokens, CONVERSATION);
        for (uint32_t k = 0; k < 2; k++) {
            const float *row;
            assert_int_equal(ramet_context_logits(context, &row, NULL), RAMET_OK);
            memcpy(all[i].next[k], row, n_vocab * sizeof *row);
            assert_int_equal(ramet_context_extend(context, all[i].tokens + CONVERSATION, 1, NULL), RAMET_OK);
        }
        ramet_context_close(&context, NULL);
        all[i].context = context_with(engine, all[i].tokens, CONVERSATION);
        assert_int_equal(ramet_prefix_retain(all[i].context, NULL, NULL), RAMET_OK);
    }
    asker askers[ASKERS];
    pthread_t threads[ASKERS];
    for (uint32_t i = 0; i < ASKERS; i++) {
        askers[i] = (asker){.all = all, .engine = engine, .seed = 7 + i};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    int n_answers = 0;
    for (int i = 0; i < ASKERS; i++) {
        pthread_join(threads[i], NULL);
        n_answers += askers[i].n_answers;
    }
    assert_true(n_answers > 60);
    ramet_engine_stats stats;
    ramet_engine_get_stats(engine, &stats);
    assert_true(stats.blocks_spilled > 0 && stats.blocks_read_back > 0);
    for (int i = 0; i < CONVERSATIONS; i++) {
        assert_logits(all[i].context, all[i].next[0]);
        ramet_context_close(&all[i].context, NULL);
    }
    close_engine(engine);
    ramet_engine_destroy(&alone);
    free(all);
}

/* ---- cases 26 and 27: what is asked for equals what is kept, at and around page boundaries ---- */

/* Asks the tree for tokens[0, n), of which `known` are kept. */
static void ask_tree(ramet_engine *engine, uint32_t n, uint32_t known) {
    ramet_context *context;
    size_t matched, kept;
    ramet_error error;
    require(ramet_prefix_match(engine, NULL, tokens, n, &context, &matched, &error), &error);
    assert_int_equal(matched, n < known ? n : known);
    require(ramet_context_sync(context, tokens, n, &kept, &error), &error);
    assert_true(kept + 1 >= matched);
    assert_logits(context, cold_after(n));
    ramet_context_close(&context, NULL);
}

static void case_26_prompts_equal_to_what_is_kept(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 2, 16, 17, 47, 48, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint32_t n = lengths[i];
        ramet_engine *engine = engine_with((ramet_engine_options){.page_tokens = 16});
        ramet_context *context = context_with(engine, tokens, n);
        assert_int_equal(ramet_prefix_retain(context, NULL, NULL), RAMET_OK);
        ramet_context_close(&context, NULL);
        ask_tree(engine, n, n);
        for (uint32_t less = 1; less <= 2 && less < n; less++) ask_tree(engine, n - less, n);
        for (uint32_t m = 16; m < n; m += 16) ask_tree(engine, m, n);
        ask_tree(engine, 1, n);
        ask_tree(engine, n + 7, n); /* regenerate: the prompt is a prefix */
        close_engine(engine);
    }
}

/* Hit, fork and write, truncate, snapshot and restore at length n; the other end of the snapshot has pages of another size. */
static void go_through(ramet_engine *engine, ramet_engine *other, uint32_t n) {
    char path[RAMET_SCRATCH_PATH_BYTES];
    ramet_error error;
    snprintf(path, sizeof path, "%s/boundary.ramet", scratch.directory);
    ramet_context *context = context_with(engine, tokens, n), *fork, *back;
    assert_int_equal(ramet_prefix_retain(context, NULL, NULL), RAMET_OK);
    ask_tree(engine, n + 1, n);
    require(ramet_context_fork(context, &fork, &error), &error);
    require(ramet_context_extend(fork, tokens + n, 3, &error), &error);
    assert_logits(fork, cold_after(n + 3));
    require(ramet_context_truncate(fork, n, &error), &error);
    require(ramet_context_extend(fork, tokens + n, 1, &error), &error);
    assert_logits(fork, cold_after(n + 1));
    assert_logits(context, cold_after(n));
    require(ramet_snapshot_save(context, path, NULL, NULL, &error), &error);
    require(ramet_snapshot_restore(other, path, NULL, &back, NULL, NULL, &error), &error);
    assert_logits(back, cold_after(n));
    require(ramet_context_extend(back, tokens + n, 2, &error), &error);
    assert_logits(back, cold_after(n + 2));
    ramet_context_close(&back, NULL);
    ramet_context_close(&fork, NULL);
    ramet_context_close(&context, NULL);
    unlink(path);
}

static void case_27_around_page_boundaries(void **state) {
    (void)state;
    static const uint32_t sizes[] = {16, 64, 256};
    for (int i = 0; i < 3; i++) {
        uint32_t size = sizes[i];
        for (uint32_t k = 0; k <= 3; k++) {
            const uint32_t rests[] = {0, 1, size - 1};
            for (int r = 0; r < 3; r++) {
                if (k * size + rests[r] == 0) continue;
                ramet_engine *engine = engine_with((ramet_engine_options){.page_tokens = size});
                ramet_engine *other = engine_with((ramet_engine_options){.page_tokens = sizes[(i + 1) % 3]});
                go_through(engine, other, k * size + rests[r]);
                close_engine(engine);
                close_engine(other);
            }
        }
    }
}

/* ---- case 30: tenants ---- */

static size_t matched_by(ramet_engine *engine, const char *owner, uint32_t n) {
    ramet_context *context;
    size_t matched;
    assert_int_equal(ramet_prefix_match(engine, owner, tokens, n, &context, &matched, NULL), RAMET_OK);
    assert_int_equal(ramet_context_length(context), matched);
    const float *row;
    assert_int_equal(ramet_context_logits(context, &row, NULL), matched == n ? RAMET_OK : RAMET_E_NOT_FOUND);
    ramet_context_close(&context, NULL);
    return matched;
}

static void case_30_tenants_do_not_meet(void **state) {
    (void)state;
    static const char *const others[] = {NULL, "", "bob", "alic", "alice ", "alicex", "Alice"};
    ramet_engine *engine = engine_with((ramet_engine_options){0});
    ramet_context *context = context_with(engine, tokens, 100);
    assert_int_equal(ramet_prefix_retain(context, &(ramet_prefix_options){.owner = "alice"}, NULL), RAMET_OK);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(matched_by(engine, others[i], 100), 0);
    assert_int_equal(matched_by(engine, "alice", 100), 100);
    assert_int_equal(ramet_context_truncate(context, 40, NULL), RAMET_OK);
    assert_int_equal(ramet_prefix_retain(context, NULL, NULL), RAMET_OK); /* the operator's */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(matched_by(engine, others[i], 100), 40);
    assert_int_equal(matched_by(engine, "alice", 100), 100);
    ramet_context_close(&context, NULL);
    close_engine(engine);
}

/* ---- case 37: a fragmented cache ---- */

static void read_file(const char *path, uint8_t **out, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *out_bytes = (size_t)ftell(file);
    rewind(file);
    *out = malloc(*out_bytes);
    assert_int_equal(fread(*out, 1, *out_bytes, file), *out_bytes);
    fclose(file);
}

static void save_to(ramet_context *context, const char *name, uint8_t **out, size_t *out_bytes) {
    char path[RAMET_SCRATCH_PATH_BYTES];
    ramet_error error;
    snprintf(path, sizeof path, "%s/%s", scratch.directory, name);
    require(ramet_snapshot_save(context, path, NULL, NULL, &error), &error);
    read_file(path, out, out_bytes);
    unlink(path);
}

static void case_37_a_fragmented_context_saves_as_a_compact_one(void **state) {
    (void)state;
    enum { N = 40 };
    ramet_engine *engine = engine_with((ramet_engine_options){.page_tokens = 16});
    ramet_context *contexts[N];
    for (int i = 0; i < N; i++) contexts[i] = context_with(engine, tokens, 33);
    for (int i = 0; i < N; i += 2) ramet_context_close(&contexts[i], NULL);
    for (int i = 1; i < N; i += 2) assert_int_equal(ramet_context_extend(contexts[i], tokens + 33, 40, NULL), RAMET_OK);
    ramet_engine *fresh = engine_with((ramet_engine_options){.page_tokens = 64});
    ramet_context *compact = context_with(fresh, tokens, 73);
    uint8_t *expected, *bytes;
    size_t n_expected, n;
    save_to(compact, "compact.ramet", &expected, &n_expected);
    for (int i = 1; i < N; i += 2) {
        save_to(contexts[i], "fragmented.ramet", &bytes, &n);
        assert_int_equal(n, n_expected);
        assert_memory_equal(bytes, expected, n);
        free(bytes);
        ramet_context_close(&contexts[i], NULL);
    }
    free(expected);
    ramet_context_close(&compact, NULL);
    close_engine(engine);
    close_engine(fresh);
}

/* ---- case 38: memory runs out in the middle ---- */

typedef struct runner {
    ramet_context *context;
    ramet_status status;
} runner;

static void *run_on(void *argument) {
    runner *r = argument;
    for (uint32_t n = 0; n < 70 && r->status == RAMET_OK; n++)
        r->status = ramet_context_extend(r->context, tokens + n, 1, NULL);
    return NULL;
}

static void case_38_memory_runs_out_for_some(void **state) {
    (void)state;
    enum { N = 4 };
    uint64_t page = page_bytes_of(16);
    for (uint32_t k = 1; k <= 24; k++) {
        ramet_engine *engine = engine_with(
            (ramet_engine_options){.page_tokens = 16, .kv_budget_bytes = k * page + N * n_vocab * sizeof(float)});
        runner runners[N];
        pthread_t threads[N];
        for (int i = 0; i < N; i++) {
            runners[i] = (runner){.status = RAMET_OK};
            assert_int_equal(ramet_context_create(engine, &runners[i].context, NULL), RAMET_OK);
            assert_int_equal(pthread_create(&threads[i], NULL, run_on, &runners[i]), 0);
        }
        int n_through = 0;
        for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < N; i++) {
            uint32_t length = ramet_context_length(runners[i].context);
            assert_int_equal(runners[i].status, length == 70 ? RAMET_OK : RAMET_E_BUDGET);
            if (length > 0) assert_logits(runners[i].context, cold_after(length));
            n_through += length == 70;
        }
        if (k >= N * 5) assert_int_equal(n_through, N);
        require_sound(engine);
        for (int i = 0; i < N; i++) ramet_context_close(&runners[i].context, NULL);
        close_engine(engine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_9_the_budget_holds),
        cmocka_unit_test(case_23_no_marker_crosses),
        cmocka_unit_test(case_26_prompts_equal_to_what_is_kept),
        cmocka_unit_test(case_27_around_page_boundaries),
        cmocka_unit_test(case_30_tenants_do_not_meet),
        cmocka_unit_test(case_37_a_fragmented_context_saves_as_a_compact_one),
        cmocka_unit_test(case_38_memory_runs_out_for_some),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
