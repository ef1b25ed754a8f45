/* error.h - one currency for failure: a ramet_status, and a caller-owned ramet_error with one line of text.
 * Owns the filling of errors and the assert for broken invariants. Refuses to know what failed. */
#ifndef RAMET_BASE_ERROR_H
#define RAMET_BASE_ERROR_H

#include "ramet.h"

/* Fills *error (if not NULL) and returns `code`. Messages say what, which file or field, and what to do. */
ramet_status ramet_fail(ramet_error *error, ramet_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with errno's text appended; ENOSPC, EDQUOT become E_NO_DISK and ENOMEM E_NO_MEMORY, ENOENT E_NOT_FOUND. */
ramet_status ramet_fail_errno(ramet_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts "prefix: " in front of the message; returns error's code, or `code` when error is NULL. */
ramet_status ramet_fail_prefix(ramet_error *error, ramet_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A broken invariant of ours (never something that came from outside). Kept in release builds. */
_Noreturn void ramet_panic(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define RAMET_ASSERT(condition, ...)                                                                                   \
    do {                                                                                                               \
        if (!(condition)) ramet_panic(__FILE__, __LINE__, __VA_ARGS__);                                                \
    } while (0)

#define RAMET_TRY(expression)                                                                                          \
    do {                                                                                                               \
        ramet_status try_status_ = (expression);                                                                       \
        if (try_status_ != RAMET_OK) return try_status_;                                                               \
    } while (0)

#endif
