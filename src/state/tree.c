/* tree.c - the prefix tree: entries that keep a table and a tail, found again by their tokens.
 *
 *   retain ──> zone of the owner ──> radix tree ──> entry ──> table, tail
 *   match  ──> the owner's zone, everybody's: the longer one      └──> heap: the next to go is the first
 *
 * Owns K6 (which entries there are, and in which order they go), K12 with zone.c, and the tree's budget (K11): each
 * block that entries hold counts once. A pinned entry holds its blocks a second time, as a context would, so they never
 * count as what eviction can give. */
#include "state/internal.h"

#include <stdlib.h>
#include <string.h>

uint64_t ramet_tree_bytes(const ramet_cache *cache) {
    uint64_t bytes = 0;
    for (int kind = 0; kind < RAMET_KINDS; kind++)
        bytes += cache->blocks[kind].n_held[RAMET_BY_TREE] * cache->blocks[kind].bytes;
    return bytes;
}

uint32_t ramet_tree_n_entries(const ramet_cache *cache) {
    return (uint32_t)(cache->tree.n_heap + cache->tree.n_pinned);
}

void ramet_tree_fini(ramet_cache *cache) {
    ramet_tree *tree = &cache->tree;
    free(tree->everybody.root.children);
    free(tree->zones);
    free(tree->heap);
    free(tree->pinned);
}

/* ---- what an entry holds ---- */

static void hold_all(ramet_cache *cache, ramet_entry *entry, ramet_holder holder) {
    ramet_table_retain(cache, &entry->table, holder);
    for (int i = 0; i < RAMET_TAILS; i++) ramet_block_share(cache, entry->tail[i], holder);
}

static void let_go(ramet_cache *cache, const ramet_entry *entry, ramet_holder holder) {
    ramet_table table = entry->table;
    ramet_table_release(cache, &table, holder);
    for (int i = 0; i < RAMET_TAILS; i++) {
        ramet_block *block = entry->tail[i];
        ramet_block_drop(cache, &block, holder);
    }
}

static uint64_t bytes_alone(const ramet_cache *cache, const ramet_entry *entry) {
    return ramet_entry_bytes_alone(cache, &entry->table, entry->tail);
}

static void pin(ramet_cache *cache, ramet_entry *entry) {
    ramet_tree *tree = &cache->tree;
    hold_all(cache, entry, RAMET_BY_CONTEXTS);
    tree->pinned[tree->n_pinned++] = entry;
    tree->pinned_bytes += bytes_alone(cache, entry);
}

static void unpin(ramet_cache *cache, ramet_entry *entry) {
    ramet_tree *tree = &cache->tree;
    size_t i = 0;
    while (tree->pinned[i] != entry) i++;
    tree->n_pinned--;
    memmove(tree->pinned + i, tree->pinned + i + 1, (tree->n_pinned - i) * sizeof *tree->pinned);
    tree->pinned_bytes -= bytes_alone(cache, entry);
    let_go(cache, entry, RAMET_BY_CONTEXTS);
    entry->is_pinned = false;
}

/* ---- going ---- */

/* Its place among the others is given up already. */
static void remove_entry(ramet_cache *cache, ramet_entry *entry) {
    ramet_zone *zone = entry->zone;
    ramet_radix_remove(cache, entry);
    let_go(cache, entry, RAMET_BY_TREE);
    free(entry);
    if (--zone->n_entries == 0 && zone->owner) ramet_zone_remove(&cache->tree, zone);
}

static void remove_from_heap(ramet_cache *cache, ramet_entry *entry) {
    ramet_heap_remove(cache, entry);
    remove_entry(cache, entry);
}

static void remove_pinned(ramet_cache *cache, ramet_entry *entry) {
    unpin(cache, entry);
    remove_entry(cache, entry);
}

bool ramet_tree_evict(ramet_cache *cache) {
    ramet_tree *tree = &cache->tree;
    if (tree->n_heap == 0) return false;
    if (tree->heap[0]->score > tree->inflation) tree->inflation = tree->heap[0]->score;
    tree->n_evictions++;
    remove_from_heap(cache, tree->heap[0]);
    return true;
}

