/* json.h - a streaming JSON writer: values go out as they are given, commas and escapes are its business.
 * Owns nothing but the place in the document. The caller balances begin and end. Inside an array `key` is NULL. */
#ifndef RAMET_CLI_JSON_H
#define RAMET_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct ramet_json {
    FILE *out;
    bool needs_comma;
    unsigned depth;
} ramet_json;

void ramet_json_object_begin(ramet_json *j, const char *key);
void ramet_json_object_end(ramet_json *j);
void ramet_json_array_begin(ramet_json *j, const char *key);
void ramet_json_array_end(ramet_json *j);
void ramet_json_string(ramet_json *j, const char *key, const char *text); /* NULL is null */
/* Any bytes; what is not UTF-8 becomes U+FFFD, one per broken sequence. */
void ramet_json_text(ramet_json *j, const char *key, const char *text, size_t bytes);
void ramet_json_u64(ramet_json *j, const char *key, uint64_t value);
void ramet_json_i64(ramet_json *j, const char *key, int64_t value);
void ramet_json_double(ramet_json *j, const char *key, double value); /* null when it is no number */
void ramet_json_bool(ramet_json *j, const char *key, bool value);
void ramet_json_null(ramet_json *j, const char *key);
void ramet_json_tokens(ramet_json *j, const char *key, const int32_t *tokens, size_t n);

#endif
