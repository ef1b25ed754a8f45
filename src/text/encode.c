/* encode.c - from bytes to ids.
 *
 *   text ── specials cut out, leftmost longest ──> fragments ──> rows of tokens ── merge ──> ids
 *                 byte level:     fragment = words by pattern, row = bytes of a word
 *                 SentencePiece:  fragment = row of characters
 *
 * Bytes that are not UTF-8, one rule per kind. Byte level: each is a word of its own, so that decoding gives it back; a
 * byte that the vocabulary cannot spell becomes U+FFFD. SentencePiece: each is its byte token, like a character without
 * a piece. SentencePiece does not tell U+2581 from a space: both are what the model knows as a space. */
#include "base/utf8.h"
#include "text/merge.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct encoder {
    const ramet_vocab *vocab;
    ramet_text_merger merger;
    ramet_text_splitter *splitter; /* byte level */
    ramet_error *error;
} encoder;

static ramet_status fail_memory(encoder *e, bool done) {
    return done ? RAMET_OK : ramet_fail(e->error, RAMET_E_NO_MEMORY, "no memory to tokenize the text");
}

static bool add_byte(encoder *e, uint8_t byte) {
    int32_t token = e->vocab->byte_tokens[byte];
    if (token >= 0) return ramet_text_merger_add(&e->merger, token);
    if (!ramet_text_merger_run(&e->merger)) return false;
    for (uint32_t i = 0; i < e->vocab->n_replacement; i++)
        if (!ramet_text_merger_emit(&e->merger, e->vocab->replacement[i])) return false;
    return true;
}

static bool encode_word(encoder *e, const char *word, size_t bytes) {
    int32_t whole = e->vocab->pre.whole_words ? ramet_vocab_find(e->vocab, word, bytes) : -1;
    if (whole >= 0) return ramet_text_merger_emit(&e->merger, whole);
    for (size_t i = 0; i < bytes; i++)
        if (!add_byte(e, (uint8_t)word[i])) return false;
    return ramet_text_merger_run(&e->merger);
}

static ramet_status encode_bytes_fragment(encoder *e, const char *text, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        size_t valid = ramet_utf8_valid_bytes(text + at, bytes - at);
        for (size_t from = 0, end; from < valid; from = end) {
            RAMET_TRY(ramet_text_splitter_next(e->splitter, text + at, valid, from, &end, e->error));
            RAMET_TRY(fail_memory(e, encode_word(e, text + at + from, end - from)));
        }
        at += valid;
        if (at < bytes) RAMET_TRY(fail_memory(e, encode_word(e, text + at++, 1)));
    }
    return RAMET_OK;
}

/* A character without a piece never merges: the row ends before it. */
static bool add_character(encoder *e, const char *text, size_t bytes, bool whole) {
    int32_t token = whole ? ramet_vocab_find(e->vocab, text, bytes) : -1;
    if (token >= 0) return ramet_text_merger_add(&e->merger, token);
    if (!ramet_text_merger_run(&e->merger)) return false;
    for (size_t i = 0; i < bytes; i++)
        if (!ramet_text_merger_emit(&e->merger, e->vocab->byte_tokens[(uint8_t)text[i]])) return false;
    return true;
}

static ramet_status encode_pieces_fragment(encoder *e, const char *text, size_t bytes) {
    for (size_t at = 0, n; at < bytes; at += n) {
        bool whole = ramet_utf8_scan(text + at, bytes - at, &n) == RAMET_UTF8_WHOLE;
        RAMET_TRY(fail_memory(e, add_character(e, text + at, n, whole)));
    }
    return fail_memory(e, ramet_text_merger_run(&e->merger));
}

static ramet_status encode_fragment(encoder *e, const char *text, size_t bytes) {
    return e->vocab->byte_level ? encode_bytes_fragment(e, text, bytes) : encode_pieces_fragment(e, text, bytes);
}

