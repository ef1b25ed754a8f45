/* check.c - ramet_cache_check: counts everything again from the roots and compares.
 *
 * It believes nothing but the roots: the list of contexts and the lists of entries. Owns the walk and the texts, which
 * begin with the number of the broken invariant; check_tree.c has the tree's. What it cannot see: K4 (the lockstep test
 * compares every byte with a flat copy) and K6's order against a flat model (the same test). Cost: all blocks, nodes,
 * entries, under the lock. */
#include "state/check.h"

/* ---- K2, K3, K9: blocks and slots ---- */

static ramet_status check_slab(ramet_walk *w, ramet_kind kind) {
    const ramet_slab *slab = &w->cache->blocks[kind].slab;
    uint32_t n_out = 0, n_warm = 0, n_listed = 0;
    for (uint32_t slot = 0; slot < slab->n_touched; slot++) {
        n_out += slab->slots[slot].state == RAMET_SLOT_OUT;
        n_warm += slab->slots[slot].state != RAMET_SLOT_COLD;
    }
    const uint32_t heads[] = {slab->free_warm, slab->free_cold};
    for (int i = 0; i < 2; i++)
        for (uint32_t slot = heads[i]; slot != RAMET_NO_SLOT; slot = slab->slots[slot].next_free, n_listed++) {
            if (slot >= slab->n_touched || n_listed == slab->n_touched)
                BROKEN("K3: the list of free slots does not end");
            if (slab->slots[slot].state == RAMET_SLOT_OUT) BROKEN("K3: slot %u is free and out", slot);
        }
    if (n_out != slab->n_out || n_warm != slab->n_warm || n_out + n_listed != slab->n_touched)
        BROKEN("K3: %u slots are out, %u warm and %u listed as free of %u, but %u and %u are counted", n_out, n_warm,
               n_listed, slab->n_touched, slab->n_out, slab->n_warm);
    return RAMET_OK;
}

static ramet_status check_place(ramet_walk *w, const ramet_block *block) {
    const ramet_slab *slab = &w->cache->blocks[block->kind].slab;
    bool is_out = block->slot != RAMET_NO_SLOT;
    if (is_out && (block->slot >= slab->n_touched || slab->slots[block->slot].state != RAMET_SLOT_OUT ||
                   slab->slots[block->slot].block != block->id))
        BROKEN("K3: block %u is in slot %u, which is another one's", block->id, block->slot);
    if (!block->is_moving && is_out == (block->name != 0))
        BROKEN("K9: block %u is %s", block->id, is_out ? "in memory and written out" : "neither in memory nor out");
    if (block->lost != RAMET_OK && is_out) BROKEN("K9: block %u is lost and in memory", block->id);
    return RAMET_OK;
}

static ramet_status check_blocks(ramet_walk *w, ramet_kind kind) {
    const ramet_blocks *blocks = &w->cache->blocks[kind];
    uint32_t n_free = 0, n_live = 0, n_gone = 0, n_out = 0;
    if (blocks->n_allocated - blocks->n_freed != blocks->n_live)
        BROKEN("K2: %llu blocks allocated, %llu freed, but %u live", (unsigned long long)blocks->n_allocated,
               (unsigned long long)blocks->n_freed, blocks->n_live);
    for (const ramet_block *block = blocks->free; block; block = block->colder, n_free++)
        if (n_free == blocks->n_touched || block->counts.refcount != 0)
            BROKEN("K2: block %u is free and held, or the list does not end", block->id);
    for (uint32_t id = 0; id < blocks->n_touched; id++) {
        const ramet_block *block = ramet_blocks_at(blocks, id);
        bool is_live = block->counts.refcount > 0 || block->is_moving;
        n_live += is_live;
        n_gone += !is_live;
        w->n_moving += block->counts.refcount == 0 && block->is_moving;
        n_out += is_live && block->slot != RAMET_NO_SLOT;
        if (block->id != id || block->kind != kind) BROKEN("K2: block %u says that it is %u", id, block->id);
        if (is_live) RAMET_TRY(check_place(w, block));
    }
    if (n_gone - n_free != blocks->n_doomed)
        BROKEN("K2: %u blocks wait to be forgotten, %u counted", n_gone - n_free, blocks->n_doomed);
    if (n_live != blocks->n_live || n_out != blocks->slab.n_out)
        BROKEN("K3: %u blocks live in %u slots, but %u and %u are counted", n_live, n_out, blocks->n_live,
               blocks->slab.n_out);
    return check_slab(w, kind);
}

