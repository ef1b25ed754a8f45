/* run_report.c - what `ramet run` prints at its end: texts of several branches, JSON, and a line about speed. */
#include "cli/json.h"
#include "cli/run.h"

#include <inttypes.h>

static const ramet_branch *best_branch(const ramet_run *r) {
    const ramet_branch *best = &r->branches[0];
    for (uint32_t i = 1; i < r->n_branches; i++)
        if (r->branches[i].logprob > best->logprob) best = &r->branches[i];
    return best;
}

static void write_branch(ramet_json *j, const ramet_branch *b) {
    ramet_json_text(j, "text", b->text ? b->text : "", b->text_bytes);
    ramet_json_tokens(j, "tokens", b->tokens, b->n_tokens);
    ramet_json_double(j, "log_probability", b->logprob);
    ramet_json_string(j, "stop_reason", b->stop);
}

static void write_spill(ramet_json *j, const ramet_run *r) {
    ramet_engine_stats stats;
    ramet_engine_get_stats(r->s.engine, &stats);
    ramet_json_object_begin(j, "spill");
    ramet_json_u64(j, "budget_bytes", r->s.engine_info.kv_budget_bytes);
    ramet_json_u64(j, "memory_bytes", stats.memory_bytes);
    ramet_json_u64(j, "spilled_bytes", stats.spilled_bytes);
    ramet_json_u64(j, "blocks_spilled", stats.blocks_spilled);
    ramet_json_u64(j, "blocks_read_back", stats.blocks_read_back);
    ramet_json_u64(j, "spill_bytes", stats.spill_bytes);
    ramet_json_u64(j, "read_back_bytes", stats.read_back_bytes);
    ramet_json_u64(j, "spill_nanoseconds", stats.spill_nanoseconds);
    ramet_json_u64(j, "read_back_nanoseconds", stats.read_back_nanoseconds);
    ramet_json_object_end(j);
}

static void print_json(const ramet_run *r) {
    ramet_json j = {.out = stdout};
    ramet_json_object_begin(&j, NULL);
    write_branch(&j, best_branch(r));
    ramet_json_u64(&j, "prompt_tokens", r->n_prompt);
    ramet_json_u64(&j, "reused_tokens", r->n_reused);
    ramet_json_u64(&j, "prefilled_tokens", r->n_prefilled);
    ramet_json_string(&j, "tier", r->o->input ? "snapshot" : "none");
    ramet_json_u64(&j, "load_nanoseconds", r->s.info.load_nanoseconds);
    ramet_json_u64(&j, "restore_nanoseconds", r->restore_nanoseconds);
    ramet_json_u64(&j, "time_to_first_token_nanoseconds", r->first_token_nanoseconds);
    ramet_json_u64(&j, "prefill_nanoseconds", r->prefill_nanoseconds);
    ramet_json_double(&j, "prefill_tokens_per_second", ramet_per_second(r->n_prefilled, r->prefill_nanoseconds));
    ramet_json_u64(&j, "decode_tokens", r->n_decoded);
    ramet_json_u64(&j, "decode_nanoseconds", r->decode_nanoseconds);
    ramet_json_double(&j, "decode_tokens_per_second", ramet_per_second((double)r->n_decoded, r->decode_nanoseconds));
    ramet_json_u64(&j, "seed", r->o->seed);
    ramet_json_string(&j, "model", r->s.info.name);
    ramet_json_string(&j, "kv", ramet_kv_name(r->s.engine_info.kv));
    ramet_json_string(&j, "kernels", r->s.engine_info.kernels);
    ramet_json_string(&j, "numerics_id", r->s.engine_info.numerics_id);
    if (r->o->spill_directory) write_spill(&j, r);
    ramet_json_u64(&j, "best", (uint64_t)(best_branch(r) - r->branches));
    ramet_json_array_begin(&j, "branches");
    for (uint32_t i = 0; i < r->n_branches; i++) {
        ramet_json_object_begin(&j, NULL);
        write_branch(&j, &r->branches[i]);
        ramet_json_object_end(&j);
    }
    ramet_json_array_end(&j);
    ramet_json_object_end(&j);
}

static void print_branches(const ramet_run *r) {
    for (uint32_t i = 0; i < r->n_branches; i++) {
        const ramet_branch *b = &r->branches[i];
        printf("branch %" PRIu32 ": log-probability %.4f, %zu tokens\n", i, b->logprob, b->n_tokens);
        if (b->text_bytes) fwrite(b->text, 1, b->text_bytes, stdout);
        printf("\n%s", i + 1 < r->n_branches ? "\n" : "");
    }
}

void ramet_run_print(const ramet_run *r) {
    if (r->o->json)
        print_json(r);
    else if (!r->streams)
        print_branches(r);
    else
        fputc('\n', stdout);
    fflush(stdout);
    if (r->n_decoded)
        ramet_say(r->o, "decoded %" PRIu64 " tokens in %s, %.1f per second", r->n_decoded,
                  ramet_label_duration(r->decode_nanoseconds).text,
                  ramet_per_second((double)r->n_decoded, r->decode_nanoseconds));
    if (r->branches[0].stop && r->n_branches == 1 && r->branches[0].n_tokens >= r->n_most &&
        r->n_most < r->o->n_generate)
        ramet_say(r->o, "stopped: the context window of %" PRIu32 " tokens is full", r->s.engine_info.n_ctx);
}
