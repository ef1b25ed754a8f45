/* cmd_bench.c - `ramet bench`: every operation on a context, timed in turn, as often as --reps says. The tokens are
 * arbitrary: speed does not depend on them. Reading and copying memory is timed between the repetitions, so that the
 * limits are of the same minutes as the rows. */
#include "base/clock.h"
#include "base/memory.h"
#include "cli/bandwidth.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/footprint.h"

#include <stdlib.h>
#include <string.h>

/* One timed step: keeps its time when it went well. */
#define TIME(row, rep, step)                                                                                           \
    do {                                                                                                               \
        uint64_t start_ = ramet_now_nanoseconds();                                                                     \
        ramet_status status_ = (step);                                                                                 \
        (row)->nanoseconds[rep] = ramet_now_nanoseconds() - start_;                                                    \
        if (status_ != RAMET_OK) return status_;                                                                       \
    } while (0)

/* ---------------------------------------------------------------- limits ---- */

/* Bytes that one step of `branches` contexts must read: the weights once, and per layer the positions that it sees;
 * those before `own` are the same pages for all branches. */
static double step_bytes(const ramet_bench *b, uint32_t branches, double length, double own) {
    const ramet_model_info *m = &b->s.info;
    double layer_bytes = (double)b->s.engine_info.kv_bytes_per_token / m->n_layers, bytes = (double)m->step_bytes;
    for (uint32_t is_window = 0; is_window < 2; is_window++) {
        uint32_t n_layers = is_window ? m->n_window_layers : m->n_layers - m->n_window_layers;
        double seen = is_window && length > m->window ? m->window : length, alone = own < seen ? own : seen;
        bytes += layer_bytes * n_layers * (seen - alone + branches * alone);
    }
    return bytes;
}

/* Keys and values grow while it runs, so the middle of the run counts. Pages are shared up to the last whole one of the
 * prompt, and read together by whole segments of 64. */
static double decode_bytes(const ramet_bench *b, uint32_t branches) {
    uint32_t prompt = b->o->bench_prompt, page = b->s.engine_info.page_tokens, unit = page > 64 ? page : 64;
    double half = b->o->bench_generate / 2.0;
    return b->o->bench_generate * step_bytes(b, branches, prompt + half, prompt % unit + half);
}

/* ------------------------------------------------------------------ rows ---- */

