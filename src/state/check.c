/* check.c - ramet_cache_check: counts everything again from the roots and compares.
 *
 * It believes nothing but the roots: the list of contexts and the list of entries. Owns the walk and the texts, which
 * begin with the number of the broken invariant. What it cannot see: K4 (the lockstep test compares every byte with a
 * flat copy) and K6's order against a flat model (the same test). Cost: all pages, nodes, entries, under the lock. */
#include "state/internal.h"

#include <string.h>

typedef struct walk {
    ramet_cache *cache;
    ramet_error *error;
    uint32_t stamp;
    uint32_t n_nodes, n_rows, n_rows_in_tree;
    uint32_t n_held[RAMET_HOLDERS];
} walk;

#define BROKEN(...) return ramet_fail(w->error, RAMET_E_INVARIANT, __VA_ARGS__)

/* ---- K2, K3: the slab ---- */

static ramet_status check_slab(walk *w) {
    const ramet_slab *slab = &w->cache->slab;
    if (slab->n_allocated - slab->n_freed != slab->n_live)
        BROKEN("K2: %llu pages allocated, %llu freed, but %u live", (unsigned long long)slab->n_allocated,
               (unsigned long long)slab->n_freed, slab->n_live);
    uint32_t n_free = 0, n_live = 0;
    for (uint32_t slot = slab->free_slot; slot != RAMET_NO_SLOT; slot = ramet_slab_page(slab, slot)->next_free) {
        if (slot >= slab->n_touched || n_free == slab->n_touched) BROKEN("K3: the list of free slots does not end");
        if (ramet_slab_page(slab, slot)->counts.refcount != 0)
            BROKEN("K3: slot %u is free and backs a live page", slot);
        n_free++;
    }
    for (uint32_t slot = 0; slot < slab->n_touched; slot++) {
        const ramet_page *page = ramet_slab_page(slab, slot);
        if (page->slot != slot) BROKEN("K3: the page of slot %u says that its slot is %u", slot, page->slot);
        n_live += page->counts.refcount > 0;
    }
    if (n_live != slab->n_live || n_live + n_free != slab->n_touched)
        BROKEN("K3: %u slots are out and %u free of %u, but %u pages live", slab->n_live, n_free, slab->n_touched,
               n_live);
    return RAMET_OK;
}

/* ---- K1, K2: counting pointers from the roots down ---- */

/* Counts one way to reach a thing. *is_first: it was never met; *is_first_held: never by this holder. */
static void meet(walk *w, ramet_recount *recount, ramet_holder holder, bool is_pointer, bool *is_first,
                 bool *is_first_held) {
    if (recount->stamp != w->stamp) *recount = (ramet_recount){.stamp = w->stamp};
    *is_first = is_pointer && recount->counts.refcount++ == 0;
    *is_first_held = recount->counts.holds[holder]++ == 0;
}

static ramet_status meet_page(walk *w, ramet_page *page, ramet_holder holder, bool is_pointer) {
    if (!ramet_slab_knows(&w->cache->slab, page)) BROKEN("K2: a table points at something that is no page");
    if (page->counts.refcount == 0) BROKEN("K2: a table points at page %u, which is free", page->slot);
    bool is_first, is_first_held;
    meet(w, &page->recount, holder, is_pointer, &is_first, &is_first_held);
    if (is_first_held) w->n_held[holder]++;
    return RAMET_OK;
}

/* Pointers below a node are counted once, on the first visit; holds once per holder. */
static ramet_status meet_node(walk *w, ramet_table_node *node, uint32_t height, uint32_t n_pages, ramet_holder holder,
                              bool is_pointer) {
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
            RAMET_TRY(meet_page(w, node->child[i].page, holder, is_first));
        else
            RAMET_TRY(meet_node(w, node->child[i].node, height - 1, left < span ? left : span, holder, is_first));
    }
    return RAMET_OK;
}

