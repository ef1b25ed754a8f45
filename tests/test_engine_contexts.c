/* test_engine_contexts.c - the public API on the bundled trained model: whatever is done to a context, the next logits are the same
 * bits; and what goes wrong leaves everything as it was. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ramet.h"
#include "test_state_mallocs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL RAMET_TEST_DATA "/../../share/models/tiny-llama-kjv-q8_0.gguf"
enum { LONG = 1100 }; /* past the part boundary at 1,024 */

/* The thread sanitizer sees each access of a kernel: one number of threads and one long context show it all. */
#if defined(__SANITIZE_THREAD__)
enum { IS_SLOW = 1 };
#else
enum { IS_SLOW = 0 };
#endif

static ramet_model *model;
static uint32_t n_vocab;
static int32_t tokens[LONG + 64];

static int open_model(void **state) {
    (void)state;
    ramet_error error;
    if (ramet_model_open(MODEL, NULL, &model, &error) != RAMET_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    ramet_model_info info;
    ramet_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    uint64_t x = 1;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((x >> 33) % n_vocab);
    }
    return 0;
}

static int close_model(void **state) {
    (void)state;
    ramet_model_close(&model);
    return 0;
}

static ramet_engine *engine_with(ramet_engine_options options) {
    ramet_engine *engine = NULL;
    ramet_error error = {0};
    if (ramet_engine_create(model, &options, &engine, &error) != RAMET_OK) fail_msg("%s", error.message);
    return engine;
}

static ramet_context *context_with(ramet_engine *engine, uint32_t n) {
    ramet_context *context = NULL;
    assert_int_equal(ramet_context_create(engine, &context, NULL), RAMET_OK);
    ramet_error error = {0};
    if (ramet_context_extend(context, tokens, n, &error) != RAMET_OK) fail_msg("%s", error.message);
    return context;
}

static float *logits_of(ramet_context *context) {
    const float *row;
    ramet_error error = {0};
    if (ramet_context_logits(context, &row, &error) != RAMET_OK) fail_msg("%s", error.message);
    float *copy = malloc(n_vocab * sizeof *copy);
    memcpy(copy, row, n_vocab * sizeof *copy);
    return copy;
}

/* Bits of a context's logits against those of a cold prefill of tokens[0, n) in one piece. */
static void assert_as_cold(ramet_context *context, uint32_t n) {
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 1, .n_ctx = 2048, .chunk_tokens = 2048});
    ramet_context *cold = context_with(engine, n);
    float *a = logits_of(context), *b = logits_of(cold);
    assert_memory_equal(a, b, n_vocab * sizeof *a);
    free(a);
    free(b);
    ramet_context_close(&cold, NULL);
    ramet_engine_destroy(&engine);
}

static ramet_engine_stats stats_of(ramet_engine *engine) {
    ramet_engine_stats stats;
    ramet_engine_get_stats(engine, &stats);
    ramet_error error = {0};
    if (ramet_engine_check(engine, &error) != RAMET_OK) fail_msg("%s", error.message);
    return stats;
}

static void a_fork_allocates_no_page(void **state) {
    (void)state;
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 2});
    ramet_context *context = context_with(engine, 23), *forks[8];
    uint64_t before = stats_of(engine).pages_allocated;
    for (int i = 0; i < 8; i++) assert_int_equal(ramet_context_fork(context, &forks[i], NULL), RAMET_OK);
    assert_int_equal(stats_of(engine).pages_allocated, before);
    assert_int_equal(stats_of(engine).pages_live, 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ramet_context_extend(forks[i], tokens + 23, 1, NULL), RAMET_OK);
        assert_as_cold(forks[i], 24);
    }
    assert_int_equal(stats_of(engine).pages_copied, 8); /* each wrote into the shared page once */
    assert_as_cold(context, 23);
    for (int i = 0; i < 8; i++) ramet_context_close(&forks[i], NULL);
    ramet_context_close(&context, NULL);
    assert_int_equal(stats_of(engine).pages_live, 0);
    ramet_engine_destroy(&engine);
}

