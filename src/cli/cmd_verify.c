/* cmd_verify.c - `ramet verify`: the library's own checks as a table or as JSON, each row shown as it ends. */
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/session.h"

typedef struct printer {
    bool is_json;
    ramet_json json;
} printer;

static const char *verdict_name(ramet_verdict verdict) {
    static const char *const names[] = {[RAMET_PASS] = "pass", [RAMET_NOTE] = "note", [RAMET_FAIL] = "FAIL"};
    return names[verdict];
}

static void print_row(void *user, const ramet_verify_row *row) {
    printer *p = user;
    if (!p->is_json) {
        printf("%-36s  %-6s  %s\n", row->check, verdict_name(row->verdict), row->detail);
        fflush(stdout);
        return;
    }
    ramet_json_object_begin(&p->json, NULL);
    ramet_json_string(&p->json, "check", row->check);
    ramet_json_string(&p->json, "result", verdict_name(row->verdict));
    ramet_json_string(&p->json, "detail", row->detail);
    ramet_json_object_end(&p->json);
}

static void begin(printer *p, const ramet_model_info *info) {
    if (!p->is_json) {
        printf("%-36s  %-6s  %s\n", "check", "result", "detail");
        return;
    }
    ramet_json_object_begin(&p->json, NULL);
    ramet_json_string(&p->json, "version", ramet_version());
    ramet_json_string(&p->json, "model", info->name);
    ramet_json_string(&p->json, "arch", info->arch);
    ramet_json_array_begin(&p->json, "rows");
}

ramet_status ramet_cmd_verify(const ramet_options *o, ramet_error *error) {
    ramet_session s;
    RAMET_TRY(ramet_session_open(o, &s, error));
    ramet_engine_options options = ramet_engine_options_of(o);
    if (!options.spill_directory) options.spill_directory = ramet_temporary_parent();
    printer p = {.is_json = o->json, .json = {.out = stdout}};
    uint32_t n_failed = 0;
    begin(&p, &s.info);
    ramet_status status = ramet_verify(s.model, &options, print_row, &p, &n_failed, error);
    if (o->json) {
        ramet_json_array_end(&p.json);
        ramet_json_u64(&p.json, "failed", n_failed);
        ramet_json_bool(&p.json, "complete", status == RAMET_OK);
        ramet_json_object_end(&p.json);
    }
    if (status == RAMET_OK && n_failed > 0)
        status = ramet_fail(error, RAMET_E_INVARIANT, "%s: %u of the checks failed", s.info.path, n_failed);
    ramet_session_close(&s);
    return status;
}
