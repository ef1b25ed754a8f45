/* verify.c - the checks that a user can run on their own model and machine. The reference is one cold prefill in one
 * piece; every exact check takes another way to the same tokens, always with single-token steps at its end, and
 * compares all rows of logits bit for bit. Owns the list of checks. */
#define _GNU_SOURCE
#include "engine/verify.h"
#include "base/memory.h"
#include "engine/numerics_id.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUBJECT_TOKENS = 160, TAIL = 4, SLOW_TOKENS = 24 };

static const char text[] =
    "A strawberry plant sends out runners. Where a runner touches the ground it roots, and a new plant stands there "
    "that is the old one over again: same leaves, same fruit, free to grow somewhere else. Gardeners cut the runner "
    "and the two live apart. What was learnt before the cut belongs to both; what comes after belongs to one. In the "
    "same way a reader may stop at page 117, follow two different endings, and come back to the very same page. "
    "Nothing about the page has changed: not a word, not a comma. That is the promise which is checked here, with "
    "numbers such as 3.14159 and 2,048, with odd marks (like these) and with \xc3\xa9t\xc3\xa9, "
    "\xe6\x97\xa5\xe6\x9c\xac and \xf0\x9f\x8c\xb1 mixed in.\n\n"
    "for (int i = 0; i < 64; i++) total += page[i];\n";

/* ---- reporting and comparing ---- */

void ramet_verify_report(ramet_subject *s, const char *check, ramet_verdict verdict, const char *format, ...) {
    ramet_verify_row row = {.check = check, .verdict = verdict};
    va_list args;
    va_start(args, format);
    vsnprintf(row.detail, sizeof row.detail, format, args);
    va_end(args);
    s->failed += verdict == RAMET_FAIL;
    s->on_row(s->user, &row);
}

void ramet_difference_add(ramet_difference *d, uint32_t pos, const float *row) {
    uint32_t n = d->subject->n_vocab;
    const float *reference = d->subject->rows + (size_t)pos * n;
    d->n_rows++;
    if (memcmp(row, reference, n * sizeof *row) == 0) return;
    d->n_unequal++;
    double largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        double difference = fabs((double)row[i] - (double)reference[i]);
        if (!(difference <= largest)) largest = difference == difference ? difference : INFINITY;
    }
    if (largest == 0) largest = 0x1p-149; /* +0 against -0: still not the same bits */
    if (largest > d->largest) d->largest = largest;
}

void ramet_difference_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t n_vocab) {
    for (uint32_t i = 0; i < n_rows; i++) ramet_difference_add(user, first_pos + i, rows + (size_t)i * n_vocab);
}

ramet_status ramet_verify_run(ramet_difference *d, ramet_context *context, uint32_t to, uint32_t step,
                              ramet_error *error) {
    for (uint32_t at = ramet_context_length(context); at < to;) {
        uint32_t take = to - at < step ? to - at : step;
        RAMET_TRY(
            ramet_context_extend_rows(context, d->subject->tokens + at, take, at, ramet_difference_rows, d, error));
        at += take;
    }
    return RAMET_OK;
}

void ramet_verify_report_difference(ramet_subject *s, const char *check, const ramet_difference *d, const char *how) {
    if (d->n_unequal == 0)
        ramet_verify_report(s, check, RAMET_PASS, "difference 0.00e+00, %llu rows, %s", (unsigned long long)d->n_rows,
                            how);
    else
        ramet_verify_report(s, check, RAMET_FAIL, "difference %.2e, %llu of %llu rows, %s", d->largest,
                            (unsigned long long)d->n_unequal, (unsigned long long)d->n_rows, how);
}

/* Prefill of all but the tail in one piece, then the tail token by token, on a fresh context. */
static ramet_status run_with_tail(ramet_difference *d, ramet_engine *engine, uint32_t to, ramet_error *error) {
    ramet_context *context = NULL;
    RAMET_TRY(ramet_context_create(engine, &context, error));
    ramet_status status = ramet_verify_run(d, context, to - TAIL, to, error);
    if (status == RAMET_OK) status = ramet_verify_run(d, context, to, 1, error);
    ramet_context_close(&context, NULL);
    return status;
}

