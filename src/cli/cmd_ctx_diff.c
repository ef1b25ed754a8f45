/* cmd_ctx_diff.c - `ramet ctx diff`: where the tokens of two saved contexts part, how each goes on, and what else
 * they do not have in common. A report: that they differ is no failure. */
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/policy.h"
#include "cli/preview.h"
#include "cli/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct side {
    const char *name; /* as typed */
    ramet_input_file file;
    ramet_snapshot_info info;
    int32_t *tokens;
    uint32_t n;
} side;

typedef struct comparison {
    side a, b;
    uint32_t n_common;
    const ramet_model *model; /* for text; may be NULL */
} comparison;

enum { SHOWN_BEFORE = 6 }; /* tokens of the common part, before the two go on */

/* ---- what else differs ---- */

typedef enum fact {
    WEIGHTS,
    TOKENIZER,
    NUMERICS,
    KV,
    PAYLOAD,
    OWNER,
    MARKING,
    GENERATION,
    LOGITS,
    ENCRYPTED,
    FORMAT,
    N_FACTS,
} fact;

/* As `ctx info --json` calls them. */
static const char *const fact_names[] = {"weights_sha256", "tokenizer_sha256", "numerics_id", "kv",         "payload",
                                         "owner",          "marking",          "generation",  "has_logits", "encrypted",
                                         "format_version"};

typedef struct fact_text {
    char text[128];
} fact_text;

static fact_text describe(const ramet_snapshot_info *s, fact f) {
    fact_text t = {""};
    const char *text = t.text;
    switch (f) {
    case WEIGHTS: text = s->weights_sha256; break;
    case TOKENIZER: text = s->tokenizer_sha256; break;
    case NUMERICS: text = s->numerics_id; break;
    case KV: text = ramet_kv_name(s->kv); break;
    case PAYLOAD: text = ramet_kv_name(s->payload); break;
    case OWNER: text = s->owner; break;
    case MARKING: text = s->marking; break;
    case LOGITS: text = s->has_logits ? "true" : "false"; break;
    case ENCRYPTED: text = s->encrypted ? "true" : "false"; break;
    case GENERATION: snprintf(t.text, sizeof t.text, "%" PRIu64, s->generation); break;
    case FORMAT: snprintf(t.text, sizeof t.text, "%" PRIu32, s->format_version); break;
    case N_FACTS: break;
    }
    if (text != t.text) snprintf(t.text, sizeof t.text, "%s", text);
    return t;
}

static bool differs(const comparison *c, fact f) {
    return strcmp(describe(&c->a.info, f).text, describe(&c->b.info, f).text) != 0;
}

/* What goes on from rounded rows has other bits than the law says, and a file does not tell where they were rounded. */
static bool is_lossy(const comparison *c) {
    return c->a.info.payload != c->a.info.kv || c->b.info.payload != c->b.info.kv;
}

/* Unless it is lossy, state is a function of these and of the tokens. */
static bool is_same_state(const comparison *c) {
    return !differs(c, WEIGHTS) && !differs(c, NUMERICS) && !differs(c, KV);
}

static const char *describe_state(const comparison *c) {
    if (is_lossy(c)) return "lossy: not known";
    return is_same_state(c) ? "the same bits" : "other bits: see below";
}

/* ---- printing ---- */

static void print_name(const char *label, const side *s) {
    printf("%-15s ", label);
    ramet_print_clean(stdout, s->name);
    printf(", %" PRIu32 " tokens\n", s->n);
}

static ramet_status print_rest(const comparison *c, const char *label, const side *s, ramet_error *error) {
    uint32_t n = s->n - c->n_common;
    printf("%-15s %" PRIu32 " tokens", label, n);
    if (n > 0) fputs(": ", stdout);
    if (n > 0) RAMET_TRY(ramet_preview_print(c->model, s->tokens + c->n_common, n, error));
    putchar('\n');
    return RAMET_OK;
}

static ramet_status print_text(const comparison *c, ramet_error *error) {
    uint32_t n_shown = c->n_common < SHOWN_BEFORE ? c->n_common : SHOWN_BEFORE;
    print_name("a", &c->a);
    print_name("b", &c->b);
    printf("common          %" PRIu32 " tokens", c->n_common);
    if (n_shown > 0) fputs(", at the end ", stdout);
    if (n_shown > 0) RAMET_TRY(ramet_preview_print(c->model, c->a.tokens + c->n_common - n_shown, n_shown, error));
    putchar('\n');
    RAMET_TRY(print_rest(c, "a goes on", &c->a, error));
    RAMET_TRY(print_rest(c, "b goes on", &c->b, error));
    if (c->n_common > 0) printf("common state    %s\n", describe_state(c));
    for (fact f = 0; f < N_FACTS; f++) {
        if (!differs(c, f)) continue;
        fact_text a = describe(&c->a.info, f), b = describe(&c->b.info, f);
        printf("%-15s ", fact_names[f]);
        ramet_print_clean(stdout, a.text[0] ? a.text : "-");
        fputs(" | ", stdout);
        ramet_print_clean(stdout, b.text[0] ? b.text : "-");
        putchar('\n');
    }
    return RAMET_OK;
}

