/* cmd_ctx_info.c - `ramet ctx info`: the header of a saved context, and with --verify every byte of it. */
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/policy.h"
#include "cli/session.h"

#include <inttypes.h>

static void print_row(const char *label, const char *text) {
    fputs(label, stdout);
    ramet_print_clean(stdout, text[0] ? text : "-");
    putchar('\n');
}

static void print_text(const char *file, const ramet_snapshot_info *s, bool verified) {
    char model[sizeof s->model_name + sizeof s->arch + 4];
    snprintf(model, sizeof model, "%s (%s)", s->model_name, s->arch);
    print_row("file            ", file);
    print_row("model           ", model);
    printf("weights sha256  %s\n", s->weights_sha256);
    printf("tokenizer       %s\n", s->tokenizer_sha256);
    print_row("numerics id     ", s->numerics_id);
    printf("tokens          %" PRIu32 "%s\n", s->n_tokens, s->has_logits ? ", with the logits after the last" : "");
    printf("layers          %" PRIu32 ", %" PRIu32 " KV heads of %" PRIu32 "\n", s->n_layers, s->n_kv_heads,
           s->head_dim);
    printf("vocabulary      %" PRIu32 "\n", s->n_vocab);
    printf("kv, stored as   %s, %s%s\n", ramet_kv_name(s->kv), ramet_kv_name(s->payload),
           s->payload != s->kv ? " (lossy)" : "");
    print_row("owner           ", s->owner);
    print_row("marking         ", s->marking);
    printf("encrypted       %s\n", s->encrypted ? "yes" : "no");
    printf("generation      %" PRIu64 "\n", s->generation);
    printf("format          %" PRIu32 "\n", s->format_version);
    printf("size            %s", ramet_label_bytes(s->file_bytes).text);
    printf(" (header %s, payload %s)\n", ramet_label_bytes(s->header_bytes).text,
           ramet_label_bytes(s->payload_bytes).text);
    if (verified) printf("every byte      checked, good\n");
}

static void print_json(const char *file, const ramet_snapshot_info *s, bool verified) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_string(&j, "file", file);
    ramet_json_u64(&j, "format_version", s->format_version);
    ramet_json_string(&j, "model_name", s->model_name);
    ramet_json_string(&j, "arch", s->arch);
    ramet_json_string(&j, "weights_sha256", s->weights_sha256);
    ramet_json_string(&j, "tokenizer_sha256", s->tokenizer_sha256);
    ramet_json_string(&j, "numerics_id", s->numerics_id);
    ramet_json_string(&j, "kv", ramet_kv_name(s->kv));
    ramet_json_string(&j, "payload", ramet_kv_name(s->payload));
    ramet_json_bool(&j, "lossy", s->payload != s->kv);
    ramet_json_u64(&j, "tokens", s->n_tokens);
    ramet_json_u64(&j, "layers", s->n_layers);
    ramet_json_u64(&j, "kv_heads", s->n_kv_heads);
    ramet_json_u64(&j, "head_dim", s->head_dim);
    ramet_json_u64(&j, "vocabulary", s->n_vocab);
    ramet_json_bool(&j, "has_logits", s->has_logits);
    ramet_json_bool(&j, "encrypted", s->encrypted);
    ramet_json_u64(&j, "generation", s->generation);
    ramet_json_string(&j, "owner", s->owner);
    ramet_json_string(&j, "marking", s->marking);
    ramet_json_u64(&j, "file_bytes", s->file_bytes);
    ramet_json_u64(&j, "header_bytes", s->header_bytes);
    ramet_json_u64(&j, "payload_bytes", s->payload_bytes);
    ramet_json_bool(&j, "verified", verified);
    ramet_json_object_end(&j);
}

static ramet_status verify(const ramet_options *o, const char *path, const ramet_snapshot_info *info,
                           ramet_error *error) {
    ramet_policy policy;
    RAMET_TRY(ramet_policy_open_for(o, info, &policy, error));
    ramet_status status = ramet_snapshot_verify(path, &policy.rules, error);
    ramet_policy_close(&policy);
    return status;
}

ramet_status ramet_cmd_ctx_info(const ramet_options *o, ramet_error *error) {
    ramet_input_file file;
    ramet_snapshot_info info;
    if (!o->verify && (o->min_generation > 0 || o->profile))
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s is checked with --verify; give that, too",
                          o->profile ? "--profile" : "--min-generation");
    RAMET_TRY(ramet_input_file_open(o->args[0], &file, error));
    ramet_status status = ramet_snapshot_read_info(file.path, &info, error);
    if (status == RAMET_OK && o->verify) status = verify(o, file.path, &info, error);
    if (status == RAMET_OK && o->json)
        print_json(o->args[0], &info, o->verify);
    else if (status == RAMET_OK)
        print_text(o->args[0], &info, o->verify);
    if (status != RAMET_OK) ramet_input_file_explain(&file, error);
    ramet_input_file_close(&file);
    return status;
}
