/* text.h - vocabularies and tokenizers: bytes to token ids and back.
 * Owns the vocabulary, the pre-tokeniser patterns, byte-level BPE, SentencePiece-style BPE and the streaming
 * detokeniser. Refuses to know files: the caller hands over plain arrays (the engine takes them from a GGUF). */
#ifndef RAMET_TEXT_TEXT_H
#define RAMET_TEXT_TEXT_H

#include "base/error.h"

typedef struct ramet_text_slice {
    const char *data;
    size_t bytes;
} ramet_text_slice;

/* GGUF's tokenizer.ggml.token_type */
enum {
    RAMET_TOKEN_NORMAL = 1,
    RAMET_TOKEN_UNKNOWN = 2,
    RAMET_TOKEN_CONTROL = 3,
    RAMET_TOKEN_USER_DEFINED = 4,
    RAMET_TOKEN_UNUSED = 5,
    RAMET_TOKEN_BYTE = 6,
};

/* What a model file says about its tokenizer. Borrowed during ramet_vocab_create only. Everything in it is hostile. */
typedef struct ramet_vocab_source {
    const char *kind;               /* tokenizer.ggml.model: "gpt2" or "llama" */
    const char *pre;                /* tokenizer.ggml.pre, NULL when absent */
    const ramet_text_slice *pieces; /* n_tokens */
    const float *scores;            /* n_tokens, or NULL */
    const int32_t *types;           /* n_tokens, or NULL: all normal */
    uint32_t n_tokens;
    const ramet_text_slice *merges; /* "left right", best first; for gpt2 */
    uint32_t n_merges;
    int32_t bos, eos, eot, unk, pad;           /* -1: none */
    int8_t add_bos, add_eos, add_space_prefix; /* -1: the file does not say */
} ramet_vocab_source;

typedef struct ramet_vocab ramet_vocab; /* immutable; shared by threads */

/* E_UNSUPPORTED: a kind or pre-tokeniser that ramet does not know, by name, never guessed; a piece over 4,096 bytes.
 * E_CORRUPT: arrays that contradict each other (two pieces of one name, a merge of unknown pieces, a special id outside
 * the vocabulary, no byte tokens where they are needed, a score that is no number). */
ramet_status ramet_vocab_create(const ramet_vocab_source *source, ramet_vocab **out, ramet_error *error);
void ramet_vocab_destroy(ramet_vocab **vocab);

/* Flags: RAMET_TOKENIZE_SPECIAL, RAMET_TOKENIZE_BOS of ramet.h. See ramet_tokenize there. Time is linear in the text up
 * to a log factor, whatever the text. Thread-safe. E_ARGUMENT: 2 GiB or more.
 *   - User-defined tokens are always found in the text, control (and unknown) ones only with SPECIAL; the leftmost
 *     match counts, of those the longest.
 *   - Bytes that are not UTF-8: each is the token of that byte, for both kinds. So decoding gives back any bytes, but
 *     for two things that ids cannot say: SentencePiece does not tell U+2581 from a space, and a byte that a byte-level
 *     vocabulary has no token for (SmolLM2 lacks 21) is U+FFFD.
 *   - SentencePiece's space in front: at the beginning of the text or after a BOS written there; next to no other
 *     special token. */
ramet_status ramet_vocab_encode(const ramet_vocab *vocab, const char *text, size_t bytes, unsigned flags, int32_t **out,
                                size_t *out_n, ramet_error *error);
/* Raw bytes of one token, *out borrowed from the vocabulary; empty for control tokens unless `special`. */
void ramet_vocab_piece(const ramet_vocab *vocab, int32_t token, bool special, const char **out, size_t *out_bytes);
/* The text of a whole sequence (SentencePiece: the space that encode put in front is taken off again). malloc'ed,
 * NUL-terminated. E_ARGUMENT: an id outside the vocabulary. */
ramet_status ramet_vocab_decode(const ramet_vocab *vocab, const int32_t *tokens, size_t n, bool special, char **out,
                                size_t *out_bytes, ramet_error *error);

uint64_t ramet_vocab_bytes(const ramet_vocab *vocab); /* memory, but for the compiled pattern */
uint32_t ramet_vocab_size(const ramet_vocab *vocab);
int32_t ramet_vocab_bos(const ramet_vocab *vocab);
int32_t ramet_vocab_eos(const ramet_vocab *vocab);
bool ramet_vocab_adds_bos(const ramet_vocab *vocab);
bool ramet_vocab_ends(const ramet_vocab *vocab, int32_t token); /* EOS, EOT, and the known end-of-turn names */
/* SHA-256 over everything that decides ids: kind, pre, pieces, scores, types, merges, special ids; length-prefixed. */
void ramet_vocab_digest(const ramet_vocab *vocab, uint8_t out[32]);

/* The streaming detokeniser behind ramet_detokenizer_* of ramet.h: whole UTF-8 characters only. A stream is a sequence
 * from its beginning: to show only what follows a prompt, push the prompt too and drop what comes out. *out is
 * NUL-terminated, borrowed until the next call. Allocates nothing after create. finish leaves the stream ready for
 * another sequence. */
typedef struct ramet_stream ramet_stream;
ramet_status ramet_stream_create(const ramet_vocab *vocab, bool special, ramet_stream **out, ramet_error *error);
ramet_status ramet_stream_push(ramet_stream *s, int32_t token, const char **out, size_t *out_bytes, ramet_error *error);
void ramet_stream_finish(ramet_stream *s, const char **out, size_t *out_bytes);
void ramet_stream_destroy(ramet_stream **s);

#endif
