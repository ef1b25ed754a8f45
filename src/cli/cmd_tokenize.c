/* cmd_tokenize.c - `ramet tokenize` and `ramet detokenize`. */
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/session.h"

#include <stdlib.h>
#include <string.h>

static ramet_status tokenize(const ramet_options *o, const char *text, size_t bytes, ramet_error *error) {
    ramet_session s;
    int32_t *tokens;
    size_t n;
    RAMET_TRY(ramet_session_open(o, &s, error));
    unsigned flags = o->special ? RAMET_TOKENIZE_SPECIAL : 0;
    ramet_status status = ramet_tokenize(s.model, text, bytes, flags, &tokens, &n, error);
    if (status == RAMET_OK) {
        ramet_json j = {.out = stdout};
        ramet_json_tokens(&j, NULL, tokens, n);
        free(tokens);
    }
    ramet_session_close(&s);
    return status;
}

ramet_status ramet_cmd_tokenize(const ramet_options *o, ramet_error *error) {
    char *text;
    size_t bytes;
    RAMET_TRY(ramet_input_text(o, &text, &bytes, error));
    ramet_status status = tokenize(o, text, bytes, error);
    free(text);
    return status;
}

static ramet_status detokenize(const ramet_options *o, const int32_t *tokens, size_t n, ramet_error *error) {
    ramet_session s;
    char *text;
    size_t bytes;
    RAMET_TRY(ramet_session_open(o, &s, error));
    ramet_status status = ramet_detokenize(s.model, tokens, n, o->special, &text, &bytes, error);
    if (status == RAMET_OK) {
        ramet_json j = {.out = stdout};
        if (o->json) {
            ramet_json_object_begin(&j, NULL);
            ramet_json_text(&j, "text", text, bytes);
            ramet_json_object_end(&j);
        } else
            fwrite(text, 1, bytes, stdout);
        free(text);
    }
    ramet_session_close(&s);
    return status;
}

ramet_status ramet_cmd_detokenize(const ramet_options *o, ramet_error *error) {
    char *text;
    size_t bytes, n;
    int32_t *tokens;
    RAMET_TRY(ramet_input_text(o, &text, &bytes, error));
    ramet_status status = ramet_input_tokens(text, bytes, o->file ? o->file : "-p", &tokens, &n, error);
    free(text);
    if (status != RAMET_OK) return status;
    status = detokenize(o, tokens, n, error);
    free(tokens);
    return status;
}
