/* row.c - rows of logits, shared by a context, its forks and tree entries.
 *
 * Owns rows, counts who has them, and keeps a few spare so that a steady decode allocates nothing. A row that somebody
 * else has too is never written. Refuses to know which position a row belongs to. */
#include "state/internal.h"

#include <stdlib.h>

ramet_row *ramet_row_create(ramet_cache *cache) {
    ramet_row_pool *pool = &cache->rows;
    ramet_row *row = pool->spare;
    if (row) {
        pool->spare = row->next;
        pool->n_spare--;
    } else {
        row = ramet_alloc(1, sizeof *row + (size_t)ramet_row_bytes(cache));
        if (!row) return NULL;
    }
    pool->n_live++;
    row->holds[RAMET_BY_CONTEXTS] = 1;
    row->holds[RAMET_BY_TREE] = 0;
    return row;
}

ramet_row *ramet_row_retain(ramet_cache *cache, ramet_row *row, ramet_holder holder) {
    if (row->holds[holder]++ == 0 && holder == RAMET_BY_TREE) cache->rows.n_held_by_tree++;
    return row;
}

void ramet_row_release(ramet_cache *cache, ramet_row **row_ptr, ramet_holder holder) {
    ramet_row *row = *row_ptr;
    ramet_row_pool *pool = &cache->rows;
    *row_ptr = NULL;
    if (!row) return;
    RAMET_ASSERT(row->holds[holder] > 0, "K1: a logits row is released by a holder that has none");
    if (--row->holds[holder] == 0 && holder == RAMET_BY_TREE) pool->n_held_by_tree--;
    if (row->holds[RAMET_BY_CONTEXTS] + row->holds[RAMET_BY_TREE] > 0) return;
    pool->n_live--;
    row->next = pool->spare;
    pool->spare = row;
    pool->n_spare++;
}

void ramet_row_trim_pool(ramet_cache *cache, uint32_t keep) {
    ramet_row_pool *pool = &cache->rows;
    while (pool->n_spare > keep) {
        ramet_row *row = pool->spare;
        pool->spare = row->next;
        pool->n_spare--;
        free(row);
    }
}
