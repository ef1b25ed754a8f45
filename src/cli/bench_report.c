/* bench_report.c - the rows of `ramet bench` as a table, CSV or JSON, each beside the limit that it runs into. */
#define _GNU_SOURCE
#include "cli/bench.h"
#include "cli/json.h"
#include "cli/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name, *unit, *limit;
} kinds[RAMET_BENCH_KINDS] = {
    [RAMET_BENCH_LOAD] = {"load", "bytes", "copy"},
    [RAMET_BENCH_PREFILL] = {"prefill", "tokens", NULL},
    [RAMET_BENCH_DECODE] = {"decode", "tokens", "read"},
    [RAMET_BENCH_BRANCHES] = {"branches", "tokens", "read"},
    [RAMET_BENCH_FORK] = {"fork", "count", NULL},
    [RAMET_BENCH_SNAPSHOT] = {"snapshot", "bytes", "copy"},
    [RAMET_BENCH_SYNCED] = {"snapshot_synced", "bytes", NULL},
    [RAMET_BENCH_RESTORE] = {"restore", "bytes", "copy"},
    [RAMET_BENCH_SPILL] = {"spill", "bytes", "copy"},
    [RAMET_BENCH_READ_BACK] = {"read_back", "bytes", "copy"},
    [RAMET_BENCH_MATCH] = {"match", "tokens", NULL},
};

static bool is_unit(const ramet_bench_row *row, const char *unit) {
    return strcmp(kinds[row->kind].unit, unit) == 0;
}

static double rate_of(const ramet_bench *b, const ramet_bench_row *row) {
    return ramet_per_second((double)row->amount, ramet_bench_median(b, row));
}

/* Share of the memory's speed; NaN where memory is not the limit. */
static double share_of(const ramet_bench *b, const ramet_bench_row *row) {
    const char *limit = kinds[row->kind].limit;
    if (!limit) return NAN;
    double available = strcmp(limit, "read") == 0 ? b->read_per_second : b->copy_per_second;
    return ramet_per_second(row->limit_bytes, ramet_bench_median(b, row)) / available;
}

static const ramet_bench_row *first_of(const ramet_bench *b, ramet_bench_kind kind) {
    const ramet_bench_row *row = b->rows;
    while (row->kind != kind) row++; /* every kind that is asked for has a row */
    return row;
}

/* ---------------------------------------------------------------- JSON ---- */

static void write_row(ramet_json *j, const ramet_bench *b, const ramet_bench_row *row) {
    bool is_count = is_unit(row, "count"), is_branches = row->kind == RAMET_BENCH_BRANCHES;
    double share = share_of(b, row);
    ramet_json_object_begin(j, NULL);
    ramet_json_string(j, "name", kinds[row->kind].name);
    if (is_branches) ramet_json_u64(j, "count", row->branches);
    ramet_json_u64(j, kinds[row->kind].unit, row->amount);
    ramet_json_u64(j, "nanoseconds", ramet_bench_median(b, row));
    if (!is_count)
        ramet_json_double(j, is_unit(row, "bytes") ? "bytes_per_second" : "tokens_per_second", rate_of(b, row));
    if (is_count || is_branches) {
        ramet_json_u64(j, "pages_allocated", row->pages_allocated);
        ramet_json_u64(j, "pages_a_copy_would_need", row->pages_of_copies);
    }
    if (!isnan(share)) ramet_json_double(j, "share_of_limit", share);
    ramet_json_object_end(j);
}

static void write_memory(ramet_json *j, const ramet_bench *b) {
    ramet_json_object_begin(j, "memory");
    ramet_json_u64(j, "file_bytes", b->s.info.file_bytes);
    ramet_json_u64(j, "weights_bytes", b->s.info.weights_bytes);
    ramet_json_u64(j, "scratch_bytes", b->s.engine_info.scratch_bytes);
    ramet_json_u64(j, "vocab_bytes", b->s.info.vocab_bytes);
    ramet_json_u64(j, "kv_bytes", b->memory.kv_bytes);
    ramet_json_u64(j, "resident_bytes", b->memory.resident_bytes);
    ramet_json_u64(j, "peak_bytes", b->memory.peak_bytes);
    ramet_json_object_end(j);
}