static void decoding_takes_nothing_from_the_allocator(void **state) {
    (void)state;
    if (!mallocs_can_be_counted) skip();
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 2});
    ramet_context *context = context_with(engine, 40), *forks[8];
    for (int i = 0; i < 8; i++) assert_int_equal(ramet_context_fork(context, &forks[i], NULL), RAMET_OK);
    ramet_batch_item items[9] = {{context, tokens, 1}};
    for (int i = 0; i < 8; i++) items[i + 1] = (ramet_batch_item){forks[i], tokens, 1};
    enum { WARM = 30 };
    for (int step = 0; step < 100; step++) {               /* over page boundaries before and after */
        if (step == WARM) assert_true(take_mallocs() > 0); /* rows, and a table node to spare */
        assert_int_equal(ramet_context_extend(context, tokens + step, 1, NULL), RAMET_OK);
        assert_int_equal(ramet_batch_extend(items, 9, NULL), RAMET_OK);
        if (step >= WARM) assert_int_equal(take_mallocs(), 0);
    }
    for (int i = 0; i < 8; i++) ramet_context_close(&forks[i], NULL);
    for (int i = 0; i < 8; i++) assert_int_equal(ramet_context_fork(context, &forks[i], NULL), RAMET_OK);
    for (int i = 0; i < 8; i++) ramet_context_close(&forks[i], NULL);
    assert_int_equal(take_mallocs(), 0);
    ramet_context_close(&context, NULL);
    ramet_engine_destroy(&engine);
}

static void parts_threads_and_chunks_change_no_bit(void **state) {
    (void)state;
    for (uint32_t threads = IS_SLOW ? 3 : 1; threads <= (IS_SLOW ? 3 : 4); threads++) {
        ramet_engine *engine =
            engine_with((ramet_engine_options){.threads = threads, .n_ctx = 2048, .page_tokens = 16u << threads});
        ramet_context *context = context_with(engine, LONG - 2);
        assert_int_equal(ramet_context_extend(context, tokens + LONG - 2, 1, NULL), RAMET_OK); /* the split form */
        assert_int_equal(ramet_context_extend(context, tokens + LONG - 1, 1, NULL), RAMET_OK);
        assert_as_cold(context, LONG);
        ramet_context_close(&context, NULL);
        ramet_engine_destroy(&engine);
    }
}

static void sync_runs_only_what_differs(void **state) {
    (void)state;
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 2});
    ramet_context *context = context_with(engine, 100);
    size_t kept;
    assert_int_equal(ramet_context_sync(context, tokens, 120, &kept, NULL), RAMET_OK);
    assert_int_equal(kept, 100);
    assert_as_cold(context, 120);
    assert_int_equal(ramet_context_sync(context, tokens, 120, &kept, NULL), RAMET_OK);
    assert_int_equal(kept, 120);
    assert_int_equal(ramet_context_sync(context, tokens, 65, &kept, NULL), RAMET_OK); /* case 26: a strict prefix */
    assert_int_equal(kept, 64);
    assert_as_cold(context, 65);
    int32_t other[80];
    memcpy(other, tokens, sizeof other);
    other[33] = (other[33] + 1) % (int32_t)n_vocab;
    assert_int_equal(ramet_context_sync(context, other, 80, &kept, NULL), RAMET_OK);
    assert_int_equal(kept, 33);
    assert_int_equal(ramet_context_sync(context, tokens, 80, &kept, NULL), RAMET_OK);
    assert_int_equal(kept, 33);
    assert_as_cold(context, 80);
    ramet_context_close(&context, NULL);
    ramet_engine_destroy(&engine);
}