/* The same on an engine of its own. */
static ramet_status run_other_engine(ramet_difference *d, const ramet_engine_options *options, uint32_t to,
                                     ramet_error *error) {
    ramet_engine *engine = NULL;
    RAMET_TRY(ramet_engine_create(d->subject->model, options, &engine, error));
    ramet_status status = run_with_tail(d, engine, to, error);
    ramet_engine_destroy(&engine);
    return status;
}

/* ---- the checks ---- */

static ramet_status check_prefill_is_decode(ramet_subject *s, ramet_error *error) {
    static const uint32_t chunks[] = {1, 7, 64, 65};
    ramet_difference d = {.subject = s};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        ramet_context *context = NULL;
        RAMET_TRY(ramet_context_create(s->engine, &context, error));
        ramet_status status = ramet_verify_run(&d, context, s->n, chunks[i], error);
        ramet_context_close(&context, NULL);
        RAMET_TRY(status);
    }
    ramet_verify_report_difference(s, "prefill == decode", &d, "chunks of 1, 7, 64, 65");
    return RAMET_OK;
}

/* `depth` forks of forks at position k, each first led astray by other tokens and then dropped; the last one goes on as
 * it should. */
static ramet_status fork_at(ramet_difference *d, uint32_t k, uint32_t depth, ramet_error *error) {
    const ramet_subject *s = d->subject;
    ramet_context *context = NULL;
    RAMET_TRY(ramet_context_create(s->engine, &context, error));
    ramet_status status = ramet_verify_run(d, context, k, s->n, error);
    for (uint32_t i = 0; i < depth && status == RAMET_OK; i++) {
        ramet_context *astray = NULL, *child = NULL;
        status = ramet_context_fork(context, &astray, error);
        if (status == RAMET_OK) status = ramet_context_extend(astray, s->tokens + i, 2, error);
        if (status == RAMET_OK) status = ramet_context_fork(context, &child, error);
        uint32_t next = k + i + 1 < s->n ? k + i + 1 : s->n;
        if (status == RAMET_OK) status = ramet_verify_run(d, child, next, 1, error);
        ramet_context_close(&astray, NULL);
        ramet_context_close(&context, NULL);
        context = child;
    }
    uint32_t to = k + depth + TAIL < s->n ? k + depth + TAIL : s->n;
    if (status == RAMET_OK) status = ramet_verify_run(d, context, to, 1, error);
    ramet_context_close(&context, NULL);
    return status;
}

static ramet_status check_fork(ramet_subject *s, ramet_error *error) {
    ramet_difference d = {.subject = s};
    RAMET_TRY(fork_at(&d, 63, 1, error));
    RAMET_TRY(fork_at(&d, 64, 1, error));
    RAMET_TRY(fork_at(&d, 65, 1, error));
    RAMET_TRY(fork_at(&d, 60, 12, error));
    ramet_verify_report_difference(s, "fork is exact", &d, "at 63, 64, 65 and 12 deep");
    return RAMET_OK;
}

static ramet_status check_truncate(ramet_subject *s, ramet_error *error) {
    static const uint32_t at[] = {129, 65, 64, 63, 1}; /* ever shorter */
    ramet_difference d = {.subject = s};
    ramet_context *context = NULL;
    RAMET_TRY(ramet_context_create(s->engine, &context, error));
    ramet_status status = ramet_verify_run(&d, context, s->n, s->n, error);
    for (size_t i = 0; i < sizeof at / sizeof at[0] && status == RAMET_OK; i++) {
        status = ramet_context_truncate(context, at[i], error);
        if (status == RAMET_OK) status = ramet_verify_run(&d, context, at[i] + TAIL, 1, error);
    }
    ramet_context_close(&context, NULL);
    RAMET_TRY(status);
    ramet_verify_report_difference(s, "truncate then extend", &d, "at 129, 65, 64, 63, 1");
    return RAMET_OK;
}