static ramet_status decode(ramet_bench *b, ramet_context **contexts, ramet_batch_item *items, size_t n,
                           ramet_error *error) {
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

static uint64_t pages_allocated(const ramet_bench *b) {
    ramet_engine_stats stats;
    ramet_engine_get_stats(b->s.engine, &stats);
    return stats.pages_allocated;
}

static ramet_status time_forks(ramet_bench *b, ramet_bench_row *row, ramet_context *source, ramet_context **forks,
                               uint32_t rep, ramet_error *error) {
    uint64_t before = pages_allocated(b), reachable, exclusive;
    TIME(row, rep, fork_all(source, forks, row->amount, error));
    row->pages_allocated = pages_allocated(b) - before;
    RAMET_TRY(ramet_context_pages(source, &reachable, &exclusive, error));
    row->pages_of_copies = row->amount * reachable;
    return RAMET_OK;
}

static ramet_status time_branches(ramet_bench *b, ramet_bench_row *row, ramet_context *source, ramet_context **forks,
                                  uint32_t rep, ramet_error *error) {
    uint64_t before = pages_allocated(b), reachable, exclusive;
    ramet_batch_item *items = ramet_alloc(row->branches, sizeof *items);
    if (!items) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %u branches", row->branches);
    ramet_status status = fork_all(source, forks, row->branches, error);
    uint64_t start = ramet_now_nanoseconds();
    if (status == RAMET_OK) status = decode(b, forks, items, row->branches, error);
    row->nanoseconds[rep] = ramet_now_nanoseconds() - start;
    free(items);
    if (status != RAMET_OK) return status;
    row->pages_allocated = pages_allocated(b) - before;
    RAMET_TRY(ramet_context_pages(forks[0], &reachable, &exclusive, error));
    row->pages_of_copies = row->branches * reachable;
    return RAMET_OK;
}

/* Both kinds of row work on forks, which must go whatever happened. */
static ramet_status time_with_forks(ramet_bench *b, ramet_bench_row *row, ramet_context *source, uint32_t rep,
                                    ramet_error *error) {
    bool is_fork = row->kind == RAMET_BENCH_FORK;
    size_t n = is_fork ? row->amount : row->branches;
    ramet_context **forks = ramet_alloc(n, sizeof *forks);
    if (!forks) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %zu forks", n);
    ramet_status status =
        is_fork ? time_forks(b, row, source, forks, rep, error) : time_branches(b, row, source, forks, rep, error);
    for (size_t i = 0; i < n; i++) ramet_drop(&forks[i]);
    free(forks);
    return status;
}

static ramet_status time_snapshot(ramet_bench *b, ramet_bench_row *row, ramet_context *source, uint32_t rep,
                                  ramet_error *error) {
    ramet_snapshot_info info;
    ramet_snapshot_options options = {.skip_sync = row->kind == RAMET_BENCH_SNAPSHOT};
    remove(b->scratch.file); /* or giving back the blocks of the file that is replaced would be half of the time */
    TIME(row, rep, ramet_snapshot_save(source, b->scratch.file, &options, &info, error));
    row->amount = info.file_bytes;
    row->limit_bytes = (double)info.file_bytes;
    return RAMET_OK;
}

static ramet_status time_restore(ramet_bench *b, ramet_bench_row *row, uint32_t rep, ramet_error *error) {
    ramet_snapshot_info info;
    ramet_context *restored = NULL;
    TIME(row, rep, ramet_snapshot_restore(b->s.engine, b->scratch.file, NULL, &restored, NULL, &info, error));
    row->amount = info.file_bytes;
    row->limit_bytes = (double)info.file_bytes;
    ramet_drop(&restored);
    return RAMET_OK;
}

/* Pages and logits, out to the page cache and back; asking for the logits reads all of it. */
static ramet_status time_spill(ramet_bench *b, ramet_bench_row *row, ramet_context *source, uint32_t rep,
                               ramet_error *error) {
    ramet_engine_stats before, after;
    const float *logits;
    ramet_engine_get_stats(b->s.engine, &before);
    if (row->kind == RAMET_BENCH_SPILL)
        TIME(row, rep, ramet_context_spill(source, error));
    else
        TIME(row, rep, ramet_context_logits(source, &logits, error));
    ramet_engine_get_stats(b->s.engine, &after);
    row->amount = after.spill_bytes - before.spill_bytes + after.read_back_bytes - before.read_back_bytes;
    row->limit_bytes = (double)row->amount;
    return RAMET_OK;
}

static ramet_status time_match(ramet_bench *b, ramet_bench_row *row, ramet_context *source, uint32_t rep,
                               ramet_error *error) {
    ramet_context *matched = NULL;
    size_t n_matched;
    RAMET_TRY(ramet_prefix_retain(source, NULL, error));
    TIME(row, rep, ramet_prefix_match(b->s.engine, NULL, b->tokens, b->o->bench_prompt, &matched, &n_matched, error));
    row->amount = n_matched;
    ramet_drop(&matched);
    ramet_prefix_clear(b->s.engine);
    return RAMET_OK;
}

static ramet_status time_row(ramet_bench *b, ramet_bench_row *row, ramet_context *source, uint32_t rep,
                             ramet_error *error) {
    switch (row->kind) {
    case RAMET_BENCH_LOAD: row->nanoseconds[rep] = b->ready_nanoseconds; return RAMET_OK;
    case RAMET_BENCH_PREFILL:
        TIME(row, rep, ramet_context_extend(source, b->tokens, b->o->bench_prompt, error));
        return RAMET_OK;
    case RAMET_BENCH_DECODE:
    case RAMET_BENCH_BRANCHES:
    case RAMET_BENCH_FORK: return time_with_forks(b, row, source, rep, error);
    case RAMET_BENCH_SNAPSHOT:
    case RAMET_BENCH_SYNCED: return time_snapshot(b, row, source, rep, error);
    case RAMET_BENCH_RESTORE: return time_restore(b, row, rep, error);
    case RAMET_BENCH_SPILL:
    case RAMET_BENCH_READ_BACK: return time_spill(b, row, source, rep, error);
    case RAMET_BENCH_MATCH: return time_match(b, row, source, rep, error);
    case RAMET_BENCH_KINDS: break;
    }
    return RAMET_OK;
}

static void look_at_memory(ramet_bench *b) {
    ramet_engine_stats stats;
    ramet_engine_get_stats(b->s.engine, &stats);
    b->memory.kv_bytes = stats.memory_bytes;
    ramet_footprint(&b->memory.resident_bytes, &b->memory.peak_bytes);
}

/* In the order of the rows: each may use what those before it left. */
static ramet_status time_all(ramet_bench *b, uint32_t rep, ramet_error *error) {
    ramet_context *source;
    RAMET_TRY(ramet_context_create(b->s.engine, &source, error));
    ramet_status status = RAMET_OK;
    for (size_t i = 0; i < b->n_rows && status == RAMET_OK; i++) {
        status = time_row(b, &b->rows[i], source, rep, error);
        if (rep == 0 && b->rows[i].kind == RAMET_BENCH_PREFILL) look_at_memory(b);
    }
    ramet_drop(&source);
    return status;
}

/* ------------------------------------------------------------ the whole ---- */

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void measure_memory(ramet_bench *b, ramet_bandwidth *bandwidth) {
    double read, copy;
    ramet_bandwidth_measure(bandwidth, &read, &copy);
    if (read > b->read_per_second) b->read_per_second = read;
    if (copy > b->copy_per_second) b->copy_per_second = copy;
}

/* The large buffers of the bandwidth come after the first repetition, which sees the process as it is without them. */
static ramet_status repeat(ramet_bench *b, ramet_bandwidth **bandwidth, ramet_error *error) {
    for (uint32_t rep = 0; rep < b->o->bench_reps; rep++) {
        ramet_progress(b->o, "repetition", rep + 1, b->o->bench_reps + UINT64_C(1));
        RAMET_TRY(time_all(b, rep, error));
        if (rep == 0) RAMET_TRY(ramet_bandwidth_create(b->s.engine_info.threads, bandwidth, error));
        measure_memory(b, *bandwidth);
    }
    ramet_progress(b->o, "repetition", 1, 1);
    for (size_t i = 0; i < b->n_rows; i++)
        qsort(b->rows[i].nanoseconds, b->o->bench_reps, sizeof(uint64_t), compare_u64);
    return RAMET_OK;
}

uint64_t ramet_bench_median(const ramet_bench *b, const ramet_bench_row *row) {
    return row->nanoseconds[b->o->bench_reps / 2];
}

static ramet_status add_row(ramet_bench *b, ramet_bench_kind kind, uint32_t branches, uint64_t amount,
                            ramet_error *error) {
    ramet_bench_row *row = &b->rows[b->n_rows];
    *row = (ramet_bench_row){.kind = kind, .branches = branches, .amount = amount};
    row->nanoseconds = ramet_alloc(b->o->bench_reps, sizeof *row->nanoseconds);
    if (!row->nanoseconds) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the times");
    b->n_rows++;
    return RAMET_OK;
}

static ramet_status add_branches(ramet_bench *b, ramet_error *error) {
    int32_t *list;
    size_t n;
    RAMET_TRY(ramet_input_tokens(b->o->bench_branches, strlen(b->o->bench_branches), "--branches", &list, &n, error));
    ramet_status status = RAMET_OK;
    if (n > RAMET_BENCH_LISTED)
        status = ramet_fail(error, RAMET_E_ARGUMENT, "--branches takes at most %d counts", RAMET_BENCH_LISTED);
    for (size_t i = 0; i < n && status == RAMET_OK; i++) {
        uint32_t branches = (uint32_t)list[i];
        if (branches < 1 || branches > 4096)
            status = ramet_fail(error, RAMET_E_ARGUMENT, "--branches takes counts from 1 to 4096, not %u", branches);
        else
            status = add_row(b, RAMET_BENCH_BRANCHES, branches, (uint64_t)branches * b->o->bench_generate, error);
    }
    free(list);
    return status;
}

static ramet_status add_rows(ramet_bench *b, ramet_error *error) {
    RAMET_TRY(add_row(b, RAMET_BENCH_LOAD, 0, 0, error));
    RAMET_TRY(add_row(b, RAMET_BENCH_PREFILL, 0, b->o->bench_prompt, error));
    RAMET_TRY(add_row(b, RAMET_BENCH_DECODE, 1, b->o->bench_generate, error));
    RAMET_TRY(add_branches(b, error));
    RAMET_TRY(add_row(b, RAMET_BENCH_FORK, 0, b->o->bench_forks, error));
    RAMET_TRY(add_row(b, RAMET_BENCH_SNAPSHOT, 0, 0, error));
    RAMET_TRY(add_row(b, RAMET_BENCH_SYNCED, 0, 0, error));
    RAMET_TRY(add_row(b, RAMET_BENCH_RESTORE, 0, 0, error));
    RAMET_TRY(add_row(b, RAMET_BENCH_SPILL, 0, 0, error));
    RAMET_TRY(add_row(b, RAMET_BENCH_READ_BACK, 0, 0, error));
    return add_row(b, RAMET_BENCH_MATCH, 0, 0, error);
}

static ramet_status open_session(ramet_bench *b, ramet_error *error) {
    uint64_t start = ramet_now_nanoseconds();
    ramet_options options = *b->o;
    if (!options.spill_directory) options.spill_directory = ramet_temporary_parent();
    RAMET_TRY(ramet_session_open(b->o, &b->s, error));
    RAMET_TRY(ramet_session_start(&b->s, &options, b->o->bench_prompt + b->o->bench_generate, error));
    b->ready_nanoseconds = ramet_now_nanoseconds() - start;
    for (size_t i = 0; i < b->n_rows; i++) {
        ramet_bench_row *row = &b->rows[i];
        if (row->kind == RAMET_BENCH_LOAD) row->limit_bytes = (double)(row->amount = b->s.info.file_bytes);
        if (row->branches) row->limit_bytes = decode_bytes(b, row->branches);
    }
    return RAMET_OK;
}

/* A fixed sequence that wanders over the vocabulary. */
static ramet_status make_tokens(ramet_bench *b, ramet_error *error) {
    size_t n = (size_t)b->o->bench_prompt + b->o->bench_generate;
    b->tokens = ramet_alloc(n, sizeof *b->tokens);
    if (!b->tokens) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the tokens of the bench");
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        b->tokens[i] = (int32_t)((state >> 8) % b->s.info.n_vocab);
    }
    return RAMET_OK;
}

static ramet_status run(ramet_bench *b, ramet_error *error) {
    ramet_bandwidth *bandwidth = NULL;
    if (b->o->json && b->o->output && strcmp(b->o->output, "json") != 0)
        return ramet_fail(error, RAMET_E_ARGUMENT, "give --json or -o %s, not both", b->o->output);
    RAMET_TRY(add_rows(b, error));
    RAMET_TRY(open_session(b, error));
    RAMET_TRY(make_tokens(b, error));
    RAMET_TRY(ramet_scratch_create(ramet_temporary_parent(), "bench.ramet", &b->scratch, error));
    ramet_status status = repeat(b, &bandwidth, error);
    ramet_bandwidth_destroy(&bandwidth);
    return status == RAMET_OK ? ramet_bench_print(b, error) : status;
}

ramet_status ramet_cmd_bench(const ramet_options *o, ramet_error *error) {
    ramet_bench b = {.o = o};
    ramet_status status = run(&b, error);
    ramet_scratch_remove(&b.scratch);
    ramet_session_close(&b.s);
    for (size_t i = 0; i < b.n_rows; i++) free(b.rows[i].nanoseconds);
    free(b.tokens);
    return status;
}