static void a_batch_equals_its_members_alone(void **state) {
    (void)state;
    enum { N = 5 };
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 2, .chunk_tokens = 48});
    static const uint32_t lengths[N] = {1, 63, 64, 17, 129};
    ramet_context *contexts[N];
    ramet_batch_item items[N];
    for (int i = 0; i < N; i++) { /* more tokens than a run holds: the batch is cut across items */
        assert_int_equal(ramet_context_create(engine, &contexts[i], NULL), RAMET_OK);
        items[i] = (ramet_batch_item){contexts[i], tokens, lengths[i]};
    }
    assert_int_equal(ramet_batch_extend(items, N, NULL), RAMET_OK);
    for (uint32_t step = 0; step < 3; step++) {
        for (int i = 0; i < N; i++) items[i] = (ramet_batch_item){contexts[i], tokens + lengths[i] + step, 1};
        assert_int_equal(ramet_batch_extend(items, N, NULL), RAMET_OK);
    }
    for (int i = 0; i < N; i++) assert_as_cold(contexts[i], lengths[i] + 3);
    items[1] = items[0]; /* the same context twice: somebody is inside it already */
    ramet_error error;
    assert_int_equal(ramet_batch_extend(items, 2, &error), RAMET_E_BUSY);
    assert_int_equal(ramet_context_length(contexts[0]), lengths[0] + 3);
    for (int i = 0; i < N; i++) ramet_context_close(&contexts[i], NULL);
    ramet_engine_destroy(&engine);
}

/* More contexts that end in one run than one product of logits takes, and prompts among them. */
static void a_large_batch_equals_its_members_alone(void **state) {
    (void)state;
    enum { N = 37, TURNS = 2 };
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 2, .chunk_tokens = 64});
    ramet_context *contexts[N];
    uint32_t lengths[N] = {0};
    for (int i = 0; i < N; i++) assert_int_equal(ramet_context_create(engine, &contexts[i], NULL), RAMET_OK);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        ramet_batch_item items[N];
        for (uint32_t i = 0; i < N; i++) {
            uint32_t n = turn == 0 && i % 12 == 5 ? 9 + i : 1;
            items[i] = (ramet_batch_item){contexts[i], tokens + lengths[i], n};
            lengths[i] += n;
        }
        assert_int_equal(ramet_batch_extend(items, N, NULL), RAMET_OK);
        for (int i = 0; i < N; i++) assert_as_cold(contexts[i], lengths[i]);
    }
    for (int i = 0; i < N; i++) ramet_context_close(&contexts[i], NULL);
    ramet_engine_destroy(&engine);
}

/* A copy of the handle, used by mistake: its slot is not out again yet. */
static void a_closed_context_is_refused(void **state) {
    (void)state;
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 1});
    ramet_context *context = context_with(engine, 3), *closed = context, *other = context_with(engine, 3);
    assert_int_equal(ramet_context_close(&context, NULL), RAMET_OK);
    assert_int_equal(ramet_context_extend(closed, tokens, 1, NULL), RAMET_E_BUSY);
    assert_int_equal(ramet_context_fork(closed, &context, NULL), RAMET_E_BUSY);
    for (int first = 0; first < 2; first++) {
        ramet_batch_item items[2] = {{first ? other : closed, tokens, 1}, {first ? closed : other, tokens, 1}};
        assert_int_equal(ramet_batch_extend(items, 2, NULL), RAMET_E_BUSY);
    }
    assert_int_equal(ramet_context_close(&closed, NULL), RAMET_E_BUSY);
    assert_as_cold(other, 3);
    ramet_context_close(&other, NULL);
    ramet_engine_destroy(&engine);
}

/* Branches of one prefix read its pages together; then they part, at page boundaries and in between. */
static void branches_in_a_batch_equal_themselves_alone(void **state) {
    (void)state;
    enum { N = 6, STEPS = 5 };
    for (uint32_t threads = IS_SLOW ? 2 : 1; threads <= (IS_SLOW ? 2 : 3); threads++) {
        ramet_engine *engine =
            engine_with((ramet_engine_options){.threads = threads, .page_tokens = 16u << threads, .n_ctx = 2048});
        static const uint32_t lengths[] = {62, 64, 127, 1030};
        for (size_t l = 0; l < (IS_SLOW ? 2 : sizeof lengths / sizeof lengths[0]); l++) {
            ramet_context *branches[N] = {context_with(engine, lengths[l])};
            int32_t own[N][STEPS];
            for (int i = 1; i < N; i++) assert_int_equal(ramet_context_fork(branches[0], &branches[i], NULL), RAMET_OK);
            for (int i = 0; i < N; i++)
                for (int k = 0; k < STEPS; k++) own[i][k] = (tokens[k] + 3 * i * (k > 1)) % (int32_t)n_vocab;
            for (int k = 0; k < STEPS; k++) {
                ramet_batch_item items[N];
                for (int i = 0; i < N; i++) items[i] = (ramet_batch_item){branches[i], &own[i][k], 1};
                assert_int_equal(ramet_batch_extend(items, N, NULL), RAMET_OK);
            }
            for (int i = 0; i < N; i += 2) {
                ramet_context *alone = context_with(engine, lengths[l]);
                assert_int_equal(ramet_context_extend(alone, own[i], STEPS, NULL), RAMET_OK);
                float *a = logits_of(branches[i]), *b = logits_of(alone);
                assert_memory_equal(a, b, n_vocab * sizeof *a);
                free(a);
                free(b);
                ramet_context_close(&alone, NULL);
            }
            for (int i = 0; i < N; i++) ramet_context_close(&branches[i], NULL);
        }
        ramet_engine_destroy(&engine);
    }
}