static ramet_status write_side(const comparison *c, ramet_json *j, const char *key, const side *s, ramet_error *error) {
    const int32_t *rest = s->tokens + c->n_common;
    uint32_t n = s->n - c->n_common;
    ramet_json_object_begin(j, key);
    ramet_json_string(j, "file", s->name);
    ramet_json_u64(j, "tokens", s->n);
    ramet_json_tokens(j, "goes_on", rest, n);
    if (c->model) {
        char *text;
        size_t bytes;
        RAMET_TRY(ramet_detokenize(c->model, rest, n, true, &text, &bytes, error));
        ramet_json_text(j, "text", text, bytes);
        free(text);
    }
    ramet_json_object_end(j);
    return RAMET_OK;
}

static ramet_status write_json(const comparison *c, ramet_error *error) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_u64(&j, "common_tokens", c->n_common);
    if (is_lossy(c))
        ramet_json_null(&j, "same_state");
    else
        ramet_json_bool(&j, "same_state", is_same_state(c));
    RAMET_TRY(write_side(c, &j, "a", &c->a, error));
    RAMET_TRY(write_side(c, &j, "b", &c->b, error));
    ramet_json_array_begin(&j, "differences");
    for (fact f = 0; f < N_FACTS; f++) {
        if (!differs(c, f)) continue;
        ramet_json_object_begin(&j, NULL);
        ramet_json_string(&j, "field", fact_names[f]);
        ramet_json_string(&j, "a", describe(&c->a.info, f).text);
        ramet_json_string(&j, "b", describe(&c->b.info, f).text);
        ramet_json_object_end(&j);
    }
    ramet_json_array_end(&j);
    ramet_json_object_end(&j);
    return RAMET_OK;
}

/* ---- command ---- */

static ramet_status read_side(const ramet_options *o, const char *name, side *s, ramet_error *error) {
    ramet_policy policy;
    s->name = name;
    RAMET_TRY(ramet_input_file_open(name, &s->file, error));
    RAMET_TRY(ramet_snapshot_read_info(s->file.path, &s->info, error));
    RAMET_TRY(ramet_policy_open_for(o, &s->info, &policy, error));
    ramet_status status = ramet_snapshot_read_tokens(s->file.path, &policy.rules, &s->tokens, &s->n, error);
    ramet_policy_close(&policy);
    return status;
}

static ramet_status check_vocabulary(const side *s, const ramet_session *session, ramet_error *error) {
    if (strcmp(s->info.tokenizer_sha256, session->info.tokenizer_sha256) == 0) return RAMET_OK;
    return ramet_fail(error, RAMET_E_MODEL_MISMATCH, "%s has another vocabulary (%.16s...) than %s (%.16s...)", s->name,
                      s->info.tokenizer_sha256, session->info.path, session->info.tokenizer_sha256);
}

static ramet_status compare(const ramet_options *o, comparison *c, ramet_session *session, ramet_error *error) {
    RAMET_TRY(read_side(o, o->args[0], &c->a, error));
    RAMET_TRY(read_side(o, o->args[1], &c->b, error));
    while (c->n_common < c->a.n && c->n_common < c->b.n && c->a.tokens[c->n_common] == c->b.tokens[c->n_common])
        c->n_common++;
    if (o->model) {
        RAMET_TRY(ramet_session_open(o, session, error));
        RAMET_TRY(check_vocabulary(&c->a, session, error));
        RAMET_TRY(check_vocabulary(&c->b, session, error));
        c->model = session->model;
    }
    return o->json ? write_json(c, error) : print_text(c, error);
}

static void close_side(side *s, ramet_status status, ramet_error *error) {
    if (status != RAMET_OK) ramet_input_file_explain(&s->file, error);
    ramet_input_file_close(&s->file);
    free(s->tokens);
}

ramet_status ramet_cmd_ctx_diff(const ramet_options *o, ramet_error *error) {
    comparison c = {0};
    ramet_session session = {0};
    if (strcmp(o->args[0], "-") == 0 && strcmp(o->args[1], "-") == 0)
        return ramet_fail(error, RAMET_E_ARGUMENT, "both contexts want standard input");
    ramet_status status = compare(o, &c, &session, error);
    ramet_session_close(&session);
    close_side(&c.a, status, error);
    close_side(&c.b, status, error);
    return status;
}
