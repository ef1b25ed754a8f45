/* cmd_ctx_fork.c - `ramet ctx fork`: restore, fork n times, and show what that cost beside n copies. */
#include "base/clock.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/session.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct report {
    uint32_t n_tokens;
    uint64_t restore_nanoseconds, nanoseconds; /* of all forks together */
    uint64_t reachable, pages_allocated, pages_a_copy_would_need;
    uint64_t bytes_held, bytes_of_copies; /* source and branches, as forks and as copies */
} report;

static ramet_status measure(ramet_session *s, ramet_context *source, ramet_context **forks, uint32_t n, report *r,
                            ramet_error *error) {
    ramet_engine_stats before, after;
    uint64_t exclusive;
    ramet_engine_get_stats(s->engine, &before);
    uint64_t start = ramet_now_nanoseconds();
    for (uint32_t i = 0; i < n; i++) RAMET_TRY(ramet_context_fork(source, &forks[i], error));
    r->nanoseconds = ramet_now_nanoseconds() - start;
    ramet_engine_get_stats(s->engine, &after);
    RAMET_TRY(ramet_context_pages(source, &r->reachable, &exclusive, error));
    r->n_tokens = ramet_context_length(source);
    r->pages_allocated = after.pages_allocated - before.pages_allocated;
    r->pages_a_copy_would_need = n * r->reachable;
    r->bytes_held = after.pages_live * s->engine_info.page_bytes;
    r->bytes_of_copies = (n + UINT64_C(1)) * r->reachable * s->engine_info.page_bytes;
    return RAMET_OK;
}

static void print_text(const ramet_options *o, const ramet_session *s, const report *r) {
    printf("source               %s, %" PRIu32 " tokens of %s\n", o->input, r->n_tokens, s->info.name);
    printf("branches             %" PRIu32 " in %s, %s each\n", o->n_forks, ramet_label_duration(r->nanoseconds).text,
           ramet_label_duration(r->nanoseconds / o->n_forks).text);
    printf("pages allocated      %" PRIu64 "\n", r->pages_allocated);
    printf("pages copies need    %" PRIu64 " (%" PRIu64 " each)\n", r->pages_a_copy_would_need, r->reachable);
    printf("memory held          %s\n", ramet_label_bytes(r->bytes_held).text);
    printf("memory of copies     %s\n", ramet_label_bytes(r->bytes_of_copies).text);
}

static void print_json(const ramet_options *o, const ramet_session *s, const report *r) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    ramet_json_string(&j, "source", o->input);
    ramet_json_string(&j, "model", s->info.name);
    ramet_json_u64(&j, "tokens", r->n_tokens);
    ramet_json_u64(&j, "restore_nanoseconds", r->restore_nanoseconds);
    ramet_json_u64(&j, "branches", o->n_forks);
    ramet_json_u64(&j, "nanoseconds", r->nanoseconds);
    ramet_json_double(&j, "nanoseconds_each", (double)r->nanoseconds / o->n_forks);
    ramet_json_u64(&j, "pages_allocated", r->pages_allocated);
    ramet_json_u64(&j, "pages_a_copy_would_need", r->pages_a_copy_would_need);
    ramet_json_u64(&j, "page_bytes", s->engine_info.page_bytes);
    ramet_json_u64(&j, "bytes_held", r->bytes_held);
    ramet_json_u64(&j, "bytes_of_copies", r->bytes_of_copies);
    ramet_json_object_end(&j);
}

static ramet_status fork_source(const ramet_options *o, ramet_session *s, ramet_context *source, report *r,
                                ramet_error *error) {
    ramet_context **forks = ramet_alloc(o->n_forks, sizeof *forks);
    if (!forks) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for %" PRIu32 " branches", o->n_forks);
    ramet_status status = measure(s, source, forks, o->n_forks, r, error);
    for (uint32_t i = 0; i < o->n_forks; i++) ramet_drop(&forks[i]);
    free(forks);
    return status;
}

static ramet_status run(const ramet_options *o, const char *path, ramet_session *s, ramet_error *error) {
    ramet_snapshot_info info;
    ramet_context *source;
    report r = {0};
    RAMET_TRY(ramet_snapshot_read_info(path, &info, error));
    RAMET_TRY(ramet_session_open_for(o, &info, s, error));
    ramet_options with_kv = *o;
    if (!o->has_kv) with_kv.kv = info.kv; /* the cache it was made at */
    RAMET_TRY(ramet_session_start(s, &with_kv, 0, error));
    uint64_t start = ramet_now_nanoseconds();
    RAMET_TRY(ramet_snapshot_restore(s->engine, path, NULL, &source, NULL, NULL, error));
    r.restore_nanoseconds = ramet_now_nanoseconds() - start;
    ramet_status status = fork_source(o, s, source, &r, error);
    ramet_drop(&source);
    if (status != RAMET_OK) return status;
    if (o->json)
        print_json(o, s, &r);
    else
        print_text(o, s, &r);
    return RAMET_OK;
}

ramet_status ramet_cmd_ctx_fork(const ramet_options *o, ramet_error *error) {
    ramet_input_file file;
    ramet_session s = {0};
    if (!o->input) return ramet_fail(error, RAMET_E_ARGUMENT, "which context? Give -i FILE.ramet");
    RAMET_TRY(ramet_input_file_open(o->input, &file, error));
    ramet_status status = run(o, file.path, &s, error);
    if (status != RAMET_OK) ramet_input_file_explain(&file, error);
    ramet_session_close(&s);
    ramet_input_file_close(&file);
    return status;
}
