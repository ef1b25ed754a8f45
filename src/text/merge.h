/* merge.h - byte-pair merging: a row of tokens becomes a shorter row, best pair first, leftmost among equals.
 * Owns the scratch of one encode call and the ids it makes. O(n log n) in the row: a linked list and a heap.
 *
 *   symbols   [t]-[h]-[e]-[r]-[e]     each holds the rank of merging with the one after it
 *   heap      (rank, left symbol)...  an entry whose rank is no longer the symbol's is stale, and skipped
 */
#ifndef RAMET_TEXT_MERGE_H
#define RAMET_TEXT_MERGE_H

#include "text/vocab.h"

typedef struct ramet_text_symbol {
    uint32_t prev, next; /* UINT32_MAX: none */
    uint32_t rank;       /* of merging with next; RAMET_TEXT_NO_RANK: does not merge, or is gone */
    int32_t token;
    int32_t merged; /* what merging with next makes */
} ramet_text_symbol;

typedef struct ramet_text_merger {
    const ramet_vocab *vocab;
    ramet_text_symbol *symbols;
    size_t n_symbols, symbol_capacity;
    uint64_t *heap; /* rank << 32 | left */
    size_t n_heap, heap_capacity;
    int32_t *ids;
    size_t n_ids, id_capacity;
} ramet_text_merger;

/* All zero but for `vocab` is a fresh one. The functions return false when there is no memory. */
void ramet_text_merger_destroy(ramet_text_merger *m);
bool ramet_text_merger_add(ramet_text_merger *m, int32_t token);  /* to the row; fewer than 2^32 - 1 */
bool ramet_text_merger_run(ramet_text_merger *m);                 /* merges the row into ids, leaves it empty */
bool ramet_text_merger_emit(ramet_text_merger *m, int32_t token); /* to ids, as it is; the row must be empty */

#endif