ramet_status ramet_verify_compare_last(ramet_difference *d, ramet_context *context, ramet_error *error) {
    const float *logits = NULL;
    RAMET_TRY(ramet_context_logits(context, &logits, error));
    ramet_difference_add(d, ramet_context_length(context) - 1, logits);
    return RAMET_OK;
}

static ramet_status snapshot_at(ramet_difference *d, uint32_t k, ramet_error *error) {
    const ramet_subject *s = d->subject;
    const char *path = s->scratch.file;
    ramet_context *context = NULL;
    RAMET_TRY(ramet_context_create(s->engine, &context, error));
    ramet_status status = ramet_verify_run(d, context, k, s->n, error);
    if (status == RAMET_OK) status = ramet_snapshot_save(context, path, NULL, NULL, error);
    ramet_context_close(&context, NULL);
    if (status == RAMET_OK) status = ramet_snapshot_restore(s->engine, path, NULL, &context, NULL, NULL, error);
    unlink(path);
    if (status == RAMET_OK) status = ramet_verify_compare_last(d, context, error);
    if (status == RAMET_OK) status = ramet_verify_run(d, context, k + TAIL < s->n ? k + TAIL : s->n, 1, error);
    ramet_context_close(&context, NULL);
    return status;
}

static ramet_status check_snapshot(ramet_subject *s, ramet_error *error) {
    ramet_difference d = {.subject = s};
    const uint32_t at[] = {1, 63, 64, 65, s->n - 1};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) RAMET_TRY(snapshot_at(&d, at[i], error));
    ramet_verify_report_difference(s, "snapshot resumes", &d, "at 1, 63, 64, 65 and the last token");
    return RAMET_OK;
}

static ramet_status check_page_size(ramet_subject *s, ramet_error *error) {
    static const uint32_t sizes[] = {16, 64, 256};
    ramet_difference d = {.subject = s};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ramet_engine_options options = s->options;
        options.page_tokens = sizes[i];
        RAMET_TRY(run_other_engine(&d, &options, s->n, error));
    }
    ramet_verify_report_difference(s, "page size changes nothing", &d, "pages of 16, 64, 256");
    return RAMET_OK;
}

static ramet_status check_threads(ramet_subject *s, ramet_error *error) {
    static const uint32_t counts[] = {1, 2, 4};
    ramet_difference d = {.subject = s};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        ramet_engine_options options = s->options;
        options.threads = counts[i];
        RAMET_TRY(run_other_engine(&d, &options, s->n, error));
    }
    ramet_verify_report_difference(s, "thread-count invariant", &d, "1, 2, 4 threads");
    return RAMET_OK;
}

/* Three contexts at different positions and a fork of one, which shares its pages, decode as one batch. */
static ramet_status check_batch(ramet_subject *s, ramet_error *error) {
    enum { N = 4, FORKED = 1, STEPS = 8 };
    ramet_difference d = {.subject = s};
    ramet_context *contexts[N] = {0};
    const uint32_t starts[N] = {5, 126, 31};
    ramet_status status = RAMET_OK;
    for (int i = 0; i < N - 1 && status == RAMET_OK; i++) {
        status = ramet_context_create(s->engine, &contexts[i], error);
        if (status == RAMET_OK) status = ramet_context_extend(contexts[i], s->tokens, starts[i], error);
    }
    if (status == RAMET_OK) status = ramet_context_fork(contexts[FORKED], &contexts[N - 1], error);
    for (uint32_t step = 0; step < STEPS && status == RAMET_OK; step++) {
        ramet_batch_item items[N];
        for (uint32_t i = 0; i < N; i++) /* neighbours bring one token or several */
            items[i] = (ramet_batch_item){contexts[i], s->tokens + ramet_context_length(contexts[i]),
                                          i == 2 ? 1 + step % 3 : 1};
        status = ramet_batch_extend(items, N, error);
        for (int i = 0; i < N && status == RAMET_OK; i++) status = ramet_verify_compare_last(&d, contexts[i], error);
    }
    /* alone again, from where the batch left it */
    if (status == RAMET_OK) status = ramet_verify_run(&d, contexts[1], starts[1] + STEPS + TAIL, 1, error);
    for (int i = 0; i < N; i++) ramet_context_close(&contexts[i], NULL);
    RAMET_TRY(status);
    ramet_verify_report_difference(s, "batch neighbours change nothing", &d, "3 contexts and a fork as one batch");
    return RAMET_OK;
}

