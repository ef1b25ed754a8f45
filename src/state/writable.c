/* writable.c - making pages a context's own to write: the one place where a page is copied.
 *
 *   before                            after ramet_context_writable(fork, 60), with 70 tokens there and pages of 64
 *   context ─┬─> root ─> p0 p1        context ──> root  ─> p0 p1
 *   fork ────┘                        fork ─────> root' ─> p0 p1' p2      p1' is a copy of p1, p2 is new, p0 is shared
 *
 * Owns K4: a page is written only by a context whose table alone reaches it. Refuses to know what is written. */
#include "state/internal.h"

/* Pages to take out of the slab so that the table alone reaches all of [first, end): missing ones and shared ones. */
static uint32_t count_needed(const ramet_table *table, uint32_t first, uint32_t end, ramet_view view) {
    uint32_t needed = 0;
    for (uint32_t i = first; i < end; i++) needed += i >= table->n_pages || !ramet_table_is_exclusive(table, i, view);
    return needed;
}

static ramet_need need_of(const ramet_table *table, uint32_t first, uint32_t end) {
    return (ramet_need){.kind = RAMET_PAGE,
                        .n = count_needed(table, first, end, RAMET_AS_IS),
                        .n_without_tree = count_needed(table, first, end, RAMET_WITHOUT_TREE)};
}

/* Makes pages [first, end) of the context exclusive to it, where first <= n_pages:
 *   1. nothing to do when they are already: the case of nearly every decode step;
 *   2. reserve the table nodes that this can take;
 *   3. make room, or refuse; the lock may have been let go, and the tree lets pages go: look again;
 *   4. own the path to each page, then copy the page if it is shared, add it if it is missing. Nothing fails here.
 * Until 4 the context has not changed, and until 3 nothing has. */
ramet_status ramet_context_own_pages(ramet_context *context, uint32_t first, uint32_t end, ramet_error *error) {
    ramet_cache *cache = context->cache;
    ramet_table *table = &context->table;
    for (;;) {
        /* 1 */
        if (count_needed(table, first, end, RAMET_AS_IS) == 0) return RAMET_OK;
        /* 2 */
        if (!ramet_table_reserve(cache, ramet_table_path_nodes(table, first, end)))
            return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for the table of %u pages", end);
        /* 3 */
        ramet_need need = need_of(table, first, end);
        if (ramet_room_fits(cache, need)) break;
        RAMET_TRY(ramet_room_make(cache, need, error));
    }
    /* 4 */
    for (uint32_t i = first; i < end; i++) {
        ramet_block **place = ramet_table_own_path(cache, table, i), *shared = *place;
        if (shared && shared->counts.refcount == 1) continue;
        *place = shared ? ramet_block_copy(cache, shared) : ramet_block_create(cache, RAMET_PAGE);
        ramet_block_use(cache, *place);
        if (shared) {
            ramet_block_unuse(cache, shared);
            ramet_block_drop(cache, &shared, RAMET_BY_CONTEXTS);
        } else {
            table->n_pages++;
        }
    }
    return RAMET_OK;
}

static ramet_status own_positions(ramet_context *context, uint32_t pos, uint32_t n, ramet_error *error) {
    RAMET_ASSERT(context->is_used, "positions are made writable by a context that is not in use");
    if (n == 0) return RAMET_OK;
    uint32_t page_tokens = context->cache->options.page_tokens;
    ramet_cache_lock(context->cache);
    ramet_status status =
        ramet_context_own_pages(context, pos / page_tokens, ramet_pages_for(pos + n, page_tokens), error);
    ramet_cache_unlock(context->cache);
    return status;
}

ramet_status ramet_context_writable(ramet_context *context, uint32_t n, ramet_error *error) {
    uint32_t n_ctx = context->cache->options.n_ctx;
    RAMET_TRY(ramet_context_check_alive(context, error));
    if (n > n_ctx - context->length)
        return ramet_fail(error, RAMET_E_WINDOW,
                          "%u tokens after the %u that are there exceed the context window of %u", n, context->length,
                          n_ctx);
    return own_positions(context, context->length, n, error);
}

ramet_status ramet_context_rewrite(ramet_context *context, uint32_t pos, uint32_t n, ramet_error *error) {
    RAMET_TRY(ramet_context_check_alive(context, error));
    if (pos > context->length || n > context->length - pos)
        return ramet_fail(error, RAMET_E_ARGUMENT,
                          "positions from %u on, %u of them, are not all within the context's %u", pos, n,
                          context->length);
    return own_positions(context, pos, n, error);
}
