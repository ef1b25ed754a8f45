/* check_tree.c - the walker's part on the prefix tree: entries as roots, K5, K6 and K12. See check.c. */
#include "state/check.h"

#include <string.h>

/* ---- K5: radix trees ---- */

/* Whether two tables spell the same `n` tokens; shared pages need no look. */
static bool spell_same(const ramet_table *a, const ramet_table *b, uint32_t page_tokens, uint32_t n) {
    for (uint32_t pos = 0; pos < n; pos += page_tokens) {
        const ramet_block *p = ramet_table_page(a, pos / page_tokens), *q = ramet_table_page(b, pos / page_tokens);
        uint32_t run = n - pos < page_tokens ? n - pos : page_tokens;
        if (p != q && memcmp(p->tokens, q->tokens, run * sizeof p->tokens[0]) != 0) return false;
    }
    return true;
}

static ramet_status check_child(ramet_walk *w, const ramet_tree_node *node, size_t i) {
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

static ramet_status check_node(ramet_walk *w, const ramet_zone *zone, const ramet_tree_node *node,
                               uint32_t *n_entries) {
    const ramet_entry *newest = node->entry;
    if (node->entry) {
        if (node->entry->node != node || node->entry->length != node->depth)
            BROKEN("K5: an entry of %u tokens is at depth %u", node->entry->length, node->depth);
        if (node->entry->zone != zone) BROKEN("K12: an entry of %u tokens is in another's zone", node->entry->length);
        ++*n_entries;
    } else if (node->parent && node->n_children < 2)
        BROKEN("K5: a tree node at depth %u has no entry and %zu children", node->depth, node->n_children);
    for (size_t i = 0; i < node->n_children; i++) {
        RAMET_TRY(check_child(w, node, i));
        const ramet_entry *below = node->children[i].node->newest;
        if (!newest || newest->last_use < below->last_use) newest = below;
    }
    if (node->parent && node->newest != newest)
        BROKEN("K5: the newest entry below depth %u is another one", node->depth);
    return RAMET_OK;
}

/* The one after it among its siblings, which are checked already. */
static const ramet_tree_node *next_sibling(const ramet_walk *w, const ramet_tree_node *node) {
    const ramet_tree_node *above = node->parent;
    int32_t first;
    size_t low = 0, high = above->n_children;
    ramet_table_read_tokens(&node->newest->table, w->cache->options.page_tokens, above->depth, 1, &first);
    while (low < high) { /* the first behind it */
        size_t middle = low + (high - low) / 2;
        if (above->children[middle].first <= first)
            low = middle + 1;
        else
            high = middle;
    }
    return low < above->n_children ? above->children[low].node : NULL;
}

/* Without recursion: a prefix that was kept after each of its tokens is as deep as it is long. */
static const ramet_tree_node *next_node(const ramet_walk *w, const ramet_tree_node *node) {
    if (node->n_children > 0) return node->children[0].node;
    for (; node->parent; node = node->parent) {
        const ramet_tree_node *sibling = next_sibling(w, node);
        if (sibling) return sibling;
    }
    return NULL;
}

static ramet_status check_zone(ramet_walk *w, const ramet_zone *zone, uint32_t *n_entries) {
    uint32_t n = 0;
    if (zone->root.parent || zone->root.entry || zone->root.newest || zone->root.depth != 0)
        BROKEN("K5: the root of a zone is no root");
    for (const ramet_tree_node *node = &zone->root; node; node = next_node(w, node))
        RAMET_TRY(check_node(w, zone, node, &n));
    if (n != zone->n_entries || (n == 0 && zone->owner))
        BROKEN("K6: a zone reaches %u of %u entries", n, zone->n_entries);
    *n_entries += n;
    return RAMET_OK;
}

/* ---- K6: the order in which entries go ---- */

static ramet_status meet_entry(ramet_walk *w, const ramet_entry *entry) {
    if (entry->table.n_pages != ramet_pages_for(entry->length, w->cache->options.page_tokens) || entry->length == 0)
        BROKEN("K5: an entry of %u tokens has %u pages", entry->length, entry->table.n_pages);
    RAMET_TRY(ramet_walk_table(w, &entry->table, RAMET_BY_TREE));
    RAMET_TRY(ramet_walk_tail(w, entry->tail, entry->length, RAMET_BY_TREE));
    if (!entry->is_pinned) return RAMET_OK;
    RAMET_TRY(ramet_walk_table(w, &entry->table, RAMET_BY_CONTEXTS));
    return ramet_walk_tail(w, entry->tail, entry->length, RAMET_BY_CONTEXTS);
}

static ramet_status check_heap(ramet_walk *w) {
    const ramet_tree *tree = &w->cache->tree;
    for (uint32_t i = 0; i < tree->n_heap; i++) {
        const ramet_entry *entry = tree->heap[i], *above = tree->heap[(i - (i > 0)) / 2];
        if (entry->place != i || entry->is_pinned) BROKEN("K6: an entry at place %u is pinned or elsewhere", i);
        if (entry->score != entry->base + ramet_entry_cost(w->cache, entry))
            BROKEN("K6: the score of an entry of %u tokens is not of now", entry->length);
        if (i > 0 &&
            (entry->score < above->score || (entry->score == above->score && entry->last_use <= above->last_use)))
            BROKEN("K6: an entry of %u tokens goes before one above it", entry->length);
        RAMET_TRY(meet_entry(w, entry));
    }
    return RAMET_OK;
}

static ramet_status check_pinned(ramet_walk *w) {
    const ramet_tree *tree = &w->cache->tree;
    uint64_t bytes = 0;
    for (size_t i = 0; i < tree->n_pinned; i++) {
        const ramet_entry *entry = tree->pinned[i];
        if (!entry->is_pinned || entry->place != RAMET_NO_PLACE)
            BROKEN("K6: a pinned entry has a place among the others");
        bytes += ramet_entry_bytes_alone(w->cache, &entry->table, entry->tail);
        RAMET_TRY(meet_entry(w, entry));
    }
    if (bytes != tree->pinned_bytes || bytes > w->cache->options.pin_budget_bytes)
        BROKEN("K11: entries of %llu bytes are pinned, %llu are counted", (unsigned long long)bytes,
               (unsigned long long)tree->pinned_bytes);
    return RAMET_OK;
}

ramet_status ramet_walk_tree(ramet_walk *w) {
    const ramet_tree *tree = &w->cache->tree;
    uint32_t n_entries = 0;
    RAMET_TRY(check_heap(w));
    RAMET_TRY(check_pinned(w));
    RAMET_TRY(check_zone(w, &tree->everybody, &n_entries));
    for (size_t i = 0; i < tree->n_zones; i++) {
        if (i > 0 && strcmp(tree->zones[i - 1]->owner, tree->zones[i]->owner) >= 0)
            BROKEN("K12: zones are not in the order of their owners");
        RAMET_TRY(check_zone(w, tree->zones[i], &n_entries));
    }
    if (n_entries != ramet_tree_n_entries(w->cache))
        BROKEN("K6: zones reach %u of %u entries", n_entries, ramet_tree_n_entries(w->cache));
    return RAMET_OK;
}
