/* verify.h - what the files of `verify` share: the subject under test, with the rows of logits that a cold prefill in
 * one piece gives, and the comparison against them. */
#ifndef RAMET_ENGINE_VERIFY_H
#define RAMET_ENGINE_VERIFY_H

#include "base/temporary.h"
#include "engine/internal.h"

typedef struct ramet_subject {
    const ramet_model *model;
    ramet_engine_options options; /* as asked for, KV f32 */
    ramet_engine *engine;
    int32_t *tokens;
    uint32_t n, n_vocab;
    float *rows; /* [n][n_vocab]: the reference */
    uint64_t rows_bytes;
    const char *directory; /* where files go */
    ramet_scratch scratch; /* for snapshots */
    void (*on_row)(void *user, const ramet_verify_row *row);
    void *user;
    uint32_t failed;
} ramet_subject;

void ramet_verify_report(ramet_subject *s, const char *check, ramet_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* How far rows are from the reference: 0 only when all bits are equal. */
typedef struct ramet_difference {
    const ramet_subject *subject;
    double largest; /* infinity when a NaN is involved */
    uint64_t n_rows, n_unequal;
} ramet_difference;

void ramet_difference_add(ramet_difference *d, uint32_t pos, const float *row);
/* A ramet_rows_fn with a ramet_difference as user. */
void ramet_difference_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t n_vocab);
/* Runs tokens [length, to) of the subject on a context, `step` at a time, and compares every row. */
ramet_status ramet_verify_run(ramet_difference *d, ramet_context *context, uint32_t to, uint32_t step,
                              ramet_error *error);
/* The logits a context has now, against the reference row of its last token. */
ramet_status ramet_verify_compare_last(ramet_difference *d, ramet_context *context, ramet_error *error);
/* A row that passes only without any difference. */
void ramet_verify_report_difference(ramet_subject *s, const char *check, const ramet_difference *d, const char *how);

/* Checks with their own files. Each reports its rows. */
ramet_status ramet_verify_spill(ramet_subject *s, ramet_error *error);
ramet_status ramet_verify_kv(ramet_subject *s, ramet_error *error);

#endif