/* ---- K1, K2: counting pointers from the roots down ---- */

/* Counts one way to reach a thing. *is_first: it was never met; *is_first_held: never by this holder. */
static void meet(ramet_walk *w, ramet_recount *recount, ramet_holder holder, bool is_pointer, bool *is_first,
                 bool *is_first_held) {
    if (recount->stamp != w->stamp) *recount = (ramet_recount){.stamp = w->stamp};
    *is_first = is_pointer && recount->counts.refcount++ == 0;
    *is_first_held = recount->counts.holds[holder]++ == 0;
}

static ramet_status meet_block(ramet_walk *w, ramet_kind kind, ramet_block *block, ramet_holder holder,
                               bool is_pointer) {
    if (!ramet_blocks_know(&w->cache->blocks[kind], block)) BROKEN("K2: a pointer to something that is no block");
    if (block->counts.refcount == 0) BROKEN("K2: a pointer to block %u, which is free", block->id);
    bool is_first, is_first_held;
    meet(w, &block->recount, holder, is_pointer, &is_first, &is_first_held);
    if (is_first_held) w->n_held[kind][holder]++;
    return RAMET_OK;
}

/* Pointers below a node are counted once, on the first visit; holds once per holder. */
static ramet_status meet_node(ramet_walk *w, ramet_table_node *node, uint32_t height, uint32_t n_pages,
                              ramet_holder holder, bool is_pointer) {
    bool is_first, is_first_held;
    meet(w, &node->recount, holder, is_pointer, &is_first, &is_first_held);
    uint32_t span = UINT32_C(1) << (RAMET_FAN_BITS * height);
    if (node->height != height || node->n != ramet_pages_for(n_pages, span))
        BROKEN("K1: a table node of height %u has %u children, %u pages below height %u were to come", node->height,
               node->n, n_pages, height);
    w->n_nodes += is_first;
    if (!is_first && !is_first_held) return RAMET_OK;
    for (uint32_t i = 0; i < node->n; i++) {
        uint32_t left = n_pages - i * span;
        if (height == 0)
            RAMET_TRY(meet_block(w, RAMET_PAGE, node->child[i].page, holder, is_first));
        else
            RAMET_TRY(meet_node(w, node->child[i].node, height - 1, left < span ? left : span, holder, is_first));
    }
    return RAMET_OK;
}

ramet_status ramet_walk_table(ramet_walk *w, const ramet_table *table, ramet_holder holder) {
    if (!table->root != (table->n_pages == 0))
        BROKEN("K1: a table of %u pages has %s root", table->n_pages, table->root ? "a" : "no");
    if (!table->root) return RAMET_OK;
    uint32_t height = 0;
    while ((table->n_pages - 1) >> (RAMET_FAN_BITS * (height + 1)) != 0) height++;
    return meet_node(w, table->root, height, table->n_pages, holder, true);
}

ramet_status ramet_walk_tail(ramet_walk *w, ramet_block *const *tail, uint32_t length, ramet_holder holder) {
    for (int i = 0; i < RAMET_TAILS; i++) {
        if (!tail[i]) continue;
        RAMET_TRY(meet_block(w, RAMET_KIND_OF(i), tail[i], holder, true));
        if (tail[i]->n_tokens != length)
            BROKEN("K10: a tail block of %u tokens is at the end of %u", tail[i]->n_tokens, length);
    }
    return RAMET_OK;
}

/* ---- K9, and the roots ---- */

static void count_user(ramet_walk *w, ramet_block *block) {
    if (!block) return;
    if (block->recount.stamp != w->stamp) block->recount = (ramet_recount){.stamp = w->stamp};
    block->recount.n_users++;
}

static void count_users(ramet_walk *w, const ramet_context *context) {
    if (!ramet_has_pager(w->cache)) return; /* nobody counts them, and the flags are their owners' alone */
    if (context->holds_logits) count_user(w, context->tail[RAMET_TAIL_OF(RAMET_LOGITS)]);
    if (!context->is_used) return;
    for (uint32_t i = 0; i < ramet_context_n_blocks(context); i++) count_user(w, ramet_context_block(context, i));
    for (int i = 0; i < RAMET_TAILS; i++) count_user(w, context->spare[i]);
}

