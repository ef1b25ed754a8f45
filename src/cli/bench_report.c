/* bench_report.c - the rows of `ramet bench` as a table or as JSON, each beside the limit that it runs into. */
#define _GNU_SOURCE
#include "cli/bench.h"
#include "cli/json.h"
#include "cli/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const row_names[RAMET_BENCH_ROWS] = {"prefill",  "decode",  "branches", "fork",
                                                        "snapshot", "restore", "match"};

/* What a row counts: tokens, forks, or bytes of the snapshot. */
static uint64_t amount_of(const ramet_bench *b, ramet_bench_row row) {
    switch (row) {
    case RAMET_BENCH_PREFILL: return b->o->bench_prompt;
    case RAMET_BENCH_DECODE: return b->o->bench_generate;
    case RAMET_BENCH_BATCH: return (uint64_t)b->o->bench_generate * RAMET_BENCH_BRANCHES;
    case RAMET_BENCH_FORK: return b->o->bench_forks;
    case RAMET_BENCH_MATCH: return b->n_matched;
    default: return b->snapshot_bytes;
    }
}

/* Share of the memory's speed. Decoding must read the weights once a step, and each branch its own keys and values;
 * keys and values grow while it runs, so the middle of the run counts. NaN: no such limit. */
static double share_of(const ramet_bench *b, ramet_bench_row row) {
    double branches = row == RAMET_BENCH_BATCH ? RAMET_BENCH_BRANCHES : 1;
    double length = b->o->bench_prompt + b->o->bench_generate / 2.0;
    double step_bytes =
        (double)b->s.info.weights_bytes + branches * length * (double)b->s.engine_info.kv_bytes_per_token;
    uint64_t nanoseconds = ramet_bench_median(b, row);
    if (row == RAMET_BENCH_DECODE || row == RAMET_BENCH_BATCH)
        return ramet_per_second(step_bytes * b->o->bench_generate, nanoseconds) / b->read_per_second;
    if (row == RAMET_BENCH_SNAPSHOT || row == RAMET_BENCH_RESTORE)
        return ramet_per_second((double)b->snapshot_bytes, nanoseconds) / b->copy_per_second;
    return NAN;
}

/* ---------------------------------------------------------------- JSON ---- */

static void write_row(ramet_json *j, const ramet_bench *b, ramet_bench_row row) {
    uint64_t amount = amount_of(b, row), nanoseconds = ramet_bench_median(b, row);
    bool is_bytes = row == RAMET_BENCH_SNAPSHOT || row == RAMET_BENCH_RESTORE;
    ramet_json_object_begin(j, NULL);
    ramet_json_string(j, "name", row_names[row]);
    if (row == RAMET_BENCH_BATCH) ramet_json_u64(j, "count", RAMET_BENCH_BRANCHES);
    ramet_json_u64(j, is_bytes ? "bytes" : row == RAMET_BENCH_FORK ? "count" : "tokens", amount);
    ramet_json_u64(j, "nanoseconds", nanoseconds);
    if (is_bytes)
        ramet_json_double(j, "bytes_per_second", ramet_per_second((double)amount, nanoseconds));
    else if (row != RAMET_BENCH_FORK)
        ramet_json_double(j, "tokens_per_second", ramet_per_second((double)amount, nanoseconds));
    if (row == RAMET_BENCH_FORK) {
        ramet_json_u64(j, "pages_allocated", b->pages_allocated);
        ramet_json_u64(j, "pages_a_copy_would_need", b->o->bench_forks * b->reachable_pages);
    }
    double share = share_of(b, row);
    if (!isnan(share)) ramet_json_double(j, "share_of_limit", share);
    ramet_json_object_end(j);
}

static void print_json(const ramet_bench *b) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_string(&j, "version", ramet_version());
    ramet_json_string(&j, "model", b->s.info.name);
    ramet_json_string(&j, "arch", b->s.info.arch);
    ramet_json_u64(&j, "threads", b->s.engine_info.threads);
    ramet_json_string(&j, "kernels", b->s.engine_info.kernels);
    ramet_json_string(&j, "kv", ramet_kv_name(b->s.engine_info.kv));
    ramet_json_string(&j, "numerics_id", b->s.engine_info.numerics_id);
    ramet_json_double(&j, "read_bytes_per_second", b->read_per_second);
    ramet_json_double(&j, "copy_bytes_per_second", b->copy_per_second);
    ramet_json_u64(&j, "weights_bytes", b->s.info.weights_bytes);
    ramet_json_u64(&j, "kv_bytes_per_token", b->s.engine_info.kv_bytes_per_token);
    ramet_json_u64(&j, "reps", b->o->bench_reps);
    ramet_json_array_begin(&j, "rows");
    for (int row = 0; row < RAMET_BENCH_ROWS; row++) write_row(&j, b, (ramet_bench_row)row);
    ramet_json_array_end(&j);
    ramet_json_object_end(&j);
}

/* --------------------------------------------------------------- table ---- */

