/* special.h - tokens that are cut out of the text before anything is merged: control and user-defined ones.
 * Owns the sorted list and the search. Rule: the leftmost match, of those the longest; user-defined tokens always,
 * control tokens only where the caller allows them. */
#ifndef RAMET_TEXT_SPECIAL_H
#define RAMET_TEXT_SPECIAL_H

#include "text/text.h"

typedef struct ramet_text_special {
    ramet_text_slice text; /* borrowed */
    int32_t token;
    bool control;
} ramet_text_special;

typedef struct ramet_text_specials {
    ramet_text_special *list; /* by text, then by id */
    size_t n;
    uint32_t first[257]; /* those that begin with byte b are list[first[b] .. first[b + 1]) */
} ramet_text_specials;

/* Sorts list[0..n), which `specials` then owns; no text in it is empty. */
void ramet_text_specials_take(ramet_text_specials *specials, ramet_text_special *list, size_t n);
void ramet_text_specials_destroy(ramet_text_specials *specials);

/* The longest special at the front of text[0..bytes), or NULL. */
const ramet_text_special *ramet_text_specials_match(const ramet_text_specials *specials, const char *text, size_t bytes,
                                                    bool control);

#endif
