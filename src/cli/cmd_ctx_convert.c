/* cmd_ctx_convert.c - `ramet ctx convert`: a saved context rewritten, with smaller rows, under another key or none, or
 * in the current format. */
#include "base/clock.h"
#include "base/crypt.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/policy.h"
#include "cli/session.h"

#include <string.h>

typedef struct conversion {
    ramet_convert_options options;
    ramet_snapshot_info before, after;
    uint64_t nanoseconds;
} conversion;

/* "f32 rows", "q8 rows of f32, lossy" */
static void print_rows(char out[64], const ramet_snapshot_info *s) {
    if (s->payload == s->kv)
        snprintf(out, 64, "%s rows", ramet_kv_name(s->payload));
    else
        snprintf(out, 64, "%s rows of %s, lossy", ramet_kv_name(s->payload), ramet_kv_name(s->kv));
}

static void say(const ramet_options *o, const conversion *c) {
    char before[64], after[64];
    print_rows(before, &c->before);
    print_rows(after, &c->after);
    ramet_say(o, "read %s (%s, %s%s)", o->input, ramet_label_bytes(c->before.file_bytes).text, before,
              c->before.encrypted ? ", encrypted" : "");
    ramet_say(o, "saved %s (%s, %s%s) in %s", o->output, ramet_label_bytes(c->after.file_bytes).text, after,
              c->after.encrypted ? ", encrypted" : "", ramet_label_duration(c->nanoseconds).text);
}

static void write_info(ramet_json *j, const char *key, const char *file, const ramet_snapshot_info *s) {
    ramet_json_object_begin(j, key);
    ramet_json_string(j, "file", file);
    ramet_json_string(j, "payload", ramet_kv_name(s->payload));
    ramet_json_bool(j, "lossy", s->payload != s->kv);
    ramet_json_bool(j, "encrypted", s->encrypted);
    ramet_json_u64(j, "format_version", s->format_version);
    ramet_json_u64(j, "file_bytes", s->file_bytes);
    ramet_json_u64(j, "payload_bytes", s->payload_bytes);
    ramet_json_object_end(j);
}

static void write_json(const ramet_options *o, const conversion *c) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_u64(&j, "tokens", c->after.n_tokens);
    ramet_json_string(&j, "kv", ramet_kv_name(c->after.kv));
    write_info(&j, "before", o->input, &c->before);
    write_info(&j, "after", o->output, &c->after);
    ramet_json_u64(&j, "nanoseconds", c->nanoseconds);
    ramet_json_object_end(&j);
}

/* With signals held back, as a save: none leaves a temporary file. */
static ramet_status convert(const ramet_options *o, const char *path, const ramet_snapshot_policy *rules, conversion *c,
                            ramet_error *error) {
    uint64_t start = ramet_now_nanoseconds();
    ramet_signals_patient(true);
    ramet_status status = ramet_snapshot_convert(path, rules, o->output, &c->options, &c->after, error);
    ramet_signals_patient(false);
    c->nanoseconds = ramet_now_nanoseconds() - start;
    return status == RAMET_OK ? ramet_check_interrupt(error) : status;
}

/* A secret does not come into the clear by an option that somebody forgot. */
static ramet_status check_secrecy(const ramet_options *o, const ramet_snapshot_policy *rules,
                                  const ramet_snapshot_info *before, ramet_error *error) {
    if (o->encrypt) return RAMET_OK;
    if (rules->encrypted_only)
        return ramet_fail(error, RAMET_E_ARGUMENT, "only encrypted snapshots are allowed; give --encrypt KEYFILE");
    if (!before->encrypted || o->decrypt) return RAMET_OK;
    return ramet_fail(error, RAMET_E_ARGUMENT, "%s is encrypted; give --encrypt KEYFILE, or --decrypt for a plain file",
                      o->input);
}

static ramet_status run(const ramet_options *o, const char *path, const ramet_snapshot_policy *rules,
                        const uint8_t *new_key, ramet_error *error) {
    conversion c = {.options = {.context_key = new_key, .threads = o->threads}};
    RAMET_TRY(ramet_snapshot_read_info(path, &c.before, error));
    RAMET_TRY(check_secrecy(o, rules, &c.before, error));
    c.options.payload = c.before.payload;
    if (o->payload) {
        bool is_known = ramet_kv_parse(o->payload, &c.options.payload); /* the option table has the same names */
        RAMET_ASSERT(is_known, "--payload %s", o->payload);
    }
    RAMET_TRY(convert(o, path, rules, &c, error));
    say(o, &c);
    if (o->json) write_json(o, &c);
    return RAMET_OK;
}

static ramet_status run_with_keys(const ramet_options *o, const char *path, ramet_error *error) {
    uint8_t new_key[RAMET_KEY_BYTES] = {0};
    ramet_policy policy;
    if (o->encrypt) RAMET_TRY(ramet_key_read(o->encrypt, new_key, error));
    ramet_status status = ramet_policy_open(o, &policy, error);
    if (status == RAMET_OK) {
        status = run(o, path, &policy.rules, o->encrypt ? new_key : NULL, error);
        ramet_policy_close(&policy);
    }
    ramet_wipe(new_key, sizeof new_key);
    return status;
}

ramet_status ramet_cmd_ctx_convert(const ramet_options *o, ramet_error *error) {
    ramet_input_file file;
    if (!o->input) return ramet_fail(error, RAMET_E_ARGUMENT, "which context? Give -i FILE.ramet");
    if (!o->output) return ramet_fail(error, RAMET_E_ARGUMENT, "where to? Give -o FILE.ramet");
    if (o->json && strcmp(o->output, "-") == 0)
        return ramet_fail(error, RAMET_E_ARGUMENT, "-o - and --json both want standard output");
    if (o->encrypt && o->decrypt) return ramet_fail(error, RAMET_E_ARGUMENT, "give --encrypt or --decrypt, not both");
    RAMET_TRY(ramet_output_check(o->output, error));
    RAMET_TRY(ramet_input_file_open(o->input, &file, error));
    ramet_status status = run_with_keys(o, file.path, error);
    if (status != RAMET_OK) ramet_input_file_explain(&file, error);
    ramet_input_file_close(&file);
    return status;
}
