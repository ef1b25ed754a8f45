/* spill.c - a context without pages, and back.
 *
 * Owns K9: a context that says where it went has no page, but its length, tokens and logits. Refuses to know files: the
 * caller has saved the bytes before drop and writes them back after refill. */
#include "state/internal.h"

#include <stdlib.h>
#include <string.h>

ramet_status ramet_context_drop(ramet_context *context, const char *where, ramet_error *error) {
    RAMET_TRY(ramet_context_check_resident(context, error));
    ramet_cache *cache = context->cache;
    size_t where_bytes = strlen(where) + 1;
    char *kept_where = ramet_alloc(where_bytes, 1);
    int32_t *tokens = ramet_alloc(context->length, sizeof *tokens);
    if (!kept_where || !tokens) {
        free(kept_where);
        free(tokens);
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to spill a context of %u tokens", context->length);
    }
    memcpy(kept_where, where, where_bytes);
    ramet_context_read_tokens(context, 0, context->length, tokens);

    ramet_cache_lock(cache);
    ramet_table_release(cache, &context->table, RAMET_BY_CONTEXTS);
    ramet_slab_trim(&cache->slab, 0); /* all that is free: memory is what a spill is for */
    context->where = kept_where;
    context->spilled_tokens = tokens;
    ramet_cache_unlock(cache);
    return RAMET_OK;
}

static void fill_pages(ramet_context *context) {
    ramet_cache *cache = context->cache;
    uint32_t page_tokens = cache->options.page_tokens;
    for (uint32_t i = 0; i < context->table.n_pages; i++) {
        ramet_page *page = ramet_table_page(&context->table, i);
        uint32_t left = context->length - i * page_tokens;
        memset(ramet_slab_data(&cache->slab, page), 0, cache->slab.data_stride);
        memcpy(page->tokens, context->spilled_tokens + i * page_tokens,
               (left < page_tokens ? left : page_tokens) * sizeof page->tokens[0]);
    }
}

ramet_status ramet_context_refill(ramet_context *context, ramet_spilled *out, ramet_error *error) {
    if (!context->where) return ramet_fail(error, RAMET_E_ARGUMENT, "the context is not spilled");
    ramet_cache *cache = context->cache;
    ramet_cache_lock(cache);
    uint32_t n_pages = ramet_pages_for(context->length, cache->options.page_tokens);
    ramet_status status = ramet_context_own_pages(context, 0, n_pages, error);
    if (status == RAMET_OK) {
        fill_pages(context);
        ramet_spilled was = {context->where, context->spilled_tokens};
        context->where = NULL;
        context->spilled_tokens = NULL;
        if (out)
            *out = was;
        else
            ramet_spilled_free(&was);
    }
    ramet_cache_unlock(cache);
    return status;
}

void ramet_context_undo_refill(ramet_context *context, ramet_spilled *spilled) {
    ramet_cache *cache = context->cache;
    ramet_cache_lock(cache);
    ramet_table_release(cache, &context->table, RAMET_BY_CONTEXTS);
    context->where = spilled->where;
    context->spilled_tokens = spilled->tokens;
    *spilled = (ramet_spilled){0};
    ramet_cache_unlock(cache);
}

void ramet_spilled_free(ramet_spilled *spilled) {
    free(spilled->where);
    free(spilled->tokens);
    *spilled = (ramet_spilled){0};
}

const char *ramet_context_where(const ramet_context *context) {
    return context->where;
}
