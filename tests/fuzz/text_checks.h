/* text_checks.h - what src/text/text.h promises of any vocabulary that it takes, and any text:
 *
 *   ids are inside the vocabulary, and control tokens only come with leave
 *   decoding them gives the text back: SentencePiece writes U+2581 as a space, and a text with a byte that the vocabulary
 *   cannot spell is left out here
 *   BOS goes in front at most once
 *   a stream of pushes gives what decoding at once gives, in whole characters, what is not UTF-8 as U+FFFD */
#ifndef RAMET_FUZZ_TEXT_CHECKS_H
#define RAMET_FUZZ_TEXT_CHECKS_H

#include "text/vocab.h"

/* `flags` as of ramet_vocab_encode. */
void check_text(const ramet_vocab *v, const char *text, size_t bytes, unsigned flags);
/* The stream gives text[0..bytes), which is what the tokens decode to. */
void check_stream(const ramet_vocab *v, const int32_t *tokens, size_t n, const char *text, size_t bytes);

#endif