static ramet_status meet_context(ramet_walk *w, const ramet_context *context) {
    uint32_t n_pages = context->table.n_pages, needed = ramet_pages_for(context->length, w->cache->options.page_tokens);
    if (n_pages < needed) BROKEN("K9: a context of %u tokens has %u pages", context->length, n_pages);
    RAMET_TRY(ramet_walk_table(w, &context->table, RAMET_BY_CONTEXTS));
    for (uint32_t i = needed; i < n_pages; i++)
        if (!ramet_table_is_exclusive(&context->table, i, RAMET_AS_IS))
            BROKEN("K1: page %u was made writable past %u tokens, and others reach it", i, context->length);
    RAMET_TRY(ramet_walk_tail(w, context->tail, context->length, RAMET_BY_CONTEXTS));
    for (int i = 0; i < RAMET_TAILS; i++) {
        if (!context->spare[i]) continue;
        RAMET_TRY(meet_block(w, RAMET_KIND_OF(i), context->spare[i], RAMET_BY_CONTEXTS, true));
        if (context->spare[i]->counts.refcount != 1 || !context->is_used)
            BROKEN("K10: a spare tail block is not one context's alone, at work");
    }
    count_users(w, context);
    return RAMET_OK;
}

/* Every slot is a context or in the list of free ones. */
static ramet_status check_free_contexts(ramet_walk *w) {
    const ramet_context_pool *pool = &w->cache->contexts;
    uint32_t n_free = 0;
    for (uint32_t i = pool->free_slot; i != RAMET_NO_SLOT; i = pool->slots[i].length, n_free++) {
        if (i >= pool->n_touched || n_free == pool->n_touched) BROKEN("K7: the list of free contexts does not end");
        if (pool->slots[i].cache) BROKEN("K7: context %u is free and open", i);
    }
    if (n_free + pool->n_live != pool->n_touched)
        BROKEN("K7: %u contexts are free and %u open, of %u", n_free, pool->n_live, pool->n_touched);
    return RAMET_OK;
}

static ramet_status meet_contexts(ramet_walk *w) {
    const ramet_context_pool *pool = &w->cache->contexts;
    uint32_t n_contexts = 0;
    for (uint32_t i = 0; i < pool->n_touched; i++) {
        if (!pool->slots[i].cache) continue;
        n_contexts++;
        RAMET_TRY(meet_context(w, &pool->slots[i]));
    }
    if (n_contexts != pool->n_live) BROKEN("K7: %u contexts are open, %u counted", n_contexts, pool->n_live);
    return RAMET_OK;
}

/* ---- K1, K9, K11: what was counted against what is written down ---- */

static ramet_status compare(ramet_walk *w, const char *what, uint32_t number, const ramet_counts *is,
                            const ramet_recount *recount) {
    const ramet_counts none = {0}, *found = recount->stamp == w->stamp ? &recount->counts : &none;
    if (is->refcount != found->refcount)
        BROKEN("K1: %s %u has refcount %u, but %u pointers to it", what, number, is->refcount, found->refcount);
    for (int h = 0; h < RAMET_HOLDERS; h++)
        if (is->holds[h] != found->holds[h])
            BROKEN("K11: %s %u counts %u holds by %s, but has %u", what, number, is->holds[h],
                   h == RAMET_BY_TREE ? "the tree" : "contexts", found->holds[h]);
    return RAMET_OK;
}

static ramet_status compare_block(ramet_walk *w, const ramet_block *block, uint32_t *n_used) {
    RAMET_TRY(compare(w, ramet_kind_name((ramet_kind)block->kind), block->id, &block->counts, &block->recount));
    uint32_t n_users = block->recount.stamp == w->stamp ? block->recount.n_users : 0;
    if (block->n_users != n_users)
        BROKEN("K9: block %u counts %u users, but has %u", block->id, block->n_users, n_users);
    *n_used += n_users > 0;
    w->n_idle += block->counts.refcount > 0 && n_users == 0 && !block->is_moving && block->slot != RAMET_NO_SLOT;
    return RAMET_OK;
}

