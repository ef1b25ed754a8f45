/* cmd_run.c - `ramet run`: a prompt, a saved context, or both; then one or several samples decoded as one batch.
 * Owns the loop between sampling and the engine. The text streams to standard output when there is one sample. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/run.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------- prompt ---- */

static ramet_status restore(ramet_run *r, ramet_error *error) {
    uint64_t start = ramet_now_nanoseconds();
    RAMET_TRY(ramet_snapshot_restore(r->s.engine, r->input.path, NULL, &r->root, NULL, NULL, error));
    r->n_reused = ramet_context_length(r->root);
    r->restore_nanoseconds = ramet_now_nanoseconds() - start;
    ramet_say(r->o, "restored %u tokens in %s", r->n_reused, ramet_label_duration(r->restore_nanoseconds).text);
    return RAMET_OK;
}

static ramet_status prefill(ramet_run *r, const char *text, size_t bytes, ramet_error *error) {
    int32_t *tokens = NULL;
    size_t n = 0;
    unsigned flags = (r->o->special ? RAMET_TOKENIZE_SPECIAL : 0) | (r->n_reused == 0 ? RAMET_TOKENIZE_BOS : 0);
    RAMET_TRY(ramet_tokenize(r->s.model, text, bytes, flags, &tokens, &n, error));
    uint64_t start = ramet_now_nanoseconds();
    ramet_status status = ramet_context_extend(r->root, tokens, n, error);
    r->prefill_nanoseconds = ramet_now_nanoseconds() - start;
    r->n_prefilled = (uint32_t)n;
    free(tokens);
    if (status == RAMET_OK && n > 0)
        ramet_say(r->o, "prefilled %zu tokens in %s", n, ramet_label_duration(r->prefill_nanoseconds).text);
    return status;
}

/* A snapshot may come without logits: its last token is then run again. */
static ramet_status ensure_logits(ramet_run *r, ramet_error *error) {
    const float *logits;
    int32_t last;
    uint32_t n = ramet_context_length(r->root);
    if (n == 0)
        return ramet_fail(error, RAMET_E_ARGUMENT, "the prompt is empty and the model has no BOS; give some text");
    if (ramet_context_logits(r->root, &logits, NULL) == RAMET_OK) return RAMET_OK;
    RAMET_TRY(ramet_context_tokens(r->root, n - 1, 1, &last, error));
    RAMET_TRY(ramet_context_truncate(r->root, n - 1, error));
    r->n_reused--;
    r->n_prefilled++;
    return ramet_context_extend(r->root, &last, 1, error);
}

static ramet_status prepare_root(ramet_run *r, const char *text, size_t bytes, ramet_error *error) {
    if (r->o->input)
        RAMET_TRY(restore(r, error));
    else
        RAMET_TRY(ramet_context_create(r->s.engine, &r->root, error));
    if (text) RAMET_TRY(prefill(r, text, bytes, error));
    return ensure_logits(r, error);
}

/* ------------------------------------------------------------ branches ---- */

static ramet_status create_branch(ramet_run *r, uint32_t idx, ramet_error *error) {
    ramet_branch *b = &r->branches[idx];
    uint32_t n = r->n_prompt;
    b->sampler = r->o->sampler;
    ramet_sampler_seed(&b->sampler, r->o->seed, idx);
    b->history = ramet_alloc((size_t)n + r->n_most, sizeof *b->history);
    if (!b->history) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for branch %u", idx);
    b->tokens = b->history + n;
    RAMET_TRY(ramet_context_tokens(r->root, 0, n, b->history, error));
    RAMET_TRY(ramet_detokenizer_create(r->s.model, false, &b->detokenizer, error));
    return ramet_context_fork(r->root, &b->context, error);
}

