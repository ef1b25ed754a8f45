/* session.h - what most commands begin with: the model that -m means, an engine as the options want it, and the inputs
 * (text, token ids, saved contexts) from the command line, files or standard input. */
#ifndef RAMET_CLI_SESSION_H
#define RAMET_CLI_SESSION_H

#include "cli/console.h"

typedef struct ramet_session {
    ramet_model *model;
    ramet_model_info info;
    ramet_engine *engine; /* NULL until ramet_session_start */
    ramet_engine_info engine_info;
} ramet_session;

/* Opens the model. On failure nothing is left open. */
ramet_status ramet_session_open(const ramet_options *o, ramet_session *out, ramet_error *error);
/* The same for a saved context: without -m, the model on this machine that made it. */
ramet_status ramet_session_open_for(const ramet_options *o, const ramet_snapshot_info *snapshot, ramet_session *out,
                                    ramet_error *error);
/* n_ctx is used when -c was not given; 0 is the engine's own choice. */
ramet_status ramet_session_start(ramet_session *s, const ramet_options *o, uint32_t n_ctx, ramet_error *error);
ramet_engine_options ramet_engine_options_of(const ramet_options *o);
void ramet_session_close(ramet_session *s);

/* The text of -p or -f, malloc'ed. E_ARGUMENT when neither was given. */
ramet_status ramet_input_text(const ramet_options *o, char **out, size_t *out_bytes, ramet_error *error);
/* Token ids separated by commas, white space or brackets; *out is malloc'ed. `what` names the text in an error. */
ramet_status ramet_input_tokens(const char *text, size_t bytes, const char *what, int32_t **out, size_t *out_n,
                                ramet_error *error);

/* A snapshot as a file: "-" is copied from standard input to a scratch file, which `close` removes. */
typedef struct ramet_input_file {
    const char *path;
    ramet_scratch scratch;
} ramet_input_file;
ramet_status ramet_input_file_open(const char *path, ramet_input_file *out, ramet_error *error);
void ramet_input_file_close(ramet_input_file *f);
/* An error about the copy becomes one about standard input; not after `close`. */
void ramet_input_file_explain(const ramet_input_file *f, ramet_error *error);

/* Fails now, not after minutes of work, when `path` cannot become a file: its directory is missing or closed to us, or
 * it is a directory or a device, which a rename would replace. "-" is fine. */
ramet_status ramet_output_check(const char *path, ramet_error *error);
/* Saves with signals held back, so that none leaves a temporary file; E_INTERRUPTED if one came. */
ramet_status ramet_save_patiently(ramet_context *context, const char *path, const ramet_snapshot_options *options,
                                  ramet_snapshot_info *out_info, ramet_error *error);
/* Closes a context that nobody else can be inside. */
void ramet_drop(ramet_context **context);

#endif
