/* cache.c - the cache: options, lock and the counters; everything else in it has a file of its own.
 *
 * Owns creation, K7 at the end (with every context closed and the tree cleared nothing is left), and statistics. */
#include "state/internal.h"

#include <stdlib.h>

static ramet_status check_options(const ramet_cache_options *o, ramet_error *error) {
    bool is_power = o->page_tokens != 0 && (o->page_tokens & (o->page_tokens - 1)) == 0;
    if (!is_power || o->page_tokens < 16 || o->page_tokens > 256)
        return ramet_fail(error, RAMET_E_ARGUMENT, "page size %u: give a power of two from 16 to 256", o->page_tokens);
    if (o->page_bytes == 0) return ramet_fail(error, RAMET_E_ARGUMENT, "a page of 0 bytes");
    if (o->n_ctx == 0 || o->n_ctx > INT32_MAX)
        return ramet_fail(error, RAMET_E_ARGUMENT, "context window %u: give 1 to %d", o->n_ctx, INT32_MAX);
    return RAMET_OK;
}

#define CONTEXT_BYTES (RAMET_MAX_CONTEXTS * sizeof(ramet_context))

ramet_status ramet_cache_create(const ramet_cache_options *options, ramet_cache **out, ramet_error *error) {
    *out = NULL;
    RAMET_TRY(check_options(options, error));
    ramet_cache *cache = ramet_alloc(1, sizeof *cache);
    if (!cache) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a cache");
    cache->options = *options;
    cache->contexts = (ramet_context_pool){.slots = ramet_reserve(CONTEXT_BYTES), .free_slot = RAMET_NO_SLOT};
    ramet_status status = cache->contexts.slots ? ramet_slab_init(&cache->slab, options, error)
                                                : ramet_fail(error, RAMET_E_NO_MEMORY, "no addresses for contexts");
    if (status == RAMET_OK && pthread_mutex_init(&cache->lock, NULL) != 0) {
        ramet_slab_fini(&cache->slab);
        status = ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a lock");
    }
    if (status != RAMET_OK) {
        ramet_unmap(cache->contexts.slots, CONTEXT_BYTES);
        free(cache);
        return status;
    }
    *out = cache;
    return RAMET_OK;
}

void ramet_cache_destroy(ramet_cache **cache_ptr) {
    ramet_cache *cache = *cache_ptr;
    *cache_ptr = NULL;
    if (!cache) return;
    ramet_tree_clear(cache);
    RAMET_ASSERT(cache->contexts.n_live == 0, "K7: %u contexts are still open", cache->contexts.n_live);
    RAMET_ASSERT(cache->slab.n_live == 0 && cache->nodes.n_live == 0 && cache->rows.n_live == 0,
                 "K7: %u pages, %u table nodes and %u logits rows are left", cache->slab.n_live, cache->nodes.n_live,
                 cache->rows.n_live);
    ramet_table_trim_pool(cache, 0);
    ramet_row_trim_pool(cache, 0);
    free(cache->tree.root.children);
    ramet_slab_fini(&cache->slab);
    ramet_unmap(cache->contexts.slots, CONTEXT_BYTES);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* Spare table nodes and logits rows that wait for reuse, at most. */
enum { KEEP_NODES = 64, KEEP_ROWS = 16 };

void ramet_cache_unlock(ramet_cache *cache) {
    ramet_table_trim_pool(cache, KEEP_NODES);
    ramet_row_trim_pool(cache, KEEP_ROWS);
    pthread_mutex_unlock(&cache->lock);
}

void *ramet_cache_user(const ramet_cache *cache) {
    return cache->options.user;
}
const ramet_cache_options *ramet_cache_get_options(const ramet_cache *cache) {
    return &cache->options;
}

void ramet_cache_get_stats(ramet_cache *cache, ramet_engine_stats *out) {
    ramet_cache_lock(cache);
    *out = (ramet_engine_stats){
        .pages_live = cache->slab.n_live,
        .pages_allocated = cache->slab.n_allocated,
        .pages_freed = cache->slab.n_freed,
        .pages_copied = cache->slab.n_copied,
        .contexts = cache->contexts.n_live,
        .tree_entries = cache->tree.n_entries,
        .tree_pages = cache->slab.n_held[RAMET_BY_TREE],
        .tree_bytes = ramet_tree_bytes(cache),
        .tree_evictions = cache->tree.n_evictions,
    };
    ramet_cache_unlock(cache);
}