static ramet_status create_branches(ramet_run *r, ramet_error *error) {
    r->n_prompt = ramet_context_length(r->root);
    uint32_t room = r->s.engine_info.n_ctx - r->n_prompt + 1; /* the last token is sampled, never run */
    r->n_most = r->o->n_generate < room ? r->o->n_generate : room;
    r->branches = ramet_alloc(r->o->branches, sizeof *r->branches);
    r->items = ramet_alloc(r->o->branches, sizeof *r->items);
    r->scratch = ramet_alloc(1, ramet_sample_scratch_bytes(r->s.info.n_vocab));
    if (!r->branches || !r->items || !r->scratch)
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the branches");
    r->n_branches = r->o->branches;
    for (uint32_t i = 0; i < r->n_branches; i++) RAMET_TRY(create_branch(r, i, error));
    ramet_drop(&r->root); /* from here on branch 0 may write where the prompt ended, when it is alone */
    return RAMET_OK;
}

static void free_run(ramet_run *r) {
    for (uint32_t i = 0; i < r->n_branches; i++) {
        ramet_branch *b = &r->branches[i];
        ramet_drop(&b->context);
        ramet_detokenizer_destroy(&b->detokenizer);
        free(b->history);
        free(b->text);
    }
    free(r->branches);
    free(r->items);
    free(r->scratch);
    ramet_drop(&r->root);
    ramet_session_close(&r->s);
}

/* ------------------------------------------------------------ decoding ---- */

static ramet_status append_text(ramet_run *r, ramet_branch *b, const char *text, size_t bytes, ramet_error *error) {
    void *grown = b->text;
    if (!ramet_grow(&grown, &b->text_capacity, b->text_bytes + bytes + 1, 1))
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the text");
    b->text = grown;
    if (bytes) memcpy(b->text + b->text_bytes, text, bytes);
    b->text_bytes += bytes;
    if (!r->streams || bytes == 0) return RAMET_OK;
    fwrite(text, 1, bytes, stdout);
    return fflush(stdout) == 0 ? RAMET_OK : ramet_fail_errno(error, "cannot write to standard output");
}

static ramet_status stop_branch(ramet_run *r, ramet_branch *b, const char *why, ramet_error *error) {
    const char *text;
    size_t bytes;
    b->stop = why;
    ramet_drop(&b->context); /* others may need its memory */
    ramet_detokenizer_finish(b->detokenizer, &text, &bytes);
    return append_text(r, b, text, bytes, error);
}

/* Samples one token of one branch and decides whether the branch goes on. */
static ramet_status step_branch(ramet_run *r, ramet_branch *b, ramet_error *error) {
    const float *logits;
    float logprob;
    int32_t token;
    const char *text;
    size_t bytes, n_seen = r->n_prompt + b->n_tokens;
    if (b->n_tokens >= r->o->n_generate) return stop_branch(r, b, "length", error);
    RAMET_TRY(ramet_context_logits(b->context, &logits, error));
    size_t n_recent = n_seen < b->sampler.repeat_last ? n_seen : b->sampler.repeat_last;
    RAMET_TRY(ramet_sample(&b->sampler, logits, r->s.info.n_vocab, b->history + n_seen - n_recent, n_recent, r->scratch,
                           &token, &logprob, error));
    if (r->first_token_nanoseconds == 0) r->first_token_nanoseconds = ramet_now_nanoseconds();
    b->tokens[b->n_tokens++] = token;
    b->logprob += (double)logprob;
    if (ramet_token_ends(r->s.model, token) && !r->o->ignore_eos) return stop_branch(r, b, "end", error);
    RAMET_TRY(ramet_detokenizer_push(b->detokenizer, token, &text, &bytes, error));
    RAMET_TRY(append_text(r, b, text, bytes, error));
    if (b->n_tokens >= r->o->n_generate) return stop_branch(r, b, "length", error);
    if (b->n_tokens >= r->n_most) return stop_branch(r, b, "window", error);
    return RAMET_OK;
}