static ramet_status check_kernels(ramet_subject *s, ramet_error *error) {
    ramet_difference d = {.subject = s};
    char how[64] = "";
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    for (uint32_t i = 0; i < n; i++) {
        ramet_engine_options options = s->options;
        options.kernels = names[i];
        RAMET_TRY(run_other_engine(&d, &options, SLOW_TOKENS, error));
        snprintf(how + strlen(how), sizeof how - strlen(how), "%s%s", i ? ", " : "", names[i]);
    }
    ramet_verify_report_difference(s, "kernels agree", &d, how);
    return RAMET_OK;
}

static ramet_status check_numerics_id(ramet_subject *s, ramet_error *error) {
    uint32_t n;
    const char *const *names = ramet_kernels_available(&n);
    char id[33], other[33];
    RAMET_TRY(ramet_numerics("c", id, NULL, error));
    for (uint32_t i = 0; i < n; i++) {
        RAMET_TRY(ramet_numerics(names[i], other, NULL, error));
        if (strcmp(id, other) != 0) {
            ramet_verify_report(s, "numerics_id", RAMET_FAIL, "c makes %s, %s makes %s", id, names[i], other);
            return RAMET_OK;
        }
    }
    bool is_golden = strcmp(id, RAMET_NUMERICS_GOLDEN) == 0;
    ramet_verify_report(s, "numerics_id", is_golden ? RAMET_PASS : RAMET_FAIL, "%s%s%s", id,
                        is_golden ? "" : ", but contract version 1 is ", is_golden ? "" : RAMET_NUMERICS_GOLDEN);
    return RAMET_OK;
}

/* 1 when the bytes come back from the tokenizer as they went in, 0 when not. */
static ramet_status round_trip(const ramet_model *model, const char *bytes, size_t n_bytes, int *out_same,
                               ramet_error *error) {
    int32_t *tokens = NULL;
    char *back = NULL;
    size_t n = 0, n_back = 0;
    RAMET_TRY(ramet_tokenize(model, bytes, n_bytes, 0, &tokens, &n, error));
    ramet_status status = ramet_detokenize(model, tokens, n, true, &back, &n_back, error);
    *out_same = status == RAMET_OK && n_back == n_bytes && memcmp(back, bytes, n_bytes) == 0;
    free(tokens);
    free(back);
    return status;
}

/* The text, and then the text with every byte value behind it that the vocabulary has a token for (some lack a few). */
static ramet_status check_tokenizer(ramet_subject *s, ramet_error *error) {
    char bytes[sizeof text + 256];
    size_t n_text = sizeof text - 1, n_bytes = 0;
    memcpy(bytes, text, n_text);
    int same = 0, all_same = 0;
    for (int value = 0; value < 256; value++) {
        char byte = (char)value;
        RAMET_TRY(round_trip(s->model, &byte, 1, &same, error));
        if (same) bytes[n_text + n_bytes++] = byte;
    }
    RAMET_TRY(round_trip(s->model, bytes, n_text, &same, error));
    RAMET_TRY(round_trip(s->model, bytes, n_text + n_bytes, &all_same, error));
    ramet_verify_report(s, "tokenizer round trip", same && all_same && n_bytes >= 128 ? RAMET_PASS : RAMET_FAIL,
                        "%zu bytes of text%s, %zu of 256 byte values%s", n_text, same ? "" : " changed", n_bytes,
                        all_same ? "" : " changed");
    return RAMET_OK;
}

