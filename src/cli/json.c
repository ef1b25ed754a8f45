/* json.c - see json.h. */
#include "cli/json.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void write_escaped(FILE *out, const char *text, size_t bytes) {
    fputc('"', out);
    for (size_t i = 0; i < bytes;) {
        size_t length;
        ramet_utf8 kind = ramet_utf8_scan(text + i, bytes - i, &length);
        unsigned char c = (unsigned char)text[i];
        if (kind != RAMET_UTF8_WHOLE)
            fputs(RAMET_UTF8_REPLACEMENT, out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c == '\t')
            fputs("\\t", out);
        else if (c < 0x20 || c == 0x7F)
            fprintf(out, "\\u%04x", c);
        else
            fwrite(text + i, 1, length, out);
        i += length;
    }
    fputc('"', out);
}

static void begin_value(ramet_json *j, const char *key) {
    if (j->needs_comma) fputc(',', j->out);
    j->needs_comma = true;
    if (!key) return;
    write_escaped(j->out, key, strlen(key));
    fputc(':', j->out);
}

static void open_with(ramet_json *j, const char *key, char bracket) {
    begin_value(j, key);
    fputc(bracket, j->out);
    j->needs_comma = false;
    j->depth++;
}

static void close_with(ramet_json *j, char bracket) {
    fputc(bracket, j->out);
    j->needs_comma = true;
    if (--j->depth == 0) fputc('\n', j->out);
}

void ramet_json_object_begin(ramet_json *j, const char *key) {
    open_with(j, key, '{');
}
void ramet_json_object_end(ramet_json *j) {
    close_with(j, '}');
}
void ramet_json_array_begin(ramet_json *j, const char *key) {
    open_with(j, key, '[');
}
void ramet_json_array_end(ramet_json *j) {
    close_with(j, ']');
}

void ramet_json_text(ramet_json *j, const char *key, const char *text, size_t bytes) {
    begin_value(j, key);
    write_escaped(j->out, text, bytes);
}

void ramet_json_string(ramet_json *j, const char *key, const char *text) {
    if (text)
        ramet_json_text(j, key, text, strlen(text));
    else
        ramet_json_null(j, key);
}

void ramet_json_u64(ramet_json *j, const char *key, uint64_t value) {
    begin_value(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void ramet_json_i64(ramet_json *j, const char *key, int64_t value) {
    begin_value(j, key);
    fprintf(j->out, "%" PRId64, value);
}

void ramet_json_double(ramet_json *j, const char *key, double value) {
    if (!isfinite(value)) {
        ramet_json_null(j, key);
        return;
    }
    char text[32];
    snprintf(text, sizeof text, "%.10g", value);
    if (!isfinite(strtod(text, NULL))) snprintf(text, sizeof text, "%.17g", value); /* rounded past the largest */
    begin_value(j, key);
    fputs(text, j->out);
}

void ramet_json_bool(ramet_json *j, const char *key, bool value) {
    begin_value(j, key);
    fputs(value ? "true" : "false", j->out);
}

void ramet_json_null(ramet_json *j, const char *key) {
    begin_value(j, key);
    fputs("null", j->out);
}

void ramet_json_tokens(ramet_json *j, const char *key, const int32_t *tokens, size_t n) {
    ramet_json_array_begin(j, key);
    for (size_t i = 0; i < n; i++) ramet_json_i64(j, NULL, tokens[i]);
    ramet_json_array_end(j);
}
