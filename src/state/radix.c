/* radix.c - a radix tree over token ids, one per zone, that says which entries share which prefix.
 *
 *   root ── "a b c" ─┬─ "d"                entry a b c d
 *                    └─ "x y"              entry a b c x y
 *                         └─ "z"           entry a b c x y z
 *
 * An edge is a range of positions; its tokens are read from the pages of the newest entry below it. So there is no
 * second copy of them, and tokens are compared, never hashes of tokens.
 *
 * Owns K5: no node but the root without an entry has fewer than two children, siblings differ in their first token,
 * `newest` is the newest. Refuses to know which entries are worth keeping. */
#include "state/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes ---- */

/* Where a child with this first token is, or would be. */
static size_t find_slot(const ramet_tree_node *node, int32_t first) {
    size_t low = 0, high = node->n_children;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (node->children[middle].first < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static ramet_tree_node *find_child(const ramet_tree_node *node, int32_t first) {
    size_t i = find_slot(node, first);
    return i < node->n_children && node->children[i].first == first ? node->children[i].node : NULL;
}

static bool reserve_children(ramet_tree_node *node, size_t n) {
    void *children = node->children;
    bool has_room = ramet_grow(&children, &node->capacity, n, sizeof *node->children);
    node->children = children;
    return has_room;
}

static void free_node(ramet_tree_node *node) {
    if (!node) return;
    free(node->children);
    free(node);
}

static ramet_tree_node *alloc_node(size_t n_children) {
    ramet_tree_node *node = ramet_alloc(1, sizeof *node);
    if (!node || n_children == 0 || reserve_children(node, n_children)) return node;
    free(node);
    return NULL;
}

/* There is room. */
static void add_child(ramet_tree_node *node, int32_t first, ramet_tree_node *child) {
    size_t i = find_slot(node, first);
    memmove(node->children + i + 1, node->children + i, (node->n_children - i) * sizeof *node->children);
    node->children[i] = (ramet_tree_child){first, child};
    node->n_children++;
    child->parent = node;
}

static void remove_child(ramet_tree_node *node, int32_t first) {
    size_t i = find_slot(node, first);
    node->n_children--;
    memmove(node->children + i, node->children + i + 1, (node->n_children - i) * sizeof *node->children);
}

static void replace_child(ramet_tree_node *node, int32_t first, ramet_tree_node *child) {
    node->children[find_slot(node, first)].node = child;
    child->parent = node;
}

/* Token `pos` of an entry: what tells an edge that begins there from its siblings. */
static int32_t token_at(const ramet_cache *cache, const ramet_entry *entry, uint32_t pos) {
    int32_t token;
    ramet_table_read_tokens(&entry->table, cache->options.page_tokens, pos, 1, &token);
    return token;
}

/* ---- finding ---- */

/* `same` tokens are those of `entry`, which is below the next node. It is compared as far as it goes, not edge by edge:
 * where the way down follows it nothing is left to compare, and where the way leaves it, it does so at `same`. */
ramet_place ramet_radix_find(const ramet_cache *cache, ramet_tree_node *root, const int32_t *tokens, uint32_t n) {
    ramet_place at = {.node = root};
    const ramet_entry *entry = NULL;
    uint32_t same = 0;
    while (at.matched == at.node->depth && at.matched < n) {
        ramet_tree_node *child = find_child(at.node, tokens[at.matched]);
        if (!child) break;
        if (entry != child->newest) {
            entry = child->newest;
            uint32_t to = entry->length < n ? entry->length : n;
            same = at.matched + ramet_table_match(&entry->table, cache->options.page_tokens, tokens, at.matched, to);
        }
        at.matched = child->depth < same ? child->depth : same;
        at.node = child;
    }
    return at;
}

/* ---- use ---- */

void ramet_radix_touch(ramet_entry *entry) {
    for (ramet_tree_node *node = entry->node; node->parent; node = node->parent) node->newest = entry;
}

static ramet_entry *find_newest(const ramet_tree_node *node) {
    ramet_entry *newest = node->entry;
    for (size_t i = 0; i < node->n_children; i++) {
        ramet_entry *below = node->children[i].node->newest;
        if (!newest || newest->last_use < below->last_use) newest = below;
    }
    return newest;
}

/* ---- growing ---- */

/* Cuts the edge into `below` at depth `depth` by putting `mid` there. */
static void split_edge(ramet_cache *cache, ramet_tree_node *below, ramet_tree_node *mid, uint32_t depth) {
    ramet_tree_node *above = below->parent;
    mid->depth = depth;
    mid->newest = below->newest;
    replace_child(above, token_at(cache, below->newest, above->depth), mid);
    add_child(mid, token_at(cache, below->newest, depth), below);
}

/* Makes the place where an entry of these tokens ends:
 *   1. allocate: a node to split the edge if they leave it half way, a leaf if some are left over;
 *   2. link. Nothing fails here. */
ramet_tree_node *ramet_radix_grow(ramet_cache *cache, ramet_place at, const int32_t *tokens, uint32_t length) {
    bool splits = at.matched < at.node->depth, grows = at.matched < length;
    /* 1 */
    ramet_tree_node *mid = splits ? alloc_node(2) : NULL, *leaf = grows ? alloc_node(0) : NULL;
    ramet_tree_node *end = splits ? mid : at.node;
    if ((splits && !mid) || (grows && !leaf) || (grows && !reserve_children(end, end->n_children + 1))) {
        free_node(mid);
        free_node(leaf);
        return NULL;
    }
    /* 2 */
    if (splits) {
        split_edge(cache, at.node, mid, at.matched);
        ramet_heap_rescore(cache, at.node);
    }
    if (!grows) return end;
    leaf->depth = length;
    add_child(end, tokens[at.matched], leaf);
    ramet_heap_rescore(cache, end);
    return leaf;
}

/* ---- giving up ---- */

/* Takes out a node that has no entry now and is needed no more. Returns the lowest node above that is left. */
static ramet_tree_node *prune(ramet_cache *cache, const ramet_entry *gone) {
    ramet_tree_node *node = gone->node, *above = node->parent;
    if (node->n_children == 0) {
        remove_child(above, token_at(cache, gone, above->depth));
        free_node(node);
        node = above;
        above = node->parent;
    }
    if (!above || node->entry || node->n_children != 1) {
        ramet_heap_rescore(cache, node);
        return node;
    }
    ramet_tree_node *only = node->children[0].node; /* its edge then begins where the node's own did */
    replace_child(above, token_at(cache, gone, above->depth), only);
    free_node(node);
    ramet_heap_rescore(cache, only);
    return above;
}

void ramet_radix_remove(ramet_cache *cache, ramet_entry *entry) {
    entry->node->entry = NULL;
    ramet_tree_node *node = prune(cache, entry);
    for (; node->parent && node->newest == entry; node = node->parent) node->newest = find_newest(node);
}