static void refusals_change_nothing(void **state) {
    (void)state;
    ramet_engine *engine =
        engine_with((ramet_engine_options){.threads = 1, .n_ctx = 128, .page_tokens = 16, .kv_budget_bytes = 0});
    ramet_engine_info info;
    ramet_engine_get_info(engine, &info);
    ramet_engine_destroy(&engine);
    engine = engine_with((ramet_engine_options){.threads = 1,
                                                .n_ctx = 128,
                                                .page_tokens = 16,
                                                .kv_budget_bytes = 5 * info.page_bytes + 4 * n_vocab * sizeof(float)});
    ramet_context *context = context_with(engine, 40), *other = NULL;
    float *before = logits_of(context);
    ramet_error error;
    assert_int_equal(ramet_context_extend(context, tokens, 89, &error), RAMET_E_WINDOW);
    const int32_t bad[] = {0, (int32_t)n_vocab};
    assert_int_equal(ramet_context_extend(context, bad, 2, &error), RAMET_E_ARGUMENT);
    assert_int_equal(ramet_context_extend(context, (int32_t[]){-1}, 1, &error), RAMET_E_ARGUMENT);
    assert_int_equal(ramet_context_truncate(context, 41, &error), RAMET_E_ARGUMENT);
    assert_int_equal(ramet_context_create(engine, &other, NULL), RAMET_OK);
    assert_int_equal(ramet_context_extend(other, tokens, 60, &error), RAMET_E_BUDGET);
    assert_int_equal(ramet_context_length(other), 0);
    ramet_batch_item items[] = {{context, tokens + 40, 1}, {other, tokens, 60}};
    assert_int_equal(ramet_batch_extend(items, 2, &error), RAMET_E_BUDGET);
    assert_int_equal(stats_of(engine).pages_live, 3);
    float *after = logits_of(context);
    assert_memory_equal(before, after, n_vocab * sizeof *before);
    assert_int_equal(ramet_context_extend(context, tokens + 40, 1, NULL), RAMET_OK);
    assert_as_cold(context, 41);
    const float *none;
    assert_int_equal(ramet_context_logits(other, &none, &error), RAMET_E_NOT_FOUND);
    free(before);
    free(after);
    ramet_context_close(&other, NULL);
    ramet_context_close(&context, NULL);
    ramet_engine_destroy(&engine);
}

static void the_tree_finds_the_longest_prefix(void **state) {
    (void)state;
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 2});
    ramet_context *context = context_with(engine, 130), *hit = NULL;
    assert_int_equal(ramet_prefix_retain(context, NULL, NULL), RAMET_OK);
    ramet_context_close(&context, NULL);
    size_t matched;
    int32_t prompt[200];
    memcpy(prompt, tokens, sizeof prompt);
    prompt[77] = (prompt[77] + 1) % (int32_t)n_vocab;
    assert_int_equal(ramet_prefix_match(engine, NULL, prompt, 200, &hit, &matched, NULL), RAMET_OK);
    assert_int_equal(matched, 77);
    assert_int_equal(ramet_context_extend(hit, tokens + 77, 5, NULL), RAMET_OK);
    assert_as_cold(hit, 82);
    ramet_context_close(&hit, NULL);
    assert_int_equal(ramet_prefix_match(engine, NULL, tokens, 130, &hit, &matched, NULL),
                     RAMET_OK); /* all of it: logits come along */
    assert_int_equal(matched, 130);
    assert_as_cold(hit, 130);
    ramet_context_close(&hit, NULL);
    ramet_prefix_clear(engine);
    assert_int_equal(ramet_prefix_match(engine, NULL, tokens, 130, &hit, &matched, NULL), RAMET_OK);
    assert_int_equal(matched, 0);
    ramet_context_close(&hit, NULL);
    assert_int_equal(stats_of(engine).pages_live, 0);
    ramet_engine_destroy(&engine);
}

