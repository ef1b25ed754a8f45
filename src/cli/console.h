/* console.h - talk on standard error, numbers for people, and what an interrupt does.
 * Owns the signal handlers; the files that a signal removes before it ends the process are registered in base. */
#ifndef RAMET_CLI_CONSOLE_H
#define RAMET_CLI_CONSOLE_H

#include "base/temporary.h"
#include "cli/options.h"

/* One line to standard error, unless --quiet. */
void ramet_say(const ramet_options *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Text out of a file or a file's name, for a terminal: control characters become '?'. */
void ramet_print_clean(FILE *out, const char *text);

/* A line that overwrites itself, on a terminal only; done == total takes it away. */
void ramet_progress(const ramet_options *o, const char *what, uint64_t done, uint64_t total);

/* For use inside a printf call: ramet_label_bytes(n).text */
typedef struct ramet_label {
    char text[32];
} ramet_label;
ramet_label ramet_label_bytes(uint64_t bytes);                /* "552.14 KiB" */
ramet_label ramet_label_duration(uint64_t nanoseconds);       /* "175 ms" */
ramet_label ramet_label_count(uint64_t n);                    /* "1,024" */
double ramet_per_second(double amount, uint64_t nanoseconds); /* NaN when no time passed */

/* SIGINT, SIGTERM, SIGHUP and SIGPIPE end the process with 128 + the signal's number, after removing temporary files.
 * While a command is patient the first one, unless it is SIGPIPE, only sets a flag, so that it can end between two
 * steps. */
void ramet_signals_install(void);
void ramet_signals_patient(bool patient);
bool ramet_interrupted(void);
ramet_status ramet_check_interrupt(ramet_error *error);

/* Where temporary files go: TMPDIR, or /tmp. */
const char *ramet_temporary_parent(void);

#endif
