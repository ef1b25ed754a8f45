/* error.c - see error.h. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *text;
    int http, exit_code;
} table[] = {
#define ROW(code, name, text, http, exit_code) [code] = {#name, text, http, exit_code},
    RAMET_STATUS_MAP(ROW)
#undef ROW
};

static size_t row_of(ramet_status code) {
    size_t n = sizeof table / sizeof table[0];
    return (size_t)code < n ? (size_t)code : (size_t)RAMET_E_FAILED;
}

const char *ramet_status_name(ramet_status code) {
    return table[row_of(code)].name;
}
const char *ramet_status_text(ramet_status code) {
    return table[row_of(code)].text;
}
int ramet_status_exit_code(ramet_status code) {
    return table[row_of(code)].exit_code;
}
int ramet_status_http(ramet_status code) {
    return table[row_of(code)].http;
}

static void fill(ramet_error *error, ramet_status code, int os_errno, const char *format, va_list args) {
    if (!error) return;
    error->code = code;
    error->os_errno = os_errno;
    vsnprintf(error->message, sizeof error->message, format, args);
    for (char *c = error->message; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?'; /* names from files stay on one line */
}

ramet_status ramet_fail(ramet_error *error, ramet_status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(error, code, 0, format, args);
    va_end(args);
    return code;
}

static ramet_status status_of_errno(int os_errno) {
    switch (os_errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return RAMET_E_NO_DISK;
    case ENOMEM: return RAMET_E_NO_MEMORY;
    case ENOENT: return RAMET_E_NOT_FOUND;
    case EINTR: return RAMET_E_INTERRUPTED;
    default: return RAMET_E_IO;
    }
}

ramet_status ramet_fail_errno(ramet_error *error, const char *format, ...) {
    int saved = errno;
    ramet_status code = status_of_errno(saved);
    va_list args;
    va_start(args, format);
    fill(error, code, saved, format, args);
    va_end(args);
    if (error) {
        size_t used = strlen(error->message);
        snprintf(error->message + used, sizeof error->message - used, ": %s", strerror(saved));
    }
    return code;
}

ramet_status ramet_fail_prefix(ramet_error *error, ramet_status code, const char *format, ...) {
    if (!error) return code;
    char old[sizeof error->message];
    memcpy(old, error->message, sizeof old);
    va_list args;
    va_start(args, format);
    fill(error, error->code, error->os_errno, format, args);
    va_end(args);
    size_t used = strlen(error->message);
    snprintf(error->message + used, sizeof error->message - used, ": %s", old);
    return error->code;
}

void ramet_panic(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "ramet: broken invariant at %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}