static void snapshots_move_between_engines(void **state) {
    (void)state;
    char directory[] = "/tmp/ramet-engine-XXXXXX", path[64], again[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/a", directory);
    snprintf(again, sizeof again, "%s/b", directory);
    for (int kv = RAMET_KV_F32; kv <= RAMET_KV_Q8; kv++) {
        ramet_engine *from = engine_with((ramet_engine_options){.kv = (ramet_kv)kv, .threads = 2, .page_tokens = 16});
        ramet_engine *to =
            engine_with((ramet_engine_options){.kv = (ramet_kv)kv, .threads = 1, .page_tokens = 128, .kernels = "c"});
        ramet_context *context = context_with(from, 70), *restored = NULL;
        ramet_snapshot_info info;
        const ramet_snapshot_options options = {.sampler_state = "dice", .sampler_state_bytes = 4};
        ramet_snapshot_sampler sampler;
        assert_int_equal(ramet_snapshot_save(context, path, &options, &info, NULL), RAMET_OK);
        assert_int_equal(info.n_tokens, 70);
        ramet_error error = {0};
        if (ramet_snapshot_restore(to, path, NULL, &restored, &sampler, &info, &error) != RAMET_OK)
            fail_msg("%s", error.message);
        assert_int_equal(sampler.bytes, 4);
        assert_memory_equal(sampler.data, "dice", 4);
        free(sampler.data);
        float *a = logits_of(context), *b = logits_of(restored);
        assert_memory_equal(a, b, n_vocab * sizeof *a);
        free(a);
        free(b);
        ramet_context_extend(context, tokens + 70, 3, NULL);
        ramet_context_extend(restored, tokens + 70, 1, NULL);
        ramet_context_extend(restored, tokens + 71, 2, NULL);
        a = logits_of(context), b = logits_of(restored);
        assert_memory_equal(a, b, n_vocab * sizeof *a);
        free(a);
        free(b);
        assert_int_equal(ramet_snapshot_save(restored, again, NULL, NULL, NULL), RAMET_OK);
        assert_int_equal(ramet_snapshot_save(context, path, NULL, NULL, NULL), RAMET_OK);
        char *x, *y;
        size_t n, m;
        FILE *f = fopen(path, "rb"), *g = fopen(again, "rb");
        x = malloc(1 << 24), y = malloc(1 << 24);
        n = fread(x, 1, 1 << 24, f), m = fread(y, 1, 1 << 24, g);
        assert_int_equal(n, m); /* K8: not a function of page size or history */
        assert_memory_equal(x, y, n);
        fclose(f);
        fclose(g);
        free(x);
        free(y);
        ramet_context_close(&context, NULL);
        ramet_context_close(&restored, NULL);
        ramet_engine_destroy(&from);
        ramet_engine_destroy(&to);
    }
    unlink(path);
    unlink(again);
    rmdir(directory);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 1});
    ramet_context *context = context_with(engine, 70);
    int failures = 0;
    for (uint64_t k = 1; k < 60; k += IS_SLOW ? 4 : 1) {
        ramet_context *fork = NULL, *hit = NULL;
        size_t matched;
        uint64_t live = stats_of(engine).pages_live;
        ramet_alloc_fail_after(k);
        ramet_error error;
        ramet_status status = ramet_context_fork(context, &fork, &error);
        if (status == RAMET_OK) status = ramet_context_extend(fork, tokens + 70, 2, &error);
        if (status == RAMET_OK) status = ramet_prefix_retain(fork, NULL, &error);
        if (status == RAMET_OK) status = ramet_prefix_match(engine, NULL, tokens, 71, &hit, &matched, &error);
        ramet_alloc_fail_after(0);
        failures += status != RAMET_OK;
        assert_true(status == RAMET_OK || status == RAMET_E_NO_MEMORY);
        if (fork && ramet_context_length(fork) == 70) {
            assert_int_equal(ramet_context_extend(fork, tokens + 70, 2, NULL), RAMET_OK);
        }
        if (fork) assert_as_cold(fork, 72);
        ramet_context_close(&fork, NULL);
        ramet_context_close(&hit, NULL);
        ramet_prefix_clear(engine);
        assert_int_equal(stats_of(engine).pages_live, live);
    }
    assert_true(failures > (IS_SLOW ? 0 : 3));
    ramet_context_close(&context, NULL);
    ramet_engine_destroy(&engine);
}