static bool needs_lost(const ramet_entry *entry) {
    for (uint32_t i = 0; i < entry->table.n_pages; i++)
        if (ramet_table_page(&entry->table, i)->lost != RAMET_OK) return true;
    for (int i = 0; i < RAMET_TAILS; i++)
        if (entry->tail[i] && entry->tail[i]->lost != RAMET_OK) return true;
    return false;
}

void ramet_tree_remove_lost(ramet_cache *cache) {
    ramet_tree *tree = &cache->tree;
    for (size_t i = tree->n_pinned; i-- > 0;)
        if (needs_lost(tree->pinned[i])) remove_pinned(cache, tree->pinned[i]);
    for (bool has_removed = true; has_removed;) { /* who goes moves others, from before i to behind it, too */
        has_removed = false;
        for (size_t i = tree->n_heap; i-- > 0;)
            for (; i < tree->n_heap && needs_lost(tree->heap[i]); has_removed = true)
                remove_from_heap(cache, tree->heap[i]);
    }
}

void ramet_tree_clear(ramet_cache *cache) {
    ramet_tree *tree = &cache->tree;
    uint64_t n_given_before[RAMET_KINDS];
    ramet_cache_lock(cache);
    for (int kind = 0; kind < RAMET_KINDS; kind++) n_given_before[kind] = cache->blocks[kind].slab.n_given;
    while (tree->n_pinned > 0) remove_pinned(cache, tree->pinned[0]);
    while (tree->n_heap > 0) remove_from_heap(cache, tree->heap[0]); /* mostly the oldest: nobody's newest */
    for (int kind = 0; kind < RAMET_KINDS; kind++) /* slots of closed contexts stay warm for the next ones */
        ramet_slab_trim(&cache->blocks[kind].slab, n_given_before[kind]);
    ramet_cache_unlock(cache);
}

/* ---- matching ---- */

static void touch(ramet_cache *cache, ramet_entry *entry) {
    ramet_tree *tree = &cache->tree;
    entry->last_use = ++tree->clock;
    entry->base = tree->inflation;
    ramet_radix_touch(entry);
    ramet_heap_rescore(cache, entry->node);
}

static ramet_place find_longest(ramet_cache *cache, const char *owner, const int32_t *tokens, uint32_t n) {
    ramet_place shared = ramet_radix_find(cache, &cache->tree.everybody.root, tokens, n);
    ramet_zone *zone = owner ? ramet_zone_find(&cache->tree, owner) : NULL;
    if (!zone) return shared;
    ramet_place own = ramet_radix_find(cache, &zone->root, tokens, n);
    return own.matched >= shared.matched ? own : shared;
}

/* An empty context of its own takes what was found. */
static void give(ramet_cache *cache, ramet_place at, ramet_context *context) {
    ramet_entry *entry = at.node->newest, *exact = at.matched == at.node->depth ? at.node->entry : NULL;
    context->length = at.matched;
    context->table = ramet_table_prefix(cache, &entry->table, ramet_pages_for(at.matched, cache->options.page_tokens),
                                        RAMET_BY_CONTEXTS);
    for (int i = 0; exact && i < RAMET_TAILS; i++)
        context->tail[i] = ramet_block_share(cache, exact->tail[i], RAMET_BY_CONTEXTS);
    touch(cache, entry);
}

ramet_status ramet_tree_match(ramet_cache *cache, const char *owner, const int32_t *tokens, uint32_t n,
                              ramet_context **out, uint32_t *out_matched, ramet_error *error) {
    *out = NULL;
    *out_matched = 0;
    ramet_context *context;
    ramet_cache_lock(cache);
    ramet_status status = ramet_table_reserve(cache, RAMET_TABLE_LEVELS)
                              ? ramet_context_take(cache, &context, error)
                              : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a page table");
    if (status == RAMET_OK) {
        ramet_place at = find_longest(cache, owner, tokens, n);
        if (at.matched > 0) give(cache, at, context);
        *out = context;
        *out_matched = at.matched;
    }
    ramet_cache_unlock(cache);
    return status;
}

/* ---- keeping ---- */

