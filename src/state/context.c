/* context.c - a context: tokens and pages through a table, a tail, and who is inside.
 *
 * Owns the life of a context and its length. A context holds its pages through one pointer to a table's root, so that a
 * fork is one more pointer. Refuses to know what the bytes of a page mean. */
#include "state/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

ramet_status ramet_context_take(ramet_cache *cache, ramet_context **out, ramet_error *error) {
    ramet_context_pool *pool = &cache->contexts;
    ramet_context *context;
    if (pool->free_slot != RAMET_NO_SLOT) {
        context = &pool->slots[pool->free_slot];
        pool->free_slot = context->length;
        context->length = 0;
    } else if (pool->n_touched < RAMET_MAX_CONTEXTS) {
        context = &pool->slots[pool->n_touched++];
    } else {
        return ramet_fail(error, RAMET_E_BUDGET, "%u contexts are open, and no more can be: close one", pool->n_live);
    }
    pool->n_live++;
    context->cache = cache;
    ramet_context_leave(context);
    *out = context;
    return RAMET_OK;
}

/* Lock held. */
static void give_context(ramet_context *context) {
    ramet_context_pool *pool = &context->cache->contexts;
    atomic_store_explicit(&context->is_busy, true, memory_order_relaxed);
    context->cache = NULL;
    context->lost = RAMET_OK;
    context->is_lossy = false;
    context->length = pool->free_slot;
    pool->free_slot = (uint32_t)(context - pool->slots);
    pool->n_live--;
}

ramet_status ramet_cache_context_create(ramet_cache *cache, ramet_context **out, ramet_error *error) {
    *out = NULL;
    ramet_cache_lock(cache);
    ramet_status status = ramet_context_take(cache, out, error);
    ramet_cache_unlock(cache);
    return status;
}

ramet_status ramet_context_share(ramet_context *context, ramet_context **out, ramet_error *error) {
    *out = NULL;
    RAMET_TRY(ramet_context_check_alive(context, error));
    /* Pages made writable ahead must stay exclusive: they go. */
    RAMET_TRY(ramet_context_cut(context, context->length, error));
    ramet_cache *cache = context->cache;
    ramet_context *fork;
    ramet_cache_lock(cache);
    ramet_status status = ramet_context_take(cache, &fork, error);
    if (status == RAMET_OK) {
        fork->table = context->table;
        fork->length = context->length;
        fork->is_lossy = context->is_lossy;
        ramet_table_retain(cache, &fork->table, RAMET_BY_CONTEXTS);
        for (int i = 0; i < RAMET_TAILS; i++)
            fork->tail[i] = ramet_block_share(cache, context->tail[i], RAMET_BY_CONTEXTS);
        *out = fork;
    }
    ramet_cache_unlock(cache);
    return status;
}

void ramet_context_destroy(ramet_context **context_ptr) {
    ramet_context *context = *context_ptr;
    *context_ptr = NULL;
    if (!context) return;
    ramet_cache *cache = context->cache;
    ramet_cache_lock(cache);
    ramet_context_empty(context);
    give_context(context);
    ramet_cache_unlock(cache);
}

void ramet_context_mark_lossy(ramet_context *context) {
    ramet_cache_lock(context->cache); /* it shares its byte with other flags, which others read */
    context->is_lossy = true;
    ramet_cache_unlock(context->cache);
}
bool ramet_context_is_lossy(const ramet_context *context) {
    return context->is_lossy;
}

/* ---- one owner at a time ---- */

ramet_status ramet_context_enter(ramet_context *context, ramet_error *error) {
    if (!atomic_exchange_explicit(&context->is_busy, true, memory_order_acquire)) return RAMET_OK;
    return ramet_fail(error, RAMET_E_BUSY, "the context is in use by another call: wait for it, or fork the context");
}

void ramet_context_leave(ramet_context *context) {
    if (context->is_used) ramet_context_end_use(context);
    atomic_store_explicit(&context->is_busy, false, memory_order_release);
}

/* ---- length and tokens ---- */

ramet_cache *ramet_context_cache(const ramet_context *context) {
    return context->cache;
}
uint32_t ramet_context_length(const ramet_context *context) {
    return context->length;
}

ramet_status ramet_context_check_alive(const ramet_context *context, ramet_error *error) {
    if (context->lost == RAMET_OK) return RAMET_OK;
    return ramet_fail(error, (ramet_status)context->lost,
                      "the context is lost: a part of it that was written out could not be read back; close it and run "
                      "its tokens again");
}

/* Lock held. */
static void assert_exclusive(const ramet_context *context, uint32_t pos) {
    uint32_t page_idx = pos / context->cache->options.page_tokens;
    RAMET_ASSERT(page_idx < context->table.n_pages, "position %u is written but was not made writable", pos);
    RAMET_ASSERT(ramet_table_is_exclusive(&context->table, page_idx, RAMET_AS_IS),
                 "K1: position %u is written in a page that others can reach", pos);
}

