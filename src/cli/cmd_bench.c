/* cmd_bench.c - `ramet bench`: every operation on a context, timed in turn, as often as --reps says. The tokens are
 * arbitrary: speed does not depend on them. Reading and copying memory is timed between the repetitions, so that the
 * limits are of the same minutes as the rows. */
#include "base/clock.h"
#include "base/memory.h"
#include "cli/bandwidth.h"
#include "cli/bench.h"
#include "cli/commands.h"

#include <stdlib.h>
#include <string.h>

/* One timed step: keeps its time under (row, rep) when it went well. */
#define TIME(b, row, rep, step)                                                                                        \
    do {                                                                                                               \
        uint64_t start_ = ramet_now_nanoseconds();                                                                     \
        ramet_status status_ = (step);                                                                                 \
        (b)->nanoseconds[row][rep] = ramet_now_nanoseconds() - start_;                                                 \
        if (status_ != RAMET_OK) return status_;                                                                       \
    } while (0)

static ramet_status decode(ramet_bench *b, ramet_context **contexts, size_t n, ramet_error *error) {
    ramet_batch_item items[RAMET_BENCH_BRANCHES];
    for (uint32_t t = 0; t < b->o->bench_generate; t++) {
        for (size_t i = 0; i < n; i++)
            items[i] = (ramet_batch_item){contexts[i], b->tokens + b->o->bench_prompt + t, 1};
        RAMET_TRY(ramet_batch_extend(items, n, error));
    }
    return RAMET_OK;
}

static ramet_status fork_all(ramet_context *source, ramet_context **out, size_t n, ramet_error *error) {
    for (size_t i = 0; i < n; i++) RAMET_TRY(ramet_context_fork(source, &out[i], error));
    return RAMET_OK;
}

static ramet_status time_branches(ramet_bench *b, ramet_context *source, size_t n, ramet_bench_row row, uint32_t rep,
                                  ramet_error *error) {
    ramet_context *forks[RAMET_BENCH_BRANCHES] = {0};
    ramet_status status = fork_all(source, forks, n, error);
    if (status == RAMET_OK) {
        uint64_t start = ramet_now_nanoseconds();
        status = decode(b, forks, n, error);
        b->nanoseconds[row][rep] = ramet_now_nanoseconds() - start;
    }
    for (size_t i = 0; i < n; i++) ramet_drop(&forks[i]);
    return status;
}

static ramet_status time_forks(ramet_bench *b, ramet_context *source, uint32_t rep, ramet_error *error) {
    ramet_engine_stats before, after;
    uint64_t exclusive;
    uint32_t n = b->o->bench_forks;
    ramet_context **forks = ramet_alloc(n, sizeof *forks);
    if (!forks) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %u forks", n);
    ramet_engine_get_stats(b->s.engine, &before);
    uint64_t start = ramet_now_nanoseconds();
    ramet_status status = fork_all(source, forks, n, error);
    b->nanoseconds[RAMET_BENCH_FORK][rep] = ramet_now_nanoseconds() - start;
    ramet_engine_get_stats(b->s.engine, &after);
    b->pages_allocated = after.pages_allocated - before.pages_allocated;
    for (uint32_t i = 0; i < n; i++) ramet_drop(&forks[i]);
    free(forks);
    return status == RAMET_OK ? ramet_context_pages(source, &b->reachable_pages, &exclusive, error) : status;
}

static ramet_status time_snapshot(ramet_bench *b, ramet_context *source, uint32_t rep, ramet_error *error) {
    ramet_snapshot_info info;
    ramet_context *restored = NULL;
    TIME(b, RAMET_BENCH_SNAPSHOT, rep, ramet_save_patiently(source, b->scratch.file, &info, error));
    b->snapshot_bytes = info.file_bytes;
    TIME(b, RAMET_BENCH_RESTORE, rep,
         ramet_snapshot_restore(b->s.engine, b->scratch.file, &restored, NULL, NULL, error));
    ramet_drop(&restored);
    return RAMET_OK;
}

static ramet_status time_match(ramet_bench *b, ramet_context *source, uint32_t rep, ramet_error *error) {
    ramet_context *matched = NULL;
    RAMET_TRY(ramet_prefix_retain(source, error));
    TIME(b, RAMET_BENCH_MATCH, rep,
         ramet_prefix_match(b->s.engine, b->tokens, b->o->bench_prompt, &matched, &b->n_matched, error));
    ramet_drop(&matched);
    ramet_prefix_clear(b->s.engine);
    return RAMET_OK;
}

