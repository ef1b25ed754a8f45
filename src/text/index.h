/* index.h - from the text of a piece to its id.
 * Owns an open-addressing table over borrowed texts. The hash is a polynomial, so the hash of two pieces joined is
 * made from their hashes: looking up a merge costs the same however long the pieces are. Refuses to know what a piece
 * means. Invariant: an id found has exactly the bytes asked for; the hash alone never decides. */
#ifndef RAMET_TEXT_INDEX_H
#define RAMET_TEXT_INDEX_H

#include "text/text.h"

#define RAMET_TEXT_MAX_PIECE 4096u /* bytes; the longest real ones have a few hundred */

/* Texts by id: slices, or (slices == NULL) one string with all of them in order. Borrows. */
typedef struct ramet_text_pieces {
    const ramet_text_slice *slices;
    const char *arena;
    const uint32_t *offs; /* text `id` is arena[offs[id] .. offs[id + 1]) */
} ramet_text_pieces;

static inline ramet_text_slice ramet_text_piece(const ramet_text_pieces *p, uint32_t id) {
    if (p->slices) return p->slices[id];
    return (ramet_text_slice){p->arena + p->offs[id], p->offs[id + 1] - p->offs[id]};
}

typedef struct ramet_text_index {
    ramet_text_pieces pieces;
    const uint64_t *hashes; /* borrowed, by id */
    uint32_t *slots;        /* id + 1; 0: empty */
    size_t mask;
} ramet_text_index;

/* Whether `room` ids fit is the caller's promise; false: no memory. */
bool ramet_text_index_create(ramet_text_pieces pieces, const uint64_t *hashes, uint32_t room, ramet_text_index *out);
void ramet_text_index_destroy(ramet_text_index *index);
size_t ramet_text_index_bytes(const ramet_text_index *index); /* of memory */

enum { RAMET_TEXT_CROWDED = -2 }; /* more pieces on one slot than chance puts there: a file built to be slow */
/* -1 when `id` was put in; the id that has the same text already (then nothing changes); or RAMET_TEXT_CROWDED. */
int64_t ramet_text_index_add(ramet_text_index *index, uint32_t id);

uint64_t ramet_text_hash(const char *text, size_t bytes);
/* The hash of left followed by right. */
uint64_t ramet_text_hash_join(uint64_t left, uint64_t right, uint64_t right_power);
/* out[k], k = 0..RAMET_TEXT_MAX_PIECE: the `right_power` of a right part of k bytes. */
void ramet_text_hash_powers(uint64_t *out);
uint64_t ramet_text_mix(uint64_t key); /* spreads a key over all 64 bits */

/* The id whose text is `left` followed by `right`, or -1. */
int32_t ramet_text_index_find(const ramet_text_index *index, uint64_t hash, ramet_text_slice left,
                              ramet_text_slice right);

#endif