/* Whether that much more may be pinned, and kept beside what is pinned. */
static ramet_status check_budgets(const ramet_cache *cache, uint64_t alone, bool pins, bool grows, ramet_error *error) {
    const ramet_cache_options *o = &cache->options;
    uint64_t pinned = cache->tree.pinned_bytes;
    if (pins && alone > o->pin_budget_bytes - pinned)
        return ramet_fail(error, RAMET_E_BUDGET,
                          "a pinned prefix of %llu bytes beside %llu that are pinned exceeds the budget of pins, %llu: "
                          "unpin one, or raise it",
                          (unsigned long long)alone, (unsigned long long)pinned,
                          (unsigned long long)o->pin_budget_bytes);
    if (grows && alone > o->tree_budget_bytes - pinned)
        return ramet_fail(
            error, RAMET_E_BUDGET,
            "a prefix of %llu bytes, the prefix tree's budget is %llu, of which %llu are pinned: raise it "
            "to keep this one",
            (unsigned long long)alone, (unsigned long long)o->tree_budget_bytes, (unsigned long long)pinned);
    return RAMET_OK;
}

static bool reserve_places(ramet_tree *tree) {
    void *pinned = tree->pinned;
    bool has_room = ramet_grow(&pinned, &tree->pinned_capacity, tree->n_pinned + 1, sizeof *tree->pinned);
    tree->pinned = pinned;
    return has_room && ramet_heap_reserve(tree);
}

/* The entry is in its zone and in no list. Others go until the tree fits; then it takes its place among them. */
static void take_place(ramet_cache *cache, ramet_entry *entry) {
    while (ramet_tree_bytes(cache) > cache->options.tree_budget_bytes) {
        bool has_evicted = ramet_tree_evict(cache); /* it fits alone beside the pinned ones */
        RAMET_ASSERT(has_evicted, "K11: the tree's budget is exceeded by pinned entries and a new one");
    }
    entry->base = cache->tree.inflation;
    if (entry->is_pinned)
        pin(cache, entry);
    else
        ramet_heap_add(cache, entry);
}

/* An entry that has these tokens already takes the tail blocks that it lacks. */
static ramet_status refresh(ramet_cache *cache, ramet_entry *entry, const ramet_context *context,
                            const ramet_retain *how, ramet_error *error) {
    ramet_block *tail[RAMET_TAILS];
    for (int i = 0; i < RAMET_TAILS; i++) tail[i] = entry->tail[i] ? entry->tail[i] : context->tail[i];
    uint64_t alone = ramet_entry_bytes_alone(cache, &entry->table, tail), had = bytes_alone(cache, entry);
    bool was_pinned = entry->is_pinned, is_pinned = was_pinned || how->is_pinned;
    RAMET_TRY(check_budgets(cache, was_pinned ? alone - had : alone, is_pinned, alone > had, error));
    if (was_pinned)
        unpin(cache, entry);
    else
        ramet_heap_remove(cache, entry);
    for (int i = 0; i < RAMET_TAILS; i++)
        if (!entry->tail[i]) entry->tail[i] = ramet_block_share(cache, context->tail[i], RAMET_BY_TREE);
    entry->is_pinned = is_pinned;
    entry->last_use = ++cache->tree.clock;
    ramet_radix_touch(entry);
    take_place(cache, entry);
    return RAMET_OK;
}

static void add_entry(ramet_cache *cache, ramet_zone *zone, ramet_tree_node *node, ramet_entry *entry,
                      const ramet_context *context, const ramet_retain *how) {
    *entry = (ramet_entry){.table = context->table,
                           .length = context->length,
                           .place = RAMET_NO_PLACE,
                           .is_pinned = how->is_pinned,
                           .last_use = ++cache->tree.clock,
                           .node = node,
                           .zone = zone};
    for (int i = 0; i < RAMET_TAILS; i++) entry->tail[i] = context->tail[i];
    hold_all(cache, entry, RAMET_BY_TREE);
    node->entry = entry;
    zone->n_entries++;
    ramet_radix_touch(entry);
    take_place(cache, entry);
}

static ramet_status no_memory(ramet_error *error) {
    return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for an entry of the prefix tree");
}

