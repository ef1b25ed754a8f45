/* tree_list.c - the prefix tree as a list, for tests and for people who look into it. Copies under the lock, calls out
 * without it. */
#include "state/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct listed {
    ramet_entry *entry; /* valid under the lock alone */
    ramet_retain how;
    char *owner;
    int32_t *tokens;
    uint32_t length;
} listed;

static int compare(const void *a, const void *b) {
    const ramet_entry *x = ((const listed *)a)->entry, *y = ((const listed *)b)->entry;
    if (x->is_pinned != y->is_pinned) return x->is_pinned ? 1 : -1;
    if (!x->is_pinned && x->score != y->score) return x->score < y->score ? -1 : 1;
    return x->last_use < y->last_use ? -1 : 1;
}

static bool copy_entry(const ramet_cache *cache, listed *l) {
    const ramet_entry *entry = l->entry;
    size_t owner_bytes = entry->zone->owner ? strlen(entry->zone->owner) + 1 : 0;
    l->length = entry->length;
    l->tokens = ramet_alloc(entry->length, sizeof *l->tokens);
    l->owner = ramet_alloc(owner_bytes, 1);
    if (!l->tokens || !l->owner) return false;
    ramet_table_read_tokens(&entry->table, cache->options.page_tokens, 0, entry->length, l->tokens);
    if (owner_bytes > 0) memcpy(l->owner, entry->zone->owner, owner_bytes);
    l->how = (ramet_retain){.owner = owner_bytes > 0 ? l->owner : NULL, .is_pinned = entry->is_pinned};
    return true;
}

/* Lock held. NULL: no memory. */
static listed *copy_entries(const ramet_cache *cache, uint32_t n, bool *out_is_whole) {
    const ramet_tree *tree = &cache->tree;
    listed *all = ramet_alloc(n, sizeof *all);
    *out_is_whole = all != NULL;
    if (!all) return NULL;
    for (size_t i = 0; i < tree->n_heap; i++) all[i].entry = tree->heap[i];
    for (size_t i = 0; i < tree->n_pinned; i++) all[tree->n_heap + i].entry = tree->pinned[i];
    if (n > 0) qsort(all, n, sizeof *all, compare);
    for (uint32_t i = 0; i < n && *out_is_whole; i++) *out_is_whole = copy_entry(cache, &all[i]);
    return all;
}

ramet_status ramet_tree_each(ramet_cache *cache, ramet_tree_visit visit, void *user, ramet_error *error) {
    bool is_whole;
    ramet_cache_lock(cache);
    uint32_t n = ramet_tree_n_entries(cache);
    listed *all = copy_entries(cache, n, &is_whole);
    ramet_cache_unlock(cache);
    for (uint32_t i = 0; is_whole && i < n; i++) visit(user, &all[i].how, all[i].tokens, all[i].length);
    for (uint32_t i = 0; all && i < n; i++) {
        free(all[i].tokens);
        free(all[i].owner);
    }
    free(all);
    return is_whole ? RAMET_OK : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to list the prefix tree");
}