/* A step of each, as many at a time as there is memory for: where contexts spill, the others go to disk meanwhile. */
static ramet_status extend_all(ramet_run *r, size_t n_items, ramet_error *error) {
    for (size_t done = 0; done < n_items;) {
        size_t n = n_items - done < r->n_together ? n_items - done : r->n_together;
        ramet_status status = ramet_batch_extend(r->items + done, n, error);
        if (status == RAMET_E_BUDGET && r->o->spill_directory && n > 1) {
            r->n_together = (n + 1) / 2;
            continue;
        }
        RAMET_TRY(status);
        done += n;
    }
    return RAMET_OK;
}

static ramet_status decode(ramet_run *r, ramet_error *error) {
    r->n_together = r->n_branches;
    for (;;) {
        size_t n_items = 0;
        for (uint32_t i = 0; i < r->n_branches; i++) {
            ramet_branch *b = &r->branches[i];
            if (b->stop) continue;
            if (ramet_interrupted())
                RAMET_TRY(stop_branch(r, b, "interrupted", error));
            else
                RAMET_TRY(step_branch(r, b, error));
            if (!b->stop) r->items[n_items++] = (ramet_batch_item){b->context, &b->tokens[b->n_tokens - 1], 1};
        }
        if (n_items == 0) return RAMET_OK;
        uint64_t start = ramet_now_nanoseconds();
        RAMET_TRY(extend_all(r, n_items, error));
        r->decode_nanoseconds += ramet_now_nanoseconds() - start;
        r->n_decoded += n_items;
    }
}

/* -------------------------------------------------------------- command ---- */

/* A saved context decides the precision of the cache, unless --kv does, and without -m also the model. */
static ramet_status open_session(ramet_run *r, ramet_error *error) {
    ramet_snapshot_info info;
    ramet_options o = *r->o;
    if (o.input) {
        RAMET_TRY(ramet_snapshot_read_info(r->input.path, &info, error));
        RAMET_TRY(ramet_session_open_for(&o, &info, &r->s, error));
        if (!o.has_kv) o.kv = info.kv;
    } else
        RAMET_TRY(ramet_session_open(&o, &r->s, error));
    return ramet_session_start(&r->s, &o, 0, error);
}

static ramet_status run(ramet_run *r, const char *text, size_t bytes, ramet_error *error) {
    RAMET_TRY(open_session(r, error));
    uint64_t start = ramet_now_nanoseconds();
    RAMET_TRY(prepare_root(r, text, bytes, error));
    RAMET_TRY(create_branches(r, error));
    ramet_signals_patient(true);
    ramet_status status = decode(r, error);
    ramet_signals_patient(false);
    if (r->first_token_nanoseconds) r->first_token_nanoseconds -= start;
    if (status != RAMET_OK) return status;
    ramet_run_print(r);
    return ramet_check_interrupt(error);
}

ramet_status ramet_cmd_run(const ramet_options *o, ramet_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    const char *from = o->file ? o->file : o->prompt;
    if (o->input && from && strcmp(o->input, "-") == 0 && strcmp(from, "-") == 0)
        return ramet_fail(error, RAMET_E_ARGUMENT, "the context and the prompt both want standard input");
    if (!o->input && !o->prompt && !o->file)
        return ramet_fail(error, RAMET_E_ARGUMENT, "nothing to continue; give -p TEXT, -f FILE or -i CTX");
    ramet_run r = {.o = o, .streams = o->branches == 1 && !o->json};
    if (o->input) RAMET_TRY(ramet_input_file_open(o->input, &r.input, error));
    ramet_status status = RAMET_OK;
    if (o->prompt || o->file) status = ramet_input_text(o, &text, &bytes, error);
    if (status == RAMET_OK) status = run(&r, text, bytes, error);
    if (status != RAMET_OK) ramet_input_file_explain(&r.input, error);
    ramet_input_file_close(&r.input);
    free_run(&r);
    free(text);
    return status;
}
