/* cmd_logits.c - `ramet logits`: rows of logits to a .npy file, streamed. How the tokens are cut into calls, and a
 * snapshot and restore on the way, are options so that anybody can see that they change nothing. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/npy.h"
#include "cli/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const ramet_options *o;
    ramet_session s;
    int32_t *tokens;
    uint32_t from, to; /* rows to write; tokens from `to` on are never run */
    ramet_npy npy;
    ramet_status status; /* of the writing, which cannot stop the engine */
    ramet_error write_error;
} job;

/* "all", "last" or "A:B" with either end left out, against n tokens. */
static ramet_status parse_rows(const char *text, uint32_t n, uint32_t *out_from, uint32_t *out_to, ramet_error *error) {
    *out_from = 0;
    *out_to = n;
    if (strcmp(text, "all") == 0) return RAMET_OK;
    if (strcmp(text, "last") == 0) {
        *out_from = n - 1;
        return RAMET_OK;
    }
    char from[16];
    const char *colon = strchr(text, ':');
    uint64_t a = 0, b = n;
    bool is_good = colon && colon - text < (long)sizeof from;
    if (is_good) {
        snprintf(from, sizeof from, "%.*s", (int)(colon - text), text);
        is_good = (!from[0] || ramet_parse_u64(from, &a)) && (!colon[1] || ramet_parse_u64(colon + 1, &b));
    }
    if (!is_good) return ramet_fail(error, RAMET_E_ARGUMENT, "--rows takes all, last or A:B, not '%s'", text);
    if (a >= b || b > n)
        return ramet_fail(error, RAMET_E_ARGUMENT, "--rows %s: there are rows 0 to %" PRIu32 " (B is not included)",
                          text, n - 1);
    *out_from = (uint32_t)a;
    *out_to = (uint32_t)b;
    return RAMET_OK;
}

static void write_rows(void *user, uint32_t first_pos, uint32_t n_rows, const float *rows, uint32_t n_vocab) {
    job *j = user;
    if (j->status != RAMET_OK || first_pos + n_rows <= j->from) return;
    uint32_t skip = first_pos < j->from ? j->from - first_pos : 0;
    j->status = ramet_npy_write(&j->npy, rows + (size_t)skip * n_vocab, n_rows - skip, &j->write_error);
}

static ramet_status extend(job *j, ramet_context *context, uint32_t from, uint32_t to, ramet_error *error) {
    uint32_t step = j->o->chunk ? j->o->chunk : 512;
    for (uint32_t at = from; at < to;) {
        uint32_t n = to - at < step ? to - at : step;
        RAMET_TRY(ramet_context_extend_rows(context, j->tokens + at, n, j->from, write_rows, j, error));
        if (j->status != RAMET_OK) {
            if (error) *error = j->write_error;
            return j->status;
        }
        at += n;
        ramet_progress(j->o, "tokens", at, j->to);
    }
    return RAMET_OK;
}

/* Save, close, restore: what --restore-at does. */
static ramet_status replace_by_restored(ramet_engine *engine, ramet_context **context, ramet_error *error) {
    ramet_scratch scratch;
    RAMET_TRY(ramet_scratch_create(ramet_temporary_parent(), "context.ramet", &scratch, error));
    ramet_status status = ramet_save_patiently(*context, scratch.file, NULL, NULL, error);
    if (status == RAMET_OK) {
        ramet_drop(context);
        status = ramet_snapshot_restore(engine, scratch.file, NULL, context, NULL, NULL, error);
    }
    ramet_scratch_remove(&scratch);
    return status;
}

/* Restored after the last token of all: its row then comes out of the file, by no pass of the model. */
static ramet_status finish_by_restoring(job *j, ramet_context **context, ramet_error *error) {
    const float *row;
    RAMET_TRY(extend(j, *context, 0, j->to - 1, error));
    RAMET_TRY(ramet_context_extend(*context, j->tokens + j->to - 1, 1, error));
    RAMET_TRY(replace_by_restored(j->s.engine, context, error));
    RAMET_TRY(ramet_context_logits(*context, &row, error));
    return ramet_npy_write(&j->npy, row, 1, error);
}