/* `engine` is what the load row has beside the model: the numerics_id, threads and buffers. */
static void write_load(ramet_json *j, const ramet_bench *b) {
    const ramet_model_info *m = &b->s.info;
    ramet_json_object_begin(j, "load");
    ramet_json_u64(j, "model_nanoseconds", m->load_nanoseconds);
    ramet_json_u64(j, "parse_nanoseconds", m->parse_nanoseconds);
    ramet_json_u64(j, "repack_nanoseconds", m->repack_nanoseconds);
    ramet_json_u64(j, "digest_nanoseconds", m->digest_nanoseconds);
    ramet_json_bool(j, "digest_cached", m->digest_cached);
    ramet_json_u64(j, "vocab_nanoseconds", m->vocab_nanoseconds);
    ramet_json_u64(j, "engine_nanoseconds", b->ready_nanoseconds - m->load_nanoseconds);
    ramet_json_object_end(j);
}

static void print_json(const ramet_bench *b) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_string(&j, "version", ramet_version());
    ramet_json_string(&j, "build", ramet_build());
    ramet_json_string(&j, "model", b->s.info.name);
    ramet_json_string(&j, "arch", b->s.info.arch);
    ramet_json_u64(&j, "threads", b->s.engine_info.threads);
    ramet_json_string(&j, "kernels", b->s.engine_info.kernels);
    ramet_json_string(&j, "kv", ramet_kv_name(b->s.engine_info.kv));
    ramet_json_string(&j, "numerics_id", b->s.engine_info.numerics_id);
    ramet_json_bool(&j, "encrypted", b->o->context_key != NULL);
    ramet_json_double(&j, "read_bytes_per_second", b->read_per_second);
    ramet_json_double(&j, "copy_bytes_per_second", b->copy_per_second);
    ramet_json_u64(&j, "weights_bytes", b->s.info.weights_bytes);
    ramet_json_u64(&j, "kv_bytes_per_token", b->s.engine_info.kv_bytes_per_token);
    ramet_json_u64(&j, "page_bytes", b->s.engine_info.page_bytes);
    write_memory(&j, b);
    write_load(&j, b);
    ramet_json_u64(&j, "reps", b->o->bench_reps);
    ramet_json_array_begin(&j, "rows");
    for (size_t i = 0; i < b->n_rows; i++) write_row(&j, b, &b->rows[i]);
    ramet_json_array_end(&j);
    ramet_json_object_end(&j);
}

/* --------------------------------------------------------------- table ---- */

typedef struct cells {
    char amount[64], rate[64], share[64], note[96];
} cells;

static void fill_amount(const ramet_bench *b, const ramet_bench_row *row, cells *c) {
    double rate = rate_of(b, row);
    if (is_unit(row, "bytes")) {
        snprintf(c->amount, sizeof c->amount, "%s", ramet_label_bytes(row->amount).text);
        snprintf(c->rate, sizeof c->rate, "%.2f GB/s", rate / 1e9);
    } else if (is_unit(row, "count")) {
        snprintf(c->amount, sizeof c->amount, "%" PRIu64 " forks", row->amount);
        snprintf(c->rate, sizeof c->rate, "%s each",
                 ramet_label_duration(ramet_bench_median(b, row) / row->amount).text);
    } else {
        bool is_large = rate >= 1e6;
        snprintf(c->amount, sizeof c->amount, "%" PRIu64 " tokens", row->amount);
        snprintf(c->rate, sizeof c->rate, "%.1f %stok/s", is_large ? rate / 1e6 : rate, is_large ? "M" : "");
    }
}

static void fill_note(const ramet_bench *b, const ramet_bench_row *row, cells *c) {
    if (row->kind == RAMET_BENCH_FORK)
        snprintf(c->note, sizeof c->note, "%" PRIu64 " pages allocated, copies need %" PRIu64, row->pages_allocated,
                 row->pages_of_copies);
    if (row->kind == RAMET_BENCH_BRANCHES)
        snprintf(c->note, sizeof c->note,
                 "%" PRIu32 " at a time, %.1f times as fast as one; pages: %" PRIu64 ", copies need %" PRIu64,
                 row->branches, rate_of(b, row) / rate_of(b, first_of(b, RAMET_BENCH_DECODE)), row->pages_allocated,
                 row->pages_of_copies);
    if (row->kind == RAMET_BENCH_RESTORE)
        snprintf(c->note, sizeof c->note, "%.1f times as fast as prefill",
                 (double)ramet_bench_median(b, first_of(b, RAMET_BENCH_PREFILL)) / (double)ramet_bench_median(b, row));
}