static ramet_status encode_text(encoder *e, const char *text, size_t bytes, bool control) {
    size_t start = 0;
    for (size_t at = 0; at < bytes;) {
        const ramet_text_special *special =
            ramet_text_specials_match(&e->vocab->specials, text + at, bytes - at, control);
        if (!special) {
            at++;
            continue;
        }
        RAMET_TRY(encode_fragment(e, text + start, at - start));
        RAMET_TRY(fail_memory(e, ramet_text_merger_emit(&e->merger, special->token)));
        start = at += special->text.bytes;
    }
    return encode_fragment(e, text + start, bytes - start);
}

/* The space that SentencePiece puts in front goes before the first text of the sequence: at the very beginning or after
 * a written BOS, so that a BOS in the text and one from the flag give the same ids. After other control tokens, and
 * after later ones, no space is invented. `room[0]` is free, the text begins at room[1]. */
static ramet_status encode_with_space(encoder *e, char *room, size_t bytes, bool control) {
    char *text = room + 1;
    const ramet_text_special *special = ramet_text_specials_match(&e->vocab->specials, text, bytes, control);
    if (special && special->control && special->token == e->vocab->bos) {
        RAMET_TRY(fail_memory(e, ramet_text_merger_emit(&e->merger, special->token)));
        text += special->text.bytes;
        bytes -= special->text.bytes;
        special = ramet_text_specials_match(&e->vocab->specials, text, bytes, control);
    }
    if (bytes == 0 || (special && special->control)) return encode_text(e, text, bytes, control);
    text[-1] = ' ';
    return encode_text(e, text - 1, bytes + 1, control);
}

static ramet_status encode_pieces(encoder *e, const char *text, size_t bytes, bool control) {
    char *room = ramet_alloc(bytes + 1, 1);
    if (!room) return fail_memory(e, false);
    size_t n = ramet_text_copy_spaces(text, bytes, room + 1);
    ramet_status status =
        e->vocab->adds_space ? encode_with_space(e, room, n, control) : encode_text(e, room + 1, n, control);
    free(room);
    return status;
}

static ramet_status encode_byte_level(encoder *e, const char *text, size_t bytes, bool control) {
    e->splitter = ramet_text_splitter_create(&e->vocab->pre);
    if (!e->splitter) return fail_memory(e, false);
    ramet_status status = encode_text(e, text, bytes, control);
    ramet_text_splitter_destroy(e->splitter);
    return status;
}

static bool put_bos(ramet_text_merger *m, int32_t bos) {
    if (m->n_ids && m->ids[0] == bos) return true;
    if (!ramet_text_merger_emit(m, bos)) return false;
    memmove(m->ids + 1, m->ids, (m->n_ids - 1) * sizeof *m->ids);
    m->ids[0] = bos;
    return true;
}

ramet_status ramet_vocab_encode(const ramet_vocab *vocab, const char *text, size_t bytes, unsigned flags, int32_t **out,
                                size_t *out_n, ramet_error *error) {
    *out = NULL;
    *out_n = 0;
    if (bytes >= INT32_MAX)
        return ramet_fail(error, RAMET_E_ARGUMENT, "a text of %zu bytes is too long to tokenize; at most 2 GiB", bytes);
    encoder e = {.vocab = vocab, .merger = {.vocab = vocab}, .error = error};
    bool control = flags & RAMET_TOKENIZE_SPECIAL;
    ramet_status status = RAMET_OK;
    if (bytes) status = (vocab->byte_level ? encode_byte_level : encode_pieces)(&e, text, bytes, control);
    if (status == RAMET_OK && (flags & RAMET_TOKENIZE_BOS) && vocab->adds_bos)
        status = fail_memory(&e, put_bos(&e.merger, vocab->bos));
    if (status == RAMET_OK) {
        *out = e.merger.ids;
        *out_n = e.merger.n_ids;
        e.merger.ids = NULL;
    }
    ramet_text_merger_destroy(&e.merger);
    return status;
}
