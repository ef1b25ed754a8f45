/* pre.h - pre-tokenisers: how byte-level BPE cuts text into words before it merges inside each.
 * Owns the table of names and patterns and all that touches PCRE2. Refuses to know tokens. A name that is not in the
 * table is refused, never guessed: a wrong pattern makes a model only a bit worse, and nobody notices. */
#ifndef RAMET_TEXT_PRE_H
#define RAMET_TEXT_PRE_H

#include "text/text.h"

typedef struct ramet_text_pre {
    void *code;       /* compiled pattern; shared by threads */
    bool whole_words; /* a word that is a token is that token, whatever the merges say */
    bool adds_bos;    /* what the family does when the file does not say */
} ramet_text_pre;

/* `name` is tokenizer.ggml.pre, NULL when absent. */
ramet_status ramet_text_pre_create(const char *name, ramet_text_pre *out, ramet_error *error);
void ramet_text_pre_destroy(ramet_text_pre *pre);

/* Scratch of one thread. NULL: no memory. */
typedef struct ramet_text_splitter ramet_text_splitter;
ramet_text_splitter *ramet_text_splitter_create(const ramet_text_pre *pre);
void ramet_text_splitter_destroy(ramet_text_splitter *splitter);
/* *out_end is where the word that begins at `from` ends; from < bytes, text[0..bytes) is valid UTF-8. What the pattern
 * does not match is a word of its own. */
ramet_status ramet_text_splitter_next(ramet_text_splitter *splitter, const char *text, size_t bytes, size_t from,
                                      size_t *out_end, ramet_error *error);

#endif