static cells cells_of(const ramet_bench *b, const ramet_bench_row *row) {
    cells c = {"", "", "", ""};
    double share = share_of(b, row);
    fill_amount(b, row, &c);
    fill_note(b, row, &c);
    if (!isnan(share)) snprintf(c.share, sizeof c.share, "%.0f %% of %s", 100 * share, kinds[row->kind].limit);
    return c;
}

static ramet_status print_table(const ramet_bench *b, ramet_table_form form, ramet_error *error) {
    ramet_table table = {0};
    ramet_table_add(&table, "row", ">amount", ">time", ">rate", ">limit", "note", NULL);
    for (size_t i = 0; i < b->n_rows; i++) {
        const ramet_bench_row *row = &b->rows[i];
        cells c = cells_of(b, row);
        ramet_table_add(&table, kinds[row->kind].name, c.amount, ramet_label_duration(ramet_bench_median(b, row)).text,
                        c.rate, c.share, c.note, NULL);
    }
    ramet_status status = ramet_table_print(&table, form, stdout, error);
    ramet_table_free(&table);
    return status;
}

/* CSV is for programs: raw numbers, as in JSON. */
static void print_csv(const ramet_bench *b) {
    puts("name,branches,amount,unit,nanoseconds,share_of_limit");
    for (size_t i = 0; i < b->n_rows; i++) {
        const ramet_bench_row *row = &b->rows[i];
        double share = share_of(b, row);
        printf("%s,", kinds[row->kind].name);
        if (row->branches) printf("%" PRIu32, row->branches);
        printf(",%" PRIu64 ",%s,%" PRIu64 ",", row->amount, kinds[row->kind].unit, ramet_bench_median(b, row));
        if (!isnan(share)) printf("%.6g", share);
        putchar('\n');
    }
}

/* What the process holds besides keys and values, in terms of the model's file. */
static void print_memory(const ramet_bench *b) {
    const ramet_bench_memory *m = &b->memory;
    if (m->resident_bytes < m->kv_bytes) return; /* this system does not say */
    printf("process: %s = %.2f x file + %s of keys and values; peak %s\n", ramet_label_bytes(m->resident_bytes).text,
           (double)(m->resident_bytes - m->kv_bytes) / (double)b->s.info.file_bytes,
           ramet_label_bytes(m->kv_bytes).text, ramet_label_bytes(m->peak_bytes).text);
}

static void print_load(const ramet_bench *b, const char *paragraph) {
    const ramet_model_info *m = &b->s.info;
    printf("load: file read %s; beside each other repack %s (%.2f GB/s), SHA-256 %s%s, tokenizer %s; engine %s\n%s",
           ramet_label_duration(m->parse_nanoseconds).text, ramet_label_duration(m->repack_nanoseconds).text,
           ramet_per_second((double)m->weights_bytes, m->repack_nanoseconds) / 1e9,
           ramet_label_duration(m->digest_nanoseconds).text, m->digest_cached ? " (remembered)" : "",
           ramet_label_duration(m->vocab_nanoseconds).text,
           ramet_label_duration(b->ready_nanoseconds - m->load_nanoseconds).text, paragraph);
    printf("holds: weights %s, scratch %s, tokenizer %s\n%s", ramet_label_bytes(m->weights_bytes).text,
           ramet_label_bytes(b->s.engine_info.scratch_bytes).text, ramet_label_bytes(m->vocab_bytes).text, paragraph);
}

static void print_head(const ramet_bench *b, const char *paragraph) {
    static const char dot[] = " \xC2\xB7 ";
    const ramet_engine_info *e = &b->s.engine_info;
    printf("ramet %s%s%s%s%s%s%" PRIu32 " threads%s%s%s%s%s\n%s", ramet_version(), dot, b->s.info.name, dot,
           b->s.info.arch, dot, e->threads, dot, e->kernels, dot, ramet_kv_name(e->kv),
           b->o->context_key ? ", snapshots encrypted" : "", paragraph);
    printf("memory: reads %.1f GB/s, copies %.1f GB/s; medians of %" PRIu32 "\n%s", b->read_per_second / 1e9,
           b->copy_per_second / 1e9, b->o->bench_reps, paragraph);
    print_load(b, paragraph);
    print_memory(b);
    putchar('\n');
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
    print_head(b, is_markdown ? "\n" : "");
    return print_table(b, is_markdown ? RAMET_TABLE_MARKDOWN : RAMET_TABLE_TEXT, error);
}
