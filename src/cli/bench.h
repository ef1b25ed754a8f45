/* bench.h - what `ramet bench` measures (cmd_bench.c) and how it is shown (bench_report.c). */
#ifndef RAMET_CLI_BENCH_H
#define RAMET_CLI_BENCH_H

#include "cli/session.h"

typedef enum ramet_bench_kind {
    RAMET_BENCH_LOAD,
    RAMET_BENCH_PREFILL,
    RAMET_BENCH_DECODE,
    RAMET_BENCH_BRANCHES,
    RAMET_BENCH_FORK,
    RAMET_BENCH_SNAPSHOT, /* into the page cache */
    RAMET_BENCH_SYNCED,   /* until the disk has it */
    RAMET_BENCH_RESTORE,
    RAMET_BENCH_SPILL,
    RAMET_BENCH_READ_BACK,
    RAMET_BENCH_MATCH,
    RAMET_BENCH_KINDS,
} ramet_bench_kind;

enum { RAMET_BENCH_LISTED = 16, RAMET_BENCH_ROWS = RAMET_BENCH_KINDS + RAMET_BENCH_LISTED };

typedef struct ramet_bench_row {
    ramet_bench_kind kind;
    uint32_t branches;                         /* contexts that decode at once */
    uint64_t amount;                           /* tokens, forks or bytes, as the kind has it */
    uint64_t *nanoseconds;                     /* [rep], sorted once all are there */
    double limit_bytes;                        /* what memory must read or copy meanwhile; 0: memory is not its limit */
    uint64_t pages_allocated, pages_of_copies; /* forks and branches: what they took; what copies would need */
} ramet_bench_row;

/* The process behind the first prompt, before anything else is measured. */
typedef struct ramet_bench_memory {
    uint64_t resident_bytes, peak_bytes; /* 0: this system does not say */
    uint64_t kv_bytes;                   /* of contexts */
} ramet_bench_memory;

typedef struct ramet_bench {
    const ramet_options *o;
    ramet_session s;
    ramet_scratch scratch;
    int32_t *tokens; /* the prompt, then what is decoded */
    ramet_bench_row rows[RAMET_BENCH_ROWS];
    size_t n_rows;
    uint64_t ready_nanoseconds; /* model and engine opened */
    ramet_bench_memory memory;
    double read_per_second, copy_per_second; /* best of the passes */
} ramet_bench;

uint64_t ramet_bench_median(const ramet_bench *b, const ramet_bench_row *row);
ramet_status ramet_bench_print(const ramet_bench *b, ramet_error *error);

#endif