static ramet_status time_all(ramet_bench *b, ramet_context *source, uint32_t rep, ramet_error *error) {
    TIME(b, RAMET_BENCH_PREFILL, rep, ramet_context_extend(source, b->tokens, b->o->bench_prompt, error));
    RAMET_TRY(time_branches(b, source, 1, RAMET_BENCH_DECODE, rep, error));
    RAMET_TRY(time_branches(b, source, RAMET_BENCH_BRANCHES, RAMET_BENCH_BATCH, rep, error));
    RAMET_TRY(time_forks(b, source, rep, error));
    RAMET_TRY(time_snapshot(b, source, rep, error));
    return time_match(b, source, rep, error);
}

static void measure_memory(ramet_bench *b, ramet_bandwidth *bandwidth) {
    double read, copy;
    ramet_bandwidth_measure(bandwidth, &read, &copy);
    if (read > b->read_per_second) b->read_per_second = read;
    if (copy > b->copy_per_second) b->copy_per_second = copy;
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static ramet_status repeat(ramet_bench *b, ramet_bandwidth *bandwidth, ramet_error *error) {
    measure_memory(b, bandwidth);
    for (uint32_t rep = 0; rep < b->o->bench_reps; rep++) {
        ramet_context *source;
        ramet_progress(b->o, "repetition", rep + 1, b->o->bench_reps + UINT64_C(1));
        RAMET_TRY(ramet_context_create(b->s.engine, &source, error));
        ramet_status status = time_all(b, source, rep, error);
        ramet_drop(&source);
        if (status != RAMET_OK) return status;
        measure_memory(b, bandwidth);
    }
    ramet_progress(b->o, "repetition", 1, 1);
    for (int row = 0; row < RAMET_BENCH_ROWS; row++)
        qsort(b->nanoseconds[row], b->o->bench_reps, sizeof *b->nanoseconds[row], compare_u64);
    return RAMET_OK;
}

uint64_t ramet_bench_median(const ramet_bench *b, ramet_bench_row row) {
    return b->nanoseconds[row][b->o->bench_reps / 2];
}

/* A fixed sequence that wanders over the vocabulary. */
static ramet_status allocate(ramet_bench *b, ramet_error *error) {
    size_t n = (size_t)b->o->bench_prompt + b->o->bench_generate;
    bool is_full = (b->tokens = ramet_alloc(n, sizeof *b->tokens)) != NULL;
    for (int row = 0; row < RAMET_BENCH_ROWS; row++)
        is_full &= (b->nanoseconds[row] = ramet_alloc(b->o->bench_reps, sizeof(uint64_t))) != NULL;
    if (!is_full) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the tokens of the bench");
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        b->tokens[i] = (int32_t)((state >> 8) % b->s.info.n_vocab);
    }
    return RAMET_OK;
}

static ramet_status run(ramet_bench *b, ramet_error *error) {
    ramet_bandwidth *bandwidth;
    RAMET_TRY(ramet_session_open(b->o, &b->s, error));
    RAMET_TRY(ramet_session_start(&b->s, b->o, b->o->bench_prompt + b->o->bench_generate, error));
    RAMET_TRY(allocate(b, error));
    RAMET_TRY(ramet_scratch_create(ramet_temporary_parent(), "bench.ramet", &b->scratch, error));
    RAMET_TRY(ramet_bandwidth_create(b->s.engine_info.threads, &bandwidth, error));
    ramet_status status = repeat(b, bandwidth, error);
    ramet_bandwidth_destroy(&bandwidth);
    return status == RAMET_OK ? ramet_bench_print(b, error) : status;
}

ramet_status ramet_cmd_bench(const ramet_options *o, ramet_error *error) {
    ramet_bench b = {.o = o};
    ramet_status status = run(&b, error);
    ramet_scratch_remove(&b.scratch);
    ramet_session_close(&b.s);
    for (int row = 0; row < RAMET_BENCH_ROWS; row++) free(b.nanoseconds[row]);
    free(b.tokens);
    return status;
}