void ramet_context_commit(ramet_context *context, const int32_t *tokens, uint32_t n) {
    if (n == 0) return;
    uint32_t page_tokens = context->cache->options.page_tokens;
    ramet_cache_lock(context->cache);
    for (uint32_t done = 0; done < n;) {
        uint32_t pos = context->length + done, off = pos % page_tokens;
        uint32_t run = page_tokens - off < n - done ? page_tokens - off : n - done;
        assert_exclusive(context, pos);
        memcpy(ramet_table_page(&context->table, pos / page_tokens)->tokens + off, tokens + done, run * sizeof *tokens);
        done += run;
    }
    context->length += n;
    for (int i = 0; i < RAMET_TAILS; i++) ramet_context_forget_tail(context, RAMET_KIND_OF(i), true);
    ramet_cache_unlock(context->cache);
}

/* Lock held. */
static ramet_status cut_table(ramet_context *context, uint32_t n_pages, ramet_error *error) {
    if (n_pages == context->table.n_pages) return RAMET_OK;
    ramet_cache *cache = context->cache;
    if (!ramet_table_reserve(cache, RAMET_TABLE_LEVELS))
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a page table");
    ramet_table kept = ramet_table_prefix(cache, &context->table, n_pages, RAMET_BY_CONTEXTS);
    for (uint32_t i = n_pages; context->is_used && i < context->table.n_pages; i++)
        ramet_block_unuse(cache, ramet_table_page(&context->table, i));
    ramet_table_release(cache, &context->table, RAMET_BY_CONTEXTS);
    context->table = kept;
    return RAMET_OK;
}

ramet_status ramet_context_cut(ramet_context *context, uint32_t n, ramet_error *error) {
    RAMET_TRY(ramet_context_check_alive(context, error));
    if (n > context->length)
        return ramet_fail(error, RAMET_E_ARGUMENT, "cannot cut to %u tokens: the context has %u", n, context->length);
    uint32_t n_pages = ramet_pages_for(n, context->cache->options.page_tokens);
    if (n == context->length && n_pages == context->table.n_pages) return RAMET_OK; /* every fork comes by here */
    ramet_cache_lock(context->cache);
    ramet_status status = cut_table(context, n_pages, error);
    if (status == RAMET_OK && n < context->length) {
        context->length = n;
        if (n == 0) context->is_lossy = false;
        for (int i = 0; i < RAMET_TAILS; i++) ramet_context_forget_tail(context, RAMET_KIND_OF(i), false);
    }
    ramet_cache_unlock(context->cache);
    return status;
}

void ramet_context_read_tokens(const ramet_context *context, uint32_t from, uint32_t n, int32_t *out) {
    RAMET_ASSERT(from <= context->length && n <= context->length - from, "tokens [%u, +%u) of %u", from, n,
                 context->length);
    if (n > 0) ramet_table_read_tokens(&context->table, context->cache->options.page_tokens, from, n, out);
}

uint32_t ramet_context_common_prefix(const ramet_context *context, const int32_t *tokens, uint32_t n) {
    return ramet_table_match(&context->table, context->cache->options.page_tokens, tokens, 0,
                             ramet_min_u32(n, context->length));
}

/* ---- pages ---- */

static ramet_block *page_of(const ramet_context *context, uint32_t pos, const char *what) {
    uint32_t page_idx = pos / context->cache->options.page_tokens;
    RAMET_ASSERT(context->is_used, "position %u is %s by a context that is not in use", pos, what);
    RAMET_ASSERT(page_idx < context->table.n_pages, "position %u is %s but has no page", pos, what);
    return ramet_table_page(&context->table, page_idx);
}

uint8_t *ramet_context_page_write(ramet_context *context, uint32_t pos) {
    ramet_cache_lock(context->cache);
    assert_exclusive(context, pos);
    ramet_cache_unlock(context->cache);
    return ramet_context_page_own(context, pos);
}

uint8_t *ramet_context_page_own(ramet_context *context, uint32_t pos) {
    return ramet_block_data(context->cache, page_of(context, pos, "written"));
}

const uint8_t *ramet_context_page_read(const ramet_context *context, uint32_t pos) {
    return ramet_block_data(context->cache, page_of(context, pos, "read"));
}

void ramet_context_count_pages(ramet_context *context, uint64_t *out_reachable, uint64_t *out_exclusive) {
    ramet_cache_lock(context->cache);
    *out_reachable = context->table.n_pages;
    *out_exclusive = ramet_table_count_exclusive(&context->table);
    ramet_cache_unlock(context->cache);
}
