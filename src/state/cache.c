/* cache.c - the cache: options, lock and the counters; everything else in it has a file of its own.
 *
 * Owns creation, K7 at the end (with every context closed and the tree cleared nothing is left), and statistics. */
#include "state/internal.h"

#include <stdlib.h>

static ramet_status check_options(const ramet_cache_options *o, ramet_error *error) {
    bool is_power = o->page_tokens != 0 && (o->page_tokens & (o->page_tokens - 1)) == 0;
    if (!is_power || o->page_tokens < 16 || o->page_tokens > 256)
        return ramet_fail(error, RAMET_E_ARGUMENT, "page size %u: give a power of two from 16 to 256", o->page_tokens);
    if (o->pin_budget_bytes > o->tree_budget_bytes)
        return ramet_fail(error, RAMET_E_ARGUMENT, "the budget of pins exceeds the prefix tree's");
    if (o->page_bytes == 0) return ramet_fail(error, RAMET_E_ARGUMENT, "a page of 0 bytes");
    if (o->n_ctx == 0 || o->n_ctx > INT32_MAX)
        return ramet_fail(error, RAMET_E_ARGUMENT, "context window %u: give 1 to %d", o->n_ctx, INT32_MAX);
    return RAMET_OK;
}

#define CONTEXT_BYTES (RAMET_MAX_CONTEXTS * sizeof(ramet_context))

static ramet_status create_parts(ramet_cache *cache, ramet_error *error) {
    cache->contexts = (ramet_context_pool){.slots = ramet_reserve(CONTEXT_BYTES), .free_slot = RAMET_NO_SLOT};
    if (!cache->contexts.slots) return ramet_fail(error, RAMET_E_NO_MEMORY, "no addresses for contexts");
    for (int kind = 0; kind < RAMET_KINDS; kind++)
        RAMET_TRY(ramet_blocks_init(&cache->blocks[kind], &cache->options, (ramet_kind)kind, error));
    return RAMET_OK;
}

static void free_parts(ramet_cache *cache) {
    for (int kind = 0; kind < RAMET_KINDS; kind++) ramet_blocks_fini(&cache->blocks[kind]);
    ramet_unmap(cache->contexts.slots, CONTEXT_BYTES);
    pthread_mutex_destroy(&cache->lock);
    pthread_mutex_destroy(&cache->pager_lock);
    free(cache);
}

ramet_status ramet_cache_create(const ramet_cache_options *options, ramet_cache **out, ramet_error *error) {
    *out = NULL;
    RAMET_TRY(check_options(options, error));
    ramet_cache *cache = ramet_alloc(1, sizeof *cache);
    if (!cache) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a cache");
    cache->options = *options;
    if (options->pager) {
        cache->pager = *options->pager;
        cache->options.pager = &cache->pager;
    }
    pthread_mutex_init(&cache->lock, NULL);
    pthread_mutex_init(&cache->pager_lock, NULL);
    ramet_status status = create_parts(cache, error);
    if (status != RAMET_OK) {
        free_parts(cache);
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
    for (int kind = 0; kind < RAMET_KINDS; kind++)
        RAMET_ASSERT(cache->blocks[kind].n_live + cache->blocks[kind].n_doomed == 0,
                     "K7: %u blocks of kind %d are left", cache->blocks[kind].n_live, kind);
    RAMET_ASSERT(cache->nodes.n_live == 0 && cache->paged.on_disk_bytes == 0,
                 "K7: %u table nodes are left, and %llu bytes on disk", cache->nodes.n_live,
                 (unsigned long long)cache->paged.on_disk_bytes);
    ramet_table_trim_pool(cache, 0);
    ramet_tree_fini(cache);
    free_parts(cache);
}

/* Spare table nodes that wait for reuse, at most. */
enum { KEEP_NODES = 64 };

void ramet_cache_unlock(ramet_cache *cache) {
    ramet_table_trim_pool(cache, KEEP_NODES);
    ramet_block *doomed = cache->doomed;
    cache->doomed = NULL;
    pthread_mutex_unlock(&cache->lock);
    if (doomed) ramet_blocks_forget(cache, doomed);
}

bool ramet_cache_has_room(ramet_cache *cache, uint64_t n_pages) {
    uint64_t bytes = 0, needed;
    ramet_cache_lock(cache);
    for (int tail = 0; tail < RAMET_TAILS; tail++) bytes += cache->blocks[RAMET_KIND_OF(tail)].bytes;
    bool fits = ramet_mul_u64(n_pages, cache->options.page_bytes, &needed) && ramet_add_u64(needed, bytes, &needed) &&
                needed <= cache->options.budget_bytes - ramet_memory_bytes(cache);
    ramet_cache_unlock(cache);
    return fits;
}

void *ramet_cache_user(const ramet_cache *cache) {
    return cache->options.user;
}
const ramet_cache_options *ramet_cache_get_options(const ramet_cache *cache) {
    return &cache->options;
}

void ramet_cache_get_stats(ramet_cache *cache, ramet_engine_stats *out) {
    ramet_cache_lock(cache);
    const ramet_blocks *pages = &cache->blocks[RAMET_PAGE];
    const ramet_pager_counts *paged = &cache->paged;
    *out = (ramet_engine_stats){
        .pages_live = pages->n_live,
        .pages_allocated = pages->n_allocated,
        .pages_freed = pages->n_freed,
        .pages_copied = pages->n_copied,
        .contexts = cache->contexts.n_live,
        .contexts_lost = paged->contexts_lost,
        .memory_bytes = ramet_memory_bytes(cache),
        .tree_entries = ramet_tree_n_entries(cache),
        .tree_pinned = cache->tree.n_pinned,
        .tree_pages = pages->n_held[RAMET_BY_TREE],
        .tree_bytes = ramet_tree_bytes(cache),
        .tree_evictions = cache->tree.n_evictions,
        .spilled_bytes = paged->on_disk_bytes,
        .blocks_spilled = paged->n_written,
        .blocks_read_back = paged->n_read,
        .spill_bytes = paged->written_bytes,
        .read_back_bytes = paged->read_bytes,
        .spill_nanoseconds = paged->write_nanoseconds,
        .read_back_nanoseconds = paged->read_nanoseconds,
    };
    ramet_cache_unlock(cache);
}