static ramet_status meet_table(walk *w, const ramet_table *table, ramet_holder holder) {
    if (!table->root != (table->n_pages == 0))
        BROKEN("K1: a table of %u pages has %s root", table->n_pages, table->root ? "a" : "no");
    if (!table->root) return RAMET_OK;
    uint32_t height = 0;
    while ((table->n_pages - 1) >> (RAMET_FAN_BITS * (height + 1)) != 0) height++;
    return meet_node(w, table->root, height, table->n_pages, holder, true);
}

static void meet_row(walk *w, ramet_row *row, ramet_holder holder) {
    if (!row) return;
    bool is_first, is_first_held;
    meet(w, &row->recount, holder, true, &is_first, &is_first_held);
    w->n_rows += is_first;
    w->n_rows_in_tree += is_first_held && holder == RAMET_BY_TREE;
}

/* ---- K9, and the roots ---- */

static ramet_status meet_context(walk *w, const ramet_context *context) {
    uint32_t n_pages = context->table.n_pages, needed = ramet_pages_for(context->length, w->cache->options.page_tokens);
    if (context->where && n_pages > 0) BROKEN("K9: a context spilled to %s has %u pages", context->where, n_pages);
    if (!context->where != !context->spilled_tokens) BROKEN("K9: a context is spilled by half");
    if (!context->where && n_pages < needed)
        BROKEN("K9: a context of %u tokens has %u pages", context->length, n_pages);
    RAMET_TRY(meet_table(w, &context->table, RAMET_BY_CONTEXTS));
    for (uint32_t i = needed; i < n_pages; i++)
        if (!ramet_table_is_exclusive(&context->table, i, RAMET_AS_IS))
            BROKEN("K1: page %u was made writable past %u tokens, and others reach it", i, context->length);
    if (context->has_logits && !context->row) BROKEN("K1: a context has logits but no row");
    meet_row(w, context->row, RAMET_BY_CONTEXTS);
    meet_row(w, context->spare_row, RAMET_BY_CONTEXTS);
    return RAMET_OK;
}

