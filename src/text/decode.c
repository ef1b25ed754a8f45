/* decode.c - from ids to text: a whole sequence at once, or token by token in whole characters.
 * Invariant: what a stream gives, joined, is what ramet_vocab_decode gives, but for bytes that are not UTF-8, which
 * come out as U+FFFD (one for each longest beginning of a character, as browsers do it). */
#include "base/utf8.h"
#include "text/vocab.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Where in a sequence a token stands, for the space that encode put in front of the first text. */
typedef enum place { AT_START, AFTER_BOS, INSIDE } place;

/* Text of the next token, without that space; false for an id outside the vocabulary. */
static bool take_text(const ramet_vocab *v, place *at, int32_t token, bool special, ramet_text_slice *out) {
    if (token < 0 || (uint32_t)token >= v->n_tokens) return false;
    ramet_vocab_piece(v, token, special, &out->data, &out->bytes);
    if (*at == AT_START && token == v->bos) {
        *at = AFTER_BOS;
        return true;
    }
    bool first = *at != INSIDE && v->adds_space && !ramet_vocab_is_control(v, token);
    if (first && out->bytes && out->data[0] == ' ') {
        out->data++;
        out->bytes--;
    }
    *at = INSIDE;
    return true;
}

static ramet_status fail_token(const ramet_vocab *v, int32_t token, ramet_error *error) {
    return ramet_fail(error, RAMET_E_ARGUMENT, "token %d is outside the vocabulary of %u", (int)token, v->n_tokens);
}

ramet_status ramet_vocab_decode(const ramet_vocab *vocab, const int32_t *tokens, size_t n, bool special, char **out,
                                size_t *out_bytes, ramet_error *error) {
    *out = NULL;
    *out_bytes = 0;
    uint64_t total = 0;
    ramet_text_slice text;
    place at = AT_START;
    for (size_t i = 0; i < n; i++) {
        if (!take_text(vocab, &at, tokens[i], special, &text)) return fail_token(vocab, tokens[i], error);
        total += text.bytes; /* n times 4,096 at most */
    }
    char *joined = ramet_alloc((size_t)total + 1, 1);
    if (!joined)
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a text of %llu bytes", (unsigned long long)total);
    char *end = joined;
    at = AT_START;
    for (size_t i = 0; i < n; i++) {
        take_text(vocab, &at, tokens[i], special, &text);
        memcpy(end, text.data, text.bytes);
        end += text.bytes;
    }
    *out = joined;
    *out_bytes = (size_t)total;
    return RAMET_OK;
}

struct ramet_stream {
    const ramet_vocab *vocab;
    bool special;
    place at;
    char held[RAMET_TEXT_MAX_PIECE + 4]; /* the beginning of a character, then the text of the token pushed */
    size_t n_held;
    char out[3 * (RAMET_TEXT_MAX_PIECE + 4) + 1]; /* every byte may become U+FFFD; NUL-terminated */
};

ramet_status ramet_stream_create(const ramet_vocab *vocab, bool special, ramet_stream **out, ramet_error *error) {
    *out = ramet_alloc(1, sizeof **out);
    if (!*out) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a detokenizer");
    (*out)->vocab = vocab;
    (*out)->special = special;
    return RAMET_OK;
}

void ramet_stream_destroy(ramet_stream **s) {
    free(*s);
    *s = NULL;
}

static size_t write_replacement(char *out) {
    memcpy(out, RAMET_UTF8_REPLACEMENT, 3);
    return 3;
}

/* Moves whole and broken characters from `held` to `out`; what stays held is the beginning of one. */
static size_t release_characters(ramet_stream *s) {
    size_t at = 0, n_out = 0, n;
    while (at < s->n_held) {
        ramet_utf8 kind = ramet_utf8_scan(s->held + at, s->n_held - at, &n);
        if (kind == RAMET_UTF8_CUT) break;
        if (kind == RAMET_UTF8_BROKEN) {
            n_out += write_replacement(s->out + n_out);
        } else {
            memcpy(s->out + n_out, s->held + at, n);
            n_out += n;
        }
        at += n;
    }
    s->n_held -= at;
    memmove(s->held, s->held + at, s->n_held);
    return n_out;
}

ramet_status ramet_stream_push(ramet_stream *s, int32_t token, const char **out, size_t *out_bytes,
                               ramet_error *error) {
    *out = s->out;
    *out_bytes = 0;
    s->out[0] = 0;
    ramet_text_slice text;
    if (!take_text(s->vocab, &s->at, token, s->special, &text)) return fail_token(s->vocab, token, error);
    memcpy(s->held + s->n_held, text.data, text.bytes);
    s->n_held += text.bytes;
    *out_bytes = release_characters(s);
    s->out[*out_bytes] = 0;
    return RAMET_OK;
}

void ramet_stream_finish(ramet_stream *s, const char **out, size_t *out_bytes) {
    *out = s->out;
    *out_bytes = s->n_held ? write_replacement(s->out) : 0;
    s->out[*out_bytes] = 0;
    s->n_held = 0;
    s->at = AT_START;
}
