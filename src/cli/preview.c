/* preview.c - see preview.h. */
#include "cli/preview.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PREVIEW_CHARACTERS = 40, PREVIEW_IDS = 6 };

/* The first characters, controls shown as escapes, in quotes. */
static void print_text(const char *text, size_t bytes) {
    size_t at = 0;
    putchar('"');
    for (int shown = 0; at < bytes && shown < PREVIEW_CHARACTERS; shown++) {
        size_t length;
        ramet_utf8 kind = ramet_utf8_scan(text + at, bytes - at, &length);
        unsigned char c = (unsigned char)text[at];
        if (kind != RAMET_UTF8_WHOLE)
            fputs(RAMET_UTF8_REPLACEMENT, stdout);
        else if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c == 0x7F || (c == 0xC2 && (unsigned char)text[at + 1] < 0xA0))
            putchar('?');
        else
            fwrite(text + at, 1, length, stdout);
        at += length;
    }
    fputs(at < bytes ? "...\"" : "\"", stdout);
}

static void print_ids(const int32_t *tokens, size_t n) {
    putchar('[');
    for (size_t i = 0; i < n && i < PREVIEW_IDS; i++) printf("%s%" PRId32, i ? " " : "", tokens[i]);
    fputs(n > PREVIEW_IDS ? " ...]" : "]", stdout);
}

ramet_status ramet_preview_print(const ramet_model *model, const int32_t *tokens, size_t n, ramet_error *error) {
    char *text;
    size_t bytes;
    if (!model) {
        print_ids(tokens, n);
        return RAMET_OK;
    }
    RAMET_TRY(ramet_detokenize(model, tokens, n, true, &text, &bytes, error));
    print_text(text, bytes);
    free(text);
    return RAMET_OK;
}
