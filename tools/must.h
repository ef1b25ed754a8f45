/* must.h - for programs that measure or check and have nothing to clean up: what fails ends them, with its message. */
#ifndef RAMET_TOOLS_MUST_H
#define RAMET_TOOLS_MUST_H

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

static inline void must(const char *program, ramet_status status, const ramet_error *error) {
    if (status == RAMET_OK) return;
    fprintf(stderr, "%s: %s\n", program, error->message);
    exit(1);
}

/* `expression` says `error` where it wants a ramet_error *; PROGRAM is the name of the program. */
#define MUST(expression)                                                                                               \
    do {                                                                                                               \
        ramet_error error_ = {0};                                                                                      \
        ramet_error *const error = &error_;                                                                            \
        must(PROGRAM, (expression), error);                                                                            \
    } while (0)

#endif
