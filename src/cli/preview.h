/* preview.h - how a run of tokens begins, on one line of a terminal: as text where there is a model, else as ids. */
#ifndef RAMET_CLI_PREVIEW_H
#define RAMET_CLI_PREVIEW_H

#include "base/error.h"

/* Prints to standard output, quoted: "In the begin..." or [1 20 300 ...]. `model` may be NULL. */
ramet_status ramet_preview_print(const ramet_model *model, const int32_t *tokens, size_t n, ramet_error *error);

#endif
