/* cmd_ctx_build.c - `ramet ctx build`: prefill a prompt and save the context. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/session.h"

#include <stdlib.h>
#include <string.h>

typedef struct build {
    uint32_t n_tokens;
    uint64_t prefill_nanoseconds, save_nanoseconds;
    ramet_snapshot_info info;
} build;

static ramet_status prefill(const ramet_options *o, ramet_session *s, const char *text, size_t bytes,
                            ramet_context *context, build *b, ramet_error *error) {
    int32_t *tokens;
    size_t n;
    unsigned flags = RAMET_TOKENIZE_BOS | (o->special ? RAMET_TOKENIZE_SPECIAL : 0);
    RAMET_TRY(ramet_tokenize(s->model, text, bytes, flags, &tokens, &n, error));
    uint64_t start = ramet_now_nanoseconds();
    ramet_status status = ramet_context_extend(context, tokens, n, error);
    b->prefill_nanoseconds = ramet_now_nanoseconds() - start;
    b->n_tokens = (uint32_t)n;
    free(tokens);
    if (status != RAMET_OK) return status;
    if (n == 0) return ramet_fail(error, RAMET_E_ARGUMENT, "the text has no tokens; give some text");
    ramet_say(o, "prefilled %zu tokens in %s", n, ramet_label_duration(b->prefill_nanoseconds).text);
    return RAMET_OK;
}

static ramet_status save(const ramet_options *o, ramet_context *context, build *b, ramet_error *error) {
    const ramet_snapshot_options options = {.generation = o->generation};
    uint64_t start = ramet_now_nanoseconds();
    RAMET_TRY(ramet_save_patiently(context, o->output, &options, &b->info, error));
    b->save_nanoseconds = ramet_now_nanoseconds() - start;
    ramet_say(o, "saved %s (%s%s) in %s", o->output, ramet_label_bytes(b->info.file_bytes).text,
              b->info.encrypted ? ", encrypted" : "", ramet_label_duration(b->save_nanoseconds).text);
    return RAMET_OK;
}

static void print_json(const ramet_options *o, const ramet_session *s, const build *b) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_string(&j, "file", o->output);
    ramet_json_u64(&j, "tokens", b->n_tokens);
    ramet_json_u64(&j, "prefill_nanoseconds", b->prefill_nanoseconds);
    ramet_json_u64(&j, "bytes", b->info.file_bytes);
    ramet_json_bool(&j, "encrypted", b->info.encrypted);
    ramet_json_u64(&j, "save_nanoseconds", b->save_nanoseconds);
    ramet_json_string(&j, "model", s->info.name);
    ramet_json_string(&j, "weights_sha256", s->info.weights_sha256);
    ramet_json_string(&j, "kv", ramet_kv_name(s->engine_info.kv));
    ramet_json_string(&j, "numerics_id", s->engine_info.numerics_id);
    ramet_json_object_end(&j);
}

static ramet_status build_context(const ramet_options *o, ramet_session *s, const char *text, size_t bytes,
                                  ramet_error *error) {
    ramet_context *context;
    build b = {0};
    RAMET_TRY(ramet_session_start(s, o, 0, error));
    RAMET_TRY(ramet_context_create(s->engine, &context, error));
    ramet_status status = prefill(o, s, text, bytes, context, &b, error);
    if (status == RAMET_OK) status = save(o, context, &b, error);
    ramet_drop(&context);
    if (status == RAMET_OK && o->json) print_json(o, s, &b);
    return status;
}

ramet_status ramet_cmd_ctx_build(const ramet_options *o, ramet_error *error) {
    char *text;
    size_t bytes;
    ramet_session s;
    if (!o->output) return ramet_fail(error, RAMET_E_ARGUMENT, "where to? Give -o FILE.ramet");
    if (o->json && strcmp(o->output, "-") == 0)
        return ramet_fail(error, RAMET_E_ARGUMENT, "-o - and --json both want standard output");
    RAMET_TRY(ramet_output_check(o->output, error));
    RAMET_TRY(ramet_input_text(o, &text, &bytes, error));
    ramet_status status = ramet_session_open(o, &s, error);
    if (status == RAMET_OK) status = build_context(o, &s, text, bytes, error);
    ramet_session_close(&s);
    free(text);
    return status;
}
