/* commands.h - one function per command. Each reports failure as a status; main.c prints it and picks the exit code. */
#ifndef RAMET_CLI_COMMANDS_H
#define RAMET_CLI_COMMANDS_H

#include "cli/options.h"

typedef ramet_status (*ramet_command_fn)(const ramet_options *o, ramet_error *error);

ramet_status ramet_cmd_run(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_ctx_build(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_ctx_fork(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_ctx_info(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_ctx_tree(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_ctx_diff(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_ctx_convert(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_bench(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_verify(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_tokenize(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_detokenize(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_logits(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_perplexity(const ramet_options *o, ramet_error *error);
ramet_status ramet_cmd_models(const ramet_options *o, ramet_error *error);

#endif