static ramet_status compare_counts(ramet_walk *w) {
    ramet_cache *cache = w->cache;
    uint32_t n_nodes = 0;
    for (int kind = 0; kind < RAMET_KINDS; kind++) {
        const ramet_blocks *blocks = &cache->blocks[kind];
        uint32_t n_used = 0;
        for (uint32_t id = 0; id < blocks->n_touched; id++)
            RAMET_TRY(compare_block(w, ramet_blocks_at(blocks, id), &n_used));
        if (n_used != blocks->n_used) BROKEN("K9: %u blocks are used, %u counted", n_used, blocks->n_used);
        for (int h = 0; h < RAMET_HOLDERS; h++)
            if (blocks->n_held[h] != w->n_held[kind][h])
                BROKEN("K11: %s hold %u blocks, %u are counted", h == RAMET_BY_TREE ? "entries" : "contexts",
                       w->n_held[kind][h], blocks->n_held[h]);
    }
    for (const ramet_table_node *node = cache->nodes.live; node; node = node->next)
        RAMET_TRY(compare(w, "table node", n_nodes++, &node->counts, &node->recount));
    if (n_nodes != cache->nodes.n_live || n_nodes != w->n_nodes)
        BROKEN("K1: %u table nodes are reachable, %u listed, %u counted", w->n_nodes, n_nodes, cache->nodes.n_live);
    return RAMET_OK;
}

static ramet_status check_idle(ramet_walk *w) {
    const ramet_cache *cache = w->cache;
    uint32_t n = 0;
    const ramet_block *colder = NULL;
    for (const ramet_block *block = cache->idle.coldest; block; colder = block, block = block->warmer, n++)
        if (n == w->n_idle || block->colder != colder || block->slot == RAMET_NO_SLOT || block->n_users > 0)
            BROKEN("K9: block %u is not idle, or the list is broken at it", block->id);
    if (cache->idle.warmest != colder || (ramet_has_pager(cache) && n != w->n_idle))
        BROKEN("K9: %u blocks are idle, %u listed", w->n_idle, n);
    return RAMET_OK;
}

static ramet_status check_budgets(ramet_walk *w) {
    const ramet_cache *cache = w->cache;
    const ramet_cache_options *o = &cache->options;
    uint32_t n_live = cache->nodes.n_live;
    uint64_t used = ramet_used_bytes(cache);
    for (int kind = 0; kind < RAMET_KINDS; kind++) n_live += cache->blocks[kind].n_live;
    if (ramet_memory_bytes(cache) > o->budget_bytes)
        BROKEN("K11: blocks of %llu bytes exceed the budget of %llu", (unsigned long long)ramet_memory_bytes(cache),
               (unsigned long long)o->budget_bytes);
    if (used > o->budget_bytes)
        BROKEN("K11: contexts at work reach %llu bytes, the budget is %llu", (unsigned long long)used,
               (unsigned long long)o->budget_bytes);
    if (ramet_tree_bytes(cache) > o->tree_budget_bytes)
        BROKEN("K11: the tree holds %llu bytes, its budget is %llu", (unsigned long long)ramet_tree_bytes(cache),
               (unsigned long long)o->tree_budget_bytes);
    if (cache->contexts.n_live == 0 && ramet_tree_n_entries(cache) == 0 && n_live > w->n_moving)
        BROKEN("K7: nothing is open or kept, but %u blocks and table nodes live", n_live);
    return RAMET_OK;
}

ramet_status ramet_cache_check(ramet_cache *cache, ramet_error *error) {
    ramet_cache_lock(cache);
    ramet_walk walk = {.cache = cache, .error = error, .stamp = ++cache->check_stamp}, *w = &walk;
    ramet_status status = RAMET_OK;
    for (int kind = 0; kind < RAMET_KINDS && status == RAMET_OK; kind++) status = check_blocks(w, (ramet_kind)kind);
    if (status == RAMET_OK) status = check_free_contexts(w);
    if (status == RAMET_OK) status = meet_contexts(w);
    if (status == RAMET_OK) status = ramet_walk_tree(w);
    if (status == RAMET_OK) status = compare_counts(w);
    if (status == RAMET_OK) status = check_idle(w);
    if (status == RAMET_OK) status = check_budgets(w);
    ramet_cache_unlock(cache);
    return status;
}