/* Every slot is a context or in the list of free ones. */
static ramet_status check_free_contexts(walk *w) {
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

static ramet_status meet_roots(walk *w) {
    ramet_cache *cache = w->cache;
    uint32_t n_contexts = 0, n_entries = 0;
    for (uint32_t i = 0; i < cache->contexts.n_touched; i++) {
        const ramet_context *context = &cache->contexts.slots[i];
        if (!context->cache) continue;
        n_contexts++;
        RAMET_TRY(meet_context(w, context));
    }
    for (const ramet_entry *e = cache->tree.oldest; e; e = e->newer, n_entries++) {
        if (e->table.n_pages != ramet_pages_for(e->length, cache->options.page_tokens) || e->length == 0)
            BROKEN("K5: an entry of %u tokens has %u pages", e->length, e->table.n_pages);
        RAMET_TRY(meet_table(w, &e->table, RAMET_BY_TREE));
        meet_row(w, e->row, RAMET_BY_TREE);
    }
    if (n_contexts != cache->contexts.n_live)
        BROKEN("K7: %u contexts are open, %u counted", n_contexts, cache->contexts.n_live);
    if (n_entries != cache->tree.n_entries)
        BROKEN("K6: %u entries are listed, %u counted", n_entries, cache->tree.n_entries);
    return RAMET_OK;
}

/* ---- K1, K11: what was counted against what is written down ---- */

static ramet_status compare(walk *w, const char *what, uint32_t number, const ramet_counts *is,
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

static ramet_status compare_row(walk *w, const ramet_row *row) {
    if (!row) return RAMET_OK;
    const uint32_t *found = row->recount.counts.holds;
    if (row->holds[RAMET_BY_CONTEXTS] != found[RAMET_BY_CONTEXTS] || row->holds[RAMET_BY_TREE] != found[RAMET_BY_TREE])
        BROKEN("K1: a logits row counts %u contexts and %u entries, but has %u and %u", row->holds[RAMET_BY_CONTEXTS],
               row->holds[RAMET_BY_TREE], found[RAMET_BY_CONTEXTS], found[RAMET_BY_TREE]);
    return RAMET_OK;
}

static ramet_status compare_counts(walk *w) {
    ramet_cache *cache = w->cache;
    uint32_t n_nodes = 0;
    for (uint32_t slot = 0; slot < cache->slab.n_touched; slot++) {
        const ramet_page *page = ramet_slab_page(&cache->slab, slot);
        RAMET_TRY(compare(w, "page", slot, &page->counts, &page->recount));
    }
    for (const ramet_table_node *node = cache->nodes.live; node; node = node->next)
        RAMET_TRY(compare(w, "table node", n_nodes++, &node->counts, &node->recount));
    if (n_nodes != cache->nodes.n_live || n_nodes != w->n_nodes)
        BROKEN("K1: %u table nodes are reachable, %u listed, %u counted", w->n_nodes, n_nodes, cache->nodes.n_live);
    for (uint32_t i = 0; i < cache->contexts.n_touched; i++) { /* a free one has no rows */
        RAMET_TRY(compare_row(w, cache->contexts.slots[i].row));
        RAMET_TRY(compare_row(w, cache->contexts.slots[i].spare_row));
    }
    for (const ramet_entry *e = cache->tree.oldest; e; e = e->newer) RAMET_TRY(compare_row(w, e->row));
    if (w->n_rows != cache->rows.n_live)
        BROKEN("K1: %u logits rows are reachable, %u counted", w->n_rows, cache->rows.n_live);
    return RAMET_OK;
}

static ramet_status check_budgets(walk *w) {
    const ramet_cache *cache = w->cache;
    const ramet_slab *slab = &cache->slab;
    for (int h = 0; h < RAMET_HOLDERS; h++)
        if (slab->n_held[h] != w->n_held[h])
            BROKEN("K11: %s hold %u pages, %u are counted", h == RAMET_BY_TREE ? "entries" : "contexts", w->n_held[h],
                   slab->n_held[h]);
    if (cache->rows.n_held_by_tree != w->n_rows_in_tree)
        BROKEN("K11: entries hold %u logits rows, %u are counted", w->n_rows_in_tree, cache->rows.n_held_by_tree);
    if (slab->n_live * cache->options.page_bytes > cache->options.budget_bytes)
        BROKEN("K11: %u pages exceed the budget of %llu bytes", slab->n_live,
               (unsigned long long)cache->options.budget_bytes);
    if (ramet_tree_bytes(cache) > cache->options.tree_budget_bytes)
        BROKEN("K11: the tree holds %llu bytes, its budget is %llu", (unsigned long long)ramet_tree_bytes(cache),
               (unsigned long long)cache->options.tree_budget_bytes);
    if (cache->contexts.n_live == 0 && !cache->tree.oldest &&
        (slab->n_live > 0 || cache->nodes.n_live > 0 || cache->rows.n_live > 0))
        BROKEN("K7: nothing is open or kept, but %u pages, %u table nodes and %u logits rows live", slab->n_live,
               cache->nodes.n_live, cache->rows.n_live);
    return RAMET_OK;
}

/* ---- K5, K6: the tree ---- */

/* Whether two tables spell the same `n` tokens; shared pages need no look. */
static bool spell_same(const ramet_table *a, const ramet_table *b, uint32_t page_tokens, uint32_t n) {
    for (uint32_t pos = 0; pos < n; pos += page_tokens) {
        const ramet_page *p = ramet_table_page(a, pos / page_tokens), *q = ramet_table_page(b, pos / page_tokens);
        uint32_t run = n - pos < page_tokens ? n - pos : page_tokens;
        if (p != q && memcmp(p->tokens, q->tokens, run * sizeof p->tokens[0]) != 0) return false;
    }
    return true;
}

static ramet_status check_child(walk *w, const ramet_tree_node *node, size_t i) {
    const ramet_tree_node *child = node->children[i].node;
    int32_t first = node->children[i].first, spelt;
    uint32_t page_tokens = w->cache->options.page_tokens;
    if (child->parent != node) BROKEN("K5: a tree node at depth %u has another parent", child->depth);
    if (child->depth <= node->depth) BROKEN("K5: an edge leads from depth %u to depth %u", node->depth, child->depth);
    if (!child->newest || child->newest->length < child->depth)
        BROKEN("K5: the newest entry below depth %u does not reach it", child->depth);
    if (i > 0 && node->children[i - 1].first >= first)
        BROKEN("K5: siblings at depth %u begin with %d and %d", node->depth, node->children[i - 1].first, first);
    ramet_table_read_tokens(&child->newest->table, page_tokens, node->depth, 1, &spelt);
    if (spelt != first) BROKEN("K5: an edge at depth %u begins with %d but spells %d", node->depth, first, spelt);
    if (node->newest && !spell_same(&node->newest->table, &child->newest->table, page_tokens, node->depth))
        BROKEN("K5: two entries below depth %u do not share its prefix", node->depth);
    return RAMET_OK;
}

static ramet_status check_tree_node(walk *w, const ramet_tree_node *node, uint32_t *n_entries) {
    const ramet_entry *newest = node->entry;
    if (node->entry) {
        if (node->entry->node != node || node->entry->length != node->depth)
            BROKEN("K5: an entry of %u tokens is at depth %u", node->entry->length, node->depth);
        ++*n_entries;
    } else if (node->parent && node->n_children < 2)
        BROKEN("K5: a tree node at depth %u has no entry and %zu children", node->depth, node->n_children);
    for (size_t i = 0; i < node->n_children; i++) {
        RAMET_TRY(check_child(w, node, i));
        RAMET_TRY(check_tree_node(w, node->children[i].node, n_entries));
        const ramet_entry *below = node->children[i].node->newest;
        if (!newest || newest->last_use < below->last_use) newest = below;
    }
    if (node->parent && node->newest != newest)
        BROKEN("K5: the newest entry below depth %u is another one", node->depth);
    return RAMET_OK;
}

static ramet_status check_tree(walk *w) {
    const ramet_tree *tree = &w->cache->tree;
    uint32_t n_entries = 0;
    if (tree->root.parent || tree->root.entry || tree->root.newest || tree->root.depth != 0)
        BROKEN("K5: the root of the tree is no root");
    RAMET_TRY(check_tree_node(w, &tree->root, &n_entries));
    if (n_entries != tree->n_entries) BROKEN("K6: the tree reaches %u of %u entries", n_entries, tree->n_entries);
    const ramet_entry *older = NULL;
    for (const ramet_entry *e = tree->oldest; e; older = e, e = e->newer)
        if (e->older != older || (older && older->last_use >= e->last_use))
            BROKEN("K6: the order of last use is broken at an entry of %u tokens", e->length);
    if (tree->newest != older) BROKEN("K6: the order of last use does not end with the newest entry");
    return RAMET_OK;
}

static ramet_status check_all(walk *w) {
    RAMET_TRY(check_slab(w));
    RAMET_TRY(check_free_contexts(w));
    RAMET_TRY(meet_roots(w));
    RAMET_TRY(compare_counts(w));
    RAMET_TRY(check_tree(w));
    return check_budgets(w);
}

ramet_status ramet_cache_check(ramet_cache *cache, ramet_error *error) {
    ramet_cache_lock(cache);
    walk w = {.cache = cache, .error = error, .stamp = ++cache->check_stamp};
    ramet_status status = check_all(&w);
    ramet_cache_unlock(cache);
    return status;
}