static ramet_status compute(job *j, ramet_error *error) {
    ramet_context *context;
    uint32_t cut = j->o->restore_at;
    RAMET_TRY(ramet_context_create(j->s.engine, &context, error));
    ramet_status status = RAMET_OK;
    if (cut == j->to)
        status = finish_by_restoring(j, &context, error);
    else {
        status = extend(j, context, 0, cut, error);
        if (status == RAMET_OK && cut) status = replace_by_restored(j->s.engine, &context, error);
        if (status == RAMET_OK) status = extend(j, context, cut, j->to, error);
    }
    ramet_drop(&context);
    return status;
}

static ramet_status write_file(job *j, ramet_error *error) {
    RAMET_TRY(ramet_npy_begin(j->o->output, j->to - j->from, j->s.info.n_vocab, &j->npy, error));
    ramet_status status = compute(j, error);
    if (status == RAMET_OK) return ramet_npy_commit(&j->npy, error);
    ramet_npy_abort(&j->npy);
    return status;
}

static void report(const job *j, uint64_t nanoseconds) {
    uint32_t n_rows = j->to - j->from, n_vocab = j->s.info.n_vocab;
    ramet_say(j->o, "wrote %s: %" PRIu32 " rows of %" PRIu32 " logits in %s", j->o->output, n_rows, n_vocab,
              ramet_label_duration(nanoseconds).text);
    if (!j->o->json) return;
    ramet_json out = {.out = stdout};
    ramet_json_object_begin(&out, NULL);
    ramet_json_string(&out, "file", j->o->output);
    ramet_json_u64(&out, "rows", n_rows);
    ramet_json_u64(&out, "vocabulary", n_vocab);
    ramet_json_u64(&out, "first_row", j->from);
    ramet_json_u64(&out, "tokens", j->to);
    ramet_json_string(&out, "kernels", j->s.engine_info.kernels);
    ramet_json_string(&out, "kv", ramet_kv_name(j->s.engine_info.kv));
    ramet_json_string(&out, "numerics_id", j->s.engine_info.numerics_id);
    ramet_json_u64(&out, "nanoseconds", nanoseconds);
    ramet_json_object_end(&out);
}

static ramet_status read_tokens(job *j, uint32_t *out_n, ramet_error *error) {
    char *text;
    size_t bytes, n;
    RAMET_TRY(ramet_read_all(j->o->tokens_file, &text, &bytes, error));
    ramet_status status = ramet_input_tokens(text, bytes, j->o->tokens_file, &j->tokens, &n, error);
    free(text);
    if (status != RAMET_OK) return status;
    if (n == 0 || n > INT32_MAX)
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s: there must be at least one token id", j->o->tokens_file);
    *out_n = (uint32_t)n;
    return RAMET_OK;
}

static ramet_status run(job *j, ramet_error *error) {
    uint32_t n = 0;
    RAMET_TRY(read_tokens(j, &n, error));
    RAMET_TRY(parse_rows(j->o->rows, n, &j->from, &j->to, error));
    if (j->o->restore_at > j->to)
        return ramet_fail(error, RAMET_E_ARGUMENT,
                          "--restore-at %" PRIu32 " is past the %" PRIu32 " tokens that these rows need",
                          j->o->restore_at, j->to);
    RAMET_TRY(ramet_session_open(j->o, &j->s, error));
    RAMET_TRY(ramet_session_start(&j->s, j->o, j->to, error));
    uint64_t start = ramet_now_nanoseconds();
    RAMET_TRY(write_file(j, error));
    report(j, ramet_now_nanoseconds() - start);
    return RAMET_OK;
}

ramet_status ramet_cmd_logits(const ramet_options *o, ramet_error *error) {
    if (!o->tokens_file)
        return ramet_fail(error, RAMET_E_ARGUMENT, "which tokens? Give --tokens FILE, or - for standard input");
    if (!o->output) return ramet_fail(error, RAMET_E_ARGUMENT, "where to? Give -o OUT.npy");
    if (o->json && strcmp(o->output, "-") == 0)
        return ramet_fail(error, RAMET_E_ARGUMENT, "-o - and --json both want standard output");
    RAMET_TRY(ramet_output_check(o->output, error));
    job j = {.o = o};
    ramet_status status = run(&j, error);
    ramet_session_close(&j.s);
    free(j.tokens);
    return status;
}