/* Lock held. Keeps the context's tokens, all of which are in `tokens`:
 *   1. an entry that has them is refreshed, and that is all;
 *   2. allocate: the owner's zone, the entry, its place in the radix tree and among the others;
 *   3. link, and let others go. Nothing fails here. */
static ramet_status keep(ramet_context *context, const int32_t *tokens, const ramet_retain *how, ramet_error *error) {
    ramet_cache *cache = context->cache;
    ramet_tree *tree = &cache->tree;
    uint32_t length = context->length;
    ramet_zone *zone = ramet_zone_find(tree, how->owner);
    ramet_place at = {0};
    if (!reserve_places(tree)) return no_memory(error);
    /* 1 */
    if (zone) at = ramet_radix_find(cache, &zone->root, tokens, length);
    if (zone && at.matched == length && at.node->depth == length && at.node->entry)
        return refresh(cache, at.node->entry, context, how, error);
    uint64_t alone = ramet_entry_bytes_alone(cache, &context->table, context->tail);
    RAMET_TRY(check_budgets(cache, alone, how->is_pinned, true, error));
    /* 2 */
    ramet_entry *entry = ramet_alloc(1, sizeof *entry);
    if (entry && !zone) {
        zone = ramet_zone_create(tree, how->owner);
        if (zone) at = (ramet_place){.node = &zone->root};
    }
    ramet_tree_node *node = entry && zone ? ramet_radix_grow(cache, at, tokens, length) : NULL;
    if (!node) {
        if (zone && zone->owner && zone->n_entries == 0) ramet_zone_remove(tree, zone);
        free(entry);
        return no_memory(error);
    }
    /* 3 */
    add_entry(cache, zone, node, entry, context, how);
    return RAMET_OK;
}

/* A copy of the context's tokens. */
static ramet_status copy_tokens(const ramet_context *context, int32_t **out, ramet_error *error) {
    *out = ramet_alloc(context->length, sizeof **out);
    if (!*out) return no_memory(error);
    ramet_context_read_tokens(context, 0, context->length, *out);
    return RAMET_OK;
}

ramet_status ramet_tree_retain(ramet_context *context, const ramet_retain *how, ramet_error *error) {
    static const ramet_retain everybody;
    ramet_cache *cache = context->cache;
    int32_t *tokens;
    RAMET_TRY(ramet_context_check_alive(context, error));
    if (context->is_lossy)
        return ramet_fail(error, RAMET_E_UNSUPPORTED,
                          "a context from a lossy snapshot is kept for nobody: run its tokens");
    RAMET_TRY(ramet_context_cut(context, context->length, error)); /* pages made writable ahead are not kept */
    if (context->length == 0) return RAMET_OK;
    RAMET_TRY(copy_tokens(context, &tokens, error));
    ramet_cache_lock(cache);
    ramet_status lost = ramet_context_lost_block(context);
    ramet_status status = lost == RAMET_OK ? keep(context, tokens, how ? how : &everybody, error)
                                           : ramet_fail(error, lost, "a part of the context could not be read back");
    ramet_cache_unlock(cache);
    free(tokens);
    return status;
}

ramet_status ramet_tree_unpin(ramet_cache *cache, const char *owner, const int32_t *tokens, uint32_t n,
                              ramet_error *error) {
    ramet_entry *entry = NULL;
    ramet_cache_lock(cache);
    ramet_zone *zone = ramet_zone_find(&cache->tree, owner);
    if (zone && n > 0) {
        ramet_place at = ramet_radix_find(cache, &zone->root, tokens, n);
        if (at.matched == n && at.node->depth == n) entry = at.node->entry;
    }
    bool is_pinned = entry && entry->is_pinned;
    if (is_pinned) {
        unpin(cache, entry);
        entry->last_use = ++cache->tree.clock;
        ramet_radix_touch(entry);
        entry->base = cache->tree.inflation;
        ramet_heap_add(cache, entry);
    }
    ramet_cache_unlock(cache);
    return is_pinned ? RAMET_OK
                     : ramet_fail(error, RAMET_E_NOT_FOUND, "no pinned prefix has exactly these %u tokens", n);
}
