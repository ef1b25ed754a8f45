/* use.c - the time in which a context works: all that it reaches is in memory, and stays there.
 *
 *   enter ── use ── writable, read, write, commit ── leave
 *             └── marks every block that it reaches, then room.c brings back what is missing
 *
 * Owns K9: a block in use is in memory; and what becomes of a context of which a block is lost. Without a pager it is a
 * flag and nothing else. Refuses to know where blocks go. */
#include "state/internal.h"

/* Lock held. Marks all that it reaches; false when some of that is not in memory, or on its way. */
static bool mark(ramet_context *context) {
    bool is_all_here = true;
    for (uint32_t i = 0; i < ramet_context_n_blocks(context); i++) {
        ramet_block *block = ramet_context_block(context, i);
        ramet_block_use(context->cache, block);
        if (block) is_all_here &= block->slot != RAMET_NO_SLOT && !block->is_moving;
    }
    context->is_used = true;
    return is_all_here;
}

static void unmark(ramet_context *context) {
    ramet_context_forget_spares(context);
    for (uint32_t i = 0; i < ramet_context_n_blocks(context); i++)
        ramet_block_unuse(context->cache, ramet_context_block(context, i));
    context->is_used = false;
}

void ramet_context_end_use(ramet_context *context) {
    bool has_spare = false;
    for (int i = 0; i < RAMET_TAILS; i++) has_spare |= context->spare[i] != NULL;
    if (!ramet_has_pager(context->cache) && !has_spare) {
        context->is_used = false;
        return;
    }
    ramet_cache_lock(context->cache);
    unmark(context);
    ramet_cache_unlock(context->cache);
}

void ramet_context_empty(ramet_context *context) {
    ramet_context_release_held(context);
    if (context->is_used) unmark(context);
    ramet_table_release(context->cache, &context->table, RAMET_BY_CONTEXTS);
    for (int i = 0; i < RAMET_TAILS; i++) ramet_block_drop(context->cache, &context->tail[i], RAMET_BY_CONTEXTS);
    context->length = 0;
}

ramet_status ramet_context_lost_block(const ramet_context *context) {
    bool is_none = context->cache->paged.blocks_lost == 0;
    for (uint32_t i = 0; !is_none && i < ramet_context_n_blocks(context); i++) {
        const ramet_block *block = ramet_context_block(context, i);
        if (block && block->lost != RAMET_OK) return (ramet_status)block->lost;
    }
    return RAMET_OK;
}

/* Lock held. It holds nothing from here on, and every call says so. */
static ramet_status lose(ramet_context *context, ramet_status status, ramet_error *error) {
    ramet_cache *cache = context->cache;
    ramet_status lost = ramet_context_lost_block(context);
    ramet_context_empty(context);
    context->lost = (uint8_t)lost;
    cache->paged.contexts_lost++;
    ramet_tree_remove_lost(cache);
    return status == lost ? status : ramet_context_check_alive(context, error);
}

/* Lock held. What contexts at work reach fits into memory together, also while some of it is on its way: who is too many
 * is refused before anything is marked, and so is who would wait for something that is lost. */
static ramet_status check_before(const ramet_context *context, ramet_error *error) {
    ramet_status lost = ramet_context_lost_block(context);
    uint64_t bytes = 0;
    if (lost != RAMET_OK) return ramet_fail(error, lost, "a part of the context could not be read back");
    for (uint32_t i = 0; i < ramet_context_n_blocks(context); i++) {
        const ramet_block *block = ramet_context_block(context, i);
        if (block && block->n_users == 0) bytes += context->cache->blocks[block->kind].bytes;
    }
    return ramet_room_check_use(context->cache, bytes, error);
}

ramet_status ramet_context_use(ramet_context *context, ramet_error *error) {
    ramet_cache *cache = context->cache;
    RAMET_TRY(ramet_context_check_alive(context, error));
    RAMET_ASSERT(!context->is_used, "a context is used that is in use");
    if (!ramet_has_pager(cache)) {
        context->is_used = true;
        return RAMET_OK;
    }
    ramet_cache_lock(cache);
    ramet_status status = check_before(context, error);
    if (status == RAMET_OK && !mark(context)) status = ramet_room_fetch(context, error);
    if (status == RAMET_OK)
        ramet_context_release_held(context);
    else if (ramet_context_lost_block(context) != RAMET_OK)
        status = lose(context, status, error);
    else if (context->is_used)
        unmark(context);
    ramet_cache_unlock(cache);
    return status;
}

ramet_status ramet_context_write_out(ramet_context *context, ramet_error *error) {
    ramet_cache *cache = context->cache;
    RAMET_TRY(ramet_context_check_alive(context, error));
    RAMET_ASSERT(!context->is_used, "a context is spilled that is in use");
    if (!ramet_has_pager(cache))
        return ramet_fail(error, RAMET_E_ARGUMENT, "there is nowhere to spill to: give a spill directory");
    RAMET_TRY(ramet_context_cut(context, context->length, error)); /* pages made writable ahead are worth no disk */
    ramet_cache_lock(cache);
    ramet_context_release_held(context);
    ramet_status status = ramet_room_clear(context, error);
    ramet_cache_unlock(cache);
    return status;
}

bool ramet_context_is_spilled(const ramet_context *context) {
    ramet_cache *cache = context->cache;
    bool is_spilled = false;
    ramet_cache_lock(cache);
    for (uint32_t i = 0; i < ramet_context_n_blocks(context); i++) {
        const ramet_block *block = ramet_context_block(context, i);
        is_spilled |= block && block->slot == RAMET_NO_SLOT;
    }
    ramet_cache_unlock(cache);
    return is_spilled;
}
