/* vocab.h - what a vocabulary is inside the room. Text here means the bytes a token stands for: byte-level pieces are
 * decoded to bytes, U+2581 in SentencePiece pieces is a space. Everything works on that text: matching, merging,
 * decoding. Invariant: immutable once created. */
#ifndef RAMET_TEXT_VOCAB_H
#define RAMET_TEXT_VOCAB_H

#include "text/index.h"
#include "text/pre.h"
#include "text/special.h"

#define RAMET_TEXT_NO_RANK UINT32_MAX

typedef struct ramet_text_merge {
    int32_t left, right, token; /* left and right joined */
} ramet_text_merge;

struct ramet_vocab {
    bool byte_level; /* "gpt2"; else SentencePiece */
    bool adds_bos, adds_space;
    uint32_t n_tokens;
    int32_t bos, eos;
    char *arena;           /* the texts in order of id; empty for pieces that stand for no text */
    uint32_t *offs;        /* n_tokens + 1: where each begins */
    uint8_t *types, *ends; /* by id */
    /* where texts are looked up: SentencePiece, and byte level with whole words; else let go when all is built */
    uint64_t *hashes, *powers;
    ramet_text_index index; /* tokens that merging may produce, by text */
    /* byte level */
    ramet_text_merge *merges; /* by rank, which is the place in the file: smaller goes first */
    uint32_t *merge_slots;    /* open addressing by pair: rank + 1; 0: empty */
    size_t merge_mask;
    uint32_t n_merges;
    uint32_t *ranks;          /* SentencePiece: from the scores; equal scores, equal ranks */
    int32_t byte_tokens[256]; /* -1: the vocabulary cannot spell this byte */
    int32_t replacement[3];   /* byte level: U+FFFD, for such bytes */
    uint32_t n_replacement;
    ramet_text_specials specials;
    ramet_text_pre pre;
    uint8_t digest[32];
};

/* build.c: fills one part of a vocabulary from a source that check_source of vocab.c has let through. */
ramet_status ramet_vocab_build_texts(ramet_vocab *v, const ramet_vocab_source *source, ramet_error *error);
ramet_status ramet_vocab_build_index(ramet_vocab *v, ramet_error *error);
ramet_status ramet_vocab_build_ranks(ramet_vocab *v, const ramet_vocab_source *source, ramet_error *error);
ramet_status ramet_vocab_build_merges(ramet_vocab *v, const ramet_vocab_source *source, const ramet_text_index *names,
                                      ramet_error *error);
ramet_status ramet_vocab_build_bytes(ramet_vocab *v, ramet_error *error);
ramet_status ramet_vocab_build_specials(ramet_vocab *v, ramet_error *error);
/* Lets go of what encoding with this vocabulary never asks. */
void ramet_vocab_finish_build(ramet_vocab *v);

/* digest.c */
ramet_status ramet_vocab_build_digest(ramet_vocab *v, const ramet_vocab_source *source, ramet_error *error);

/* Writes `text` with each U+2581, which is how SentencePiece spells a space, as a space; returns the bytes written. */
size_t ramet_text_copy_spaces(const char *text, size_t bytes, char *out);
/* The token that `left` and `right` make, its rank in *out_rank; or -1. */
int32_t ramet_vocab_pair(const ramet_vocab *v, int32_t left, int32_t right, uint32_t *out_rank);
/* The mergeable token with exactly this text, or -1. */
int32_t ramet_vocab_find(const ramet_vocab *v, const char *text, size_t bytes);

static inline ramet_text_slice ramet_vocab_text(const ramet_vocab *v, uint32_t id) {
    return (ramet_text_slice){v->arena + v->offs[id], v->offs[id + 1] - v->offs[id]};
}

static inline bool ramet_vocab_is_control(const ramet_vocab *v, int32_t token) {
    return v->types[token] == RAMET_TOKEN_CONTROL || v->types[token] == RAMET_TOKEN_UNKNOWN;
}

#endif