static void a_batch_that_runs_out_of_memory_has_not_happened(void **state) {
    (void)state;
    ramet_engine *engine = engine_with((ramet_engine_options){.threads = 1});
    ramet_context *context = context_with(engine, 63), *other = context_with(engine, 70);
    bool done = false;
    for (uint64_t k = 1; !done; k++) {
        ramet_context *fork = NULL, *second = NULL;
        assert_int_equal(ramet_context_fork(context, &fork, NULL), RAMET_OK);
        assert_int_equal(ramet_context_fork(other, &second, NULL), RAMET_OK);
        const ramet_batch_item items[] = {{fork, tokens + 63, 2}, {second, tokens + 70, 2}};
        ramet_alloc_fail_after(k);
        ramet_error error;
        ramet_status status = ramet_batch_extend(items, 2, &error);
        ramet_alloc_fail_after(0);
        done = status == RAMET_OK;
        assert_true(done || status == RAMET_E_NO_MEMORY);
        assert_as_cold(fork, done ? 65 : 63); /* logits and all */
        assert_as_cold(second, done ? 72 : 70);
        stats_of(engine);
        ramet_context_close(&fork, NULL);
        ramet_context_close(&second, NULL);
        assert_true(k < 100);
    }
    ramet_context_close(&context, NULL);
    ramet_context_close(&other, NULL);
    ramet_engine_destroy(&engine);
}

struct shared {
    ramet_engine *engine;
    ramet_context *parent;
    _Atomic uint32_t busy, forked;
};

static void *fork_and_run(void *argument) {
    struct shared *shared = argument;
    for (int i = 0; i < 30; i++) {
        ramet_context *child = NULL;
        ramet_status status = ramet_context_fork(shared->parent, &child, NULL);
        if (status == RAMET_E_BUSY) atomic_fetch_add(&shared->busy, 1);
        if (status != RAMET_OK) continue;
        atomic_fetch_add(&shared->forked, 1);
        if (i % 10 == 0 && ramet_context_extend(child, tokens + 70, 2, NULL) != RAMET_OK) abort();
        ramet_context_close(&child, NULL);
    }
    return NULL;
}

static void sixteen_threads_fork_one_parent(void **state) {
    (void)state;
    struct shared shared = {.engine = engine_with((ramet_engine_options){.threads = 2})};
    shared.parent = context_with(shared.engine, 70);
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, fork_and_run, &shared);
    for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
    assert_int_equal(shared.busy + shared.forked, 16 * 30);
    assert_int_equal(stats_of(shared.engine).pages_live, 2);
    assert_as_cold(shared.parent, 70);
    ramet_context_close(&shared.parent, NULL);
    ramet_engine_destroy(&shared.engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_allocates_no_page),
        cmocka_unit_test(decoding_takes_nothing_from_the_allocator),
        cmocka_unit_test(parts_threads_and_chunks_change_no_bit),
        cmocka_unit_test(sync_runs_only_what_differs),
        cmocka_unit_test(a_batch_equals_its_members_alone),
        cmocka_unit_test(a_large_batch_equals_its_members_alone),
        cmocka_unit_test(a_closed_context_is_refused),
        cmocka_unit_test(branches_in_a_batch_equal_themselves_alone),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(the_tree_finds_the_longest_prefix),
        cmocka_unit_test(snapshots_move_between_engines),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_batch_that_runs_out_of_memory_has_not_happened),
        cmocka_unit_test(sixteen_threads_fork_one_parent),
    };
    return cmocka_run_group_tests_name("contexts", tests, open_model, close_model);
}
