/* bench.h - what `ramet bench` measures (cmd_bench.c) and how it is shown (bench_report.c). */
#ifndef RAMET_CLI_BENCH_H
#define RAMET_CLI_BENCH_H

#include "cli/session.h"

enum { RAMET_BENCH_BRANCHES = 8 };

typedef enum ramet_bench_row {
    RAMET_BENCH_PREFILL,
    RAMET_BENCH_DECODE,
    RAMET_BENCH_BATCH,
    RAMET_BENCH_FORK,
    RAMET_BENCH_SNAPSHOT,
    RAMET_BENCH_RESTORE,
    RAMET_BENCH_MATCH,
    RAMET_BENCH_ROWS,
} ramet_bench_row;

typedef struct ramet_bench {
    const ramet_options *o;
    ramet_session s;
    ramet_scratch scratch;
    int32_t *tokens;                         /* the prompt, then what is decoded */
    uint64_t *nanoseconds[RAMET_BENCH_ROWS]; /* [rep], sorted once all are there */
    double read_per_second, copy_per_second; /* best of the passes */
    uint64_t snapshot_bytes, reachable_pages, pages_allocated;
    size_t n_matched;
} ramet_bench;

uint64_t ramet_bench_median(const ramet_bench *b, ramet_bench_row row);
ramet_status ramet_bench_print(const ramet_bench *b, ramet_error *error);

#endif
