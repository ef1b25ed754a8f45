/* options.h - the one table of options: parsing, help and spelling suggestions are all made from it.
 * Owns the values a command line sets. Refuses to know what commands do with them. */
#ifndef RAMET_CLI_OPTIONS_H
#define RAMET_CLI_OPTIONS_H

#include "base/error.h"

#include <stdio.h>

/* Which commands an option belongs to. */
enum {
    RAMET_CMD_RUN = 1 << 0,
    RAMET_CMD_BUILD = 1 << 1,
    RAMET_CMD_FORK = 1 << 2,
    RAMET_CMD_INFO = 1 << 3,
    RAMET_CMD_TREE = 1 << 4,
    RAMET_CMD_BENCH = 1 << 5,
    RAMET_CMD_VERIFY = 1 << 6,
    RAMET_CMD_TOKENIZE = 1 << 7,
    RAMET_CMD_DETOKENIZE = 1 << 8,
    RAMET_CMD_LOGITS = 1 << 9,
    RAMET_CMD_PERPLEXITY = 1 << 10,
    RAMET_CMD_MODELS = 1 << 11,
    RAMET_CMD_CONVERT = 1 << 12,
    RAMET_CMD_DIFF = 1 << 13,
};

/* A string is NULL when its option was not given. Numbers hold their defaults. */
typedef struct ramet_options {
    bool help, quiet, json;

    const char *model;
    const char *lora; /* FILE or FILE=scale, as typed */
    uint32_t threads, ctx_size, page_tokens;
    ramet_kv kv;
    bool has_kv; /* it was given */
    uint64_t kv_budget_bytes;
    const char *spill_directory;
    const char *kernels;
    bool no_digest_cache;

    const char *prompt, *file, *input, *output, *tokens_file;
    const char *context_key; /* a file */
    bool key_of_environment; /* no option names it, RAMET_CONTEXT_KEY does */
    bool allow_legacy, allow_lossy;
    const char *payload; /* a precision's name */
    const char *encrypt; /* a key file for what is written */
    bool decrypt;
    uint64_t generation, min_generation;
    const char *profile; /* "enterprise" */
    bool special;

    uint32_t n_generate, branches;
    bool ignore_eos;
    uint64_t seed;
    ramet_sampler sampler; /* parameters only; the command seeds it */

    uint32_t n_forks;
    bool verify;

    const char *rows;
    uint32_t chunk, restore_at;
    uint32_t window;

    uint32_t bench_forks, bench_prompt, bench_generate, bench_reps;
    const char *bench_branches; /* counts, as typed */

    char **args; /* what is left after the options */
    size_t n_args;
} ramet_options;

void ramet_options_defaults(ramet_options *out);
/* argv[0] is skipped. E_ARGUMENT names what is wrong and the nearest spelling. May permute argv. */
ramet_status ramet_options_parse(int argc, char **argv, unsigned command, ramet_options *out, ramet_error *error);
/* The lines of help of one command, with defaults. */
void ramet_options_help(FILE *out, unsigned command);

/* "8G", "512MiB", "1.5K", "4096": powers of 1024. */
bool ramet_parse_size(const char *text, uint64_t *out);
/* A whole decimal number; false on anything else, also on overflow. */
bool ramet_parse_u64(const char *text, uint64_t *out);
bool ramet_parse_float(const char *text, float *out);

/* Edit distance with transpositions, of bytes, case ignored; long words are cut. */
unsigned ramet_edit_distance(const char *a, const char *b);
/* True when `candidate` is close enough to `typed` to be worth suggesting. */
bool ramet_is_near(const char *typed, const char *candidate, unsigned *io_best);

#endif