/* An engine whose matmuls add in another order for batches must be told from ours. */
static ramet_status check_teeth(ramet_subject *s, ramet_error *error) {
    ramet_difference d = {.subject = s};
    ramet_engine *engine = NULL;
    RAMET_TRY(ramet_engine_create(s->model, &s->options, &engine, error));
    ramet_kernels_reorder(&engine->kernels);
    ramet_status status = run_with_tail(&d, engine, SLOW_TOKENS, error);
    ramet_engine_destroy(&engine);
    RAMET_TRY(status);
    ramet_verify_report(s, "exactness has teeth", d.n_unequal ? RAMET_PASS : RAMET_FAIL,
                        "a reordered sum moved a logit by %.2e, %llu of %llu rows", d.largest,
                        (unsigned long long)d.n_unequal, (unsigned long long)d.n_rows);
    return RAMET_OK;
}

/* ---- the whole ---- */

static ramet_status prepare_tokens(ramet_subject *s, ramet_error *error) {
    size_t n = 0;
    int32_t *once = NULL;
    RAMET_TRY(ramet_tokenize(s->model, text, sizeof text - 1, RAMET_TOKENIZE_BOS, &once, &n, error));
    s->tokens = ramet_alloc(SUBJECT_TOKENS, sizeof *s->tokens);
    for (uint32_t i = 0; s->tokens && n > 0 && i < SUBJECT_TOKENS; i++) s->tokens[i] = once[i % n];
    free(once);
    if (!s->tokens) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %d tokens", SUBJECT_TOKENS);
    if (n == 0) return ramet_fail(error, RAMET_E_FAILED, "the tokenizer gives no tokens to verify with");
    s->n = SUBJECT_TOKENS;
    return RAMET_OK;
}

static void keep_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t n_vocab) {
    const ramet_subject *s = user;
    memcpy(s->rows + (size_t)first_pos * n_vocab, rows, (size_t)n_rows * n_vocab * sizeof *rows);
}

static ramet_status prepare(ramet_subject *s, ramet_error *error) {
    s->n_vocab = s->model->weights->hparams.n_vocab;
    RAMET_TRY(prepare_tokens(s, error));
    if (s->options.n_ctx == 0 || s->options.n_ctx > 512) s->options.n_ctx = 512;
    if (s->options.n_ctx < SUBJECT_TOKENS)
        return ramet_fail(error, RAMET_E_ARGUMENT, "verify needs a context of at least %d tokens (-c)", SUBJECT_TOKENS);
    s->options.kv = RAMET_KV_F32;
    s->options.chunk_tokens = 0;
    s->directory = s->options.spill_directory ? s->options.spill_directory : "/tmp";
    s->rows_bytes = (uint64_t)s->n * s->n_vocab * sizeof *s->rows;
    s->rows = ramet_map((size_t)s->rows_bytes);
    if (!s->rows) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %u rows of logits", s->n);
    RAMET_TRY(ramet_scratch_create(s->directory, "verify.ramet", &s->scratch, error));
    RAMET_TRY(ramet_engine_create(s->model, &s->options, &s->engine, error));
    ramet_context *context = NULL;
    RAMET_TRY(ramet_context_create(s->engine, &context, error));
    ramet_status status = ramet_context_extend_rows(context, s->tokens, s->n, 0, keep_rows, s, error);
    ramet_context_close(&context, NULL);
    return status;
}

static void clean_up(ramet_subject *s) {
    ramet_engine_destroy(&s->engine);
    ramet_scratch_remove(&s->scratch);
    ramet_unmap(s->rows, (size_t)s->rows_bytes);
    free(s->tokens);
}

ramet_status ramet_verify(const ramet_model *model, const ramet_engine_options *options,
                          void (*on_row)(void *user, const ramet_verify_row *row), void *user, uint32_t *out_failed,
                          ramet_error *error) {
    static ramet_status (*const checks[])(ramet_subject *, ramet_error *) = {
        check_prefill_is_decode, check_fork,      check_truncate, check_snapshot, ramet_verify_spill,
        check_page_size,         check_threads,   check_batch,    check_kernels,  check_numerics_id,
        ramet_verify_kv,         check_tokenizer, check_teeth,
    };
    ramet_subject s = {.model = model, .on_row = on_row, .user = user};
    if (options) s.options = *options;
    *out_failed = 0;
    ramet_status status = prepare(&s, error);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && status == RAMET_OK; i++) status = checks[i](&s, error);
    clean_up(&s);
    *out_failed = s.failed;
    return status;
}
