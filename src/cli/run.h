/* run.h - one execution of `ramet run`, shared by the loop (cmd_run.c) and its report (run_report.c). */
#ifndef RAMET_CLI_RUN_H
#define RAMET_CLI_RUN_H

#include "base/clock.h"
#include "cli/session.h"

typedef struct ramet_branch {
    ramet_context *context;
    ramet_detokenizer *detokenizer;
    ramet_sampler sampler;
    int32_t *history; /* the prompt, then `tokens` */
    int32_t *tokens;  /* sampled, a token that ended the text included */
    size_t n_tokens;
    char *text;
    size_t text_bytes, text_capacity;
    double logprob;   /* sum over `tokens`, under the unmodified softmax */
    const char *stop; /* NULL while it runs: end, length, window, interrupted */
} ramet_branch;

typedef struct ramet_run {
    const ramet_options *o;
    ramet_session s;
    ramet_input_file input; /* with -i */
    bool streams;
    ramet_context *root;
    uint32_t n_prompt, n_reused, n_prefilled;
    uint32_t n_most; /* tokens a branch can sample */
    uint32_t n_branches;
    size_t n_together; /* of them go through the model in one batch */
    ramet_branch *branches;
    ramet_batch_item *items;
    void *scratch; /* of the sampler */
    uint64_t restore_nanoseconds, prefill_nanoseconds, first_token_nanoseconds, decode_nanoseconds;
    uint64_t n_decoded; /* tokens that went through the model after the prompt, all branches */
} ramet_run;

void ramet_run_print(const ramet_run *r);

#endif