typedef struct cells {
    char amount[64], rate[64], share[64], note[96];
} cells;

static void fill_cells(const ramet_bench *b, ramet_bench_row row, cells *c) {
    uint64_t amount = amount_of(b, row), nanoseconds = ramet_bench_median(b, row);
    double share = share_of(b, row);
    bool is_bytes = row == RAMET_BENCH_SNAPSHOT || row == RAMET_BENCH_RESTORE;
    *c = (cells){"", "", "", ""};
    if (is_bytes) {
        snprintf(c->amount, sizeof c->amount, "%s", ramet_label_bytes(amount).text);
        snprintf(c->rate, sizeof c->rate, "%.2f GB/s", ramet_per_second((double)amount, nanoseconds) / 1e9);
    } else if (row == RAMET_BENCH_FORK) {
        snprintf(c->amount, sizeof c->amount, "%" PRIu64 " forks", amount);
        snprintf(c->rate, sizeof c->rate, "%s each", ramet_label_duration(nanoseconds / amount).text);
        snprintf(c->note, sizeof c->note, "%" PRIu64 " pages allocated, copies need %" PRIu64, b->pages_allocated,
                 b->o->bench_forks * b->reachable_pages);
    } else {
        snprintf(c->amount, sizeof c->amount, "%" PRIu64 " tokens", amount);
        double rate = ramet_per_second((double)amount, nanoseconds);
        bool is_large = rate >= 1e6;
        snprintf(c->rate, sizeof c->rate, "%.1f %stok/s", is_large ? rate / 1e6 : rate, is_large ? "M" : "");
    }
    if (row == RAMET_BENCH_BATCH) snprintf(c->note, sizeof c->note, "%d at a time", RAMET_BENCH_BRANCHES);
    if (row == RAMET_BENCH_RESTORE)
        snprintf(c->note, sizeof c->note, "%.1f times as fast as prefill",
                 (double)ramet_bench_median(b, RAMET_BENCH_PREFILL) / (double)nanoseconds);
    if (!isnan(share)) snprintf(c->share, sizeof c->share, "%.0f %% of %s", 100 * share, is_bytes ? "copy" : "read");
}

static ramet_status print_table(const ramet_bench *b, ramet_table_form form, ramet_error *error) {
    ramet_table table = {0};
    ramet_table_add(&table, "row", ">amount", ">time", ">rate", ">limit", "note", NULL);
    for (int row = 0; row < RAMET_BENCH_ROWS; row++) {
        cells c;
        fill_cells(b, (ramet_bench_row)row, &c);
        ramet_table_add(&table, row_names[row], c.amount,
                        ramet_label_duration(ramet_bench_median(b, (ramet_bench_row)row)).text, c.rate, c.share, c.note,
                        NULL);
    }
    ramet_status status = ramet_table_print(&table, form, stdout, error);
    ramet_table_free(&table);
    return status;
}

/* CSV is for programs: raw numbers, as in JSON. */
static void print_csv(const ramet_bench *b) {
    puts("name,amount,unit,nanoseconds,share_of_limit");
    for (int i = 0; i < RAMET_BENCH_ROWS; i++) {
        ramet_bench_row row = (ramet_bench_row)i;
        bool is_bytes = row == RAMET_BENCH_SNAPSHOT || row == RAMET_BENCH_RESTORE;
        double share = share_of(b, row);
        printf("%s,%" PRIu64 ",%s,%" PRIu64 ",", row_names[row], amount_of(b, row),
               is_bytes                  ? "bytes"
               : row == RAMET_BENCH_FORK ? "forks"
                                         : "tokens",
               ramet_bench_median(b, row));
        if (!isnan(share)) printf("%.6g", share);
        putchar('\n');
    }
}

static void print_head(const ramet_bench *b, bool is_markdown) {
    static const char dot[] = " \xC2\xB7 ";
    const ramet_engine_info *e = &b->s.engine_info;
    printf("ramet %s%s%s%s%s%s%" PRIu32 " threads%s%s%s%s\n", ramet_version(), dot, b->s.info.name, dot, b->s.info.arch,
           dot, e->threads, dot, e->kernels, dot, ramet_kv_name(e->kv));
    printf("%smemory: reads %.1f GB/s, copies %.1f GB/s; medians of %" PRIu32 "\n\n", is_markdown ? "\n" : "",
           b->read_per_second / 1e9, b->copy_per_second / 1e9, b->o->bench_reps);
}

ramet_status ramet_bench_print(const ramet_bench *b, ramet_error *error) {
    const char *form = b->o->output ? b->o->output : "text";
    if (b->o->json || strcmp(form, "json") == 0) {
        print_json(b);
        return RAMET_OK;
    }
    if (strcmp(form, "csv") == 0) {
        print_csv(b);
        return RAMET_OK;
    }
    bool is_markdown = strcmp(form, "md") == 0;
    print_head(b, is_markdown);
    return print_table(b, is_markdown ? RAMET_TABLE_MARKDOWN : RAMET_TABLE_TEXT, error);
}
