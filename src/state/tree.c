/* tree.c - the prefix tree: a radix tree over token ids whose entries keep a table and a row of logits.
 *
 *   root ── "a b c" ─┬─ "d"                entry a b c d
 *                    └─ "x y"              entry a b c x y
 *                         └─ "z"           entry a b c x y z
 *
 * An edge is a range of positions; its tokens are read from the pages of the newest entry below it. So there is no
 * second copy of them, and tokens are compared, never hashes of tokens.
 *
 * Owns K5 (well-formed: no node but the root without an entry has fewer than two children, siblings differ in their
 * first token, `newest` is the newest) and K6 (entries in order of last use). Only the oldest entry is ever taken out,
 * so `newest` is never looked for: where the oldest is the newest too it is the only one, and the node goes with it. */
#include "state/internal.h"

#include <stdlib.h>
#include <string.h>

uint64_t ramet_tree_bytes(const ramet_cache *cache) {
    return cache->slab.n_held[RAMET_BY_TREE] * cache->options.page_bytes +
           cache->rows.n_held_by_tree * ramet_row_bytes(cache);
}

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

/* ---- use ---- */

static void unlink_entry(ramet_tree *tree, ramet_entry *entry) {
    *(entry->older ? &entry->older->newer : &tree->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &tree->newest) = entry->older;
}

static void link_newest(ramet_tree *tree, ramet_entry *entry) {
    entry->older = tree->newest;
    entry->newer = NULL;
    *(tree->newest ? &tree->newest->newer : &tree->oldest) = entry;
    tree->newest = entry;
    entry->last_use = ++tree->clock;
    for (ramet_tree_node *node = entry->node; node->parent; node = node->parent) node->newest = entry;
}

static void touch_entry(ramet_tree *tree, ramet_entry *entry) {
    if (entry == tree->newest) return; /* and so it is of every node above it */
    unlink_entry(tree, entry);
    link_newest(tree, entry);
}

/* The longest common prefix with any entry, and the lowest node that has a part of it in its edge: all entries at or
 * below that node, and no others, start with it. The root when nothing matches. */
typedef struct place {
    ramet_tree_node *node;
    uint32_t matched;
} place;

/* `same` tokens are those of `entry`, which is below the next node. It is compared as far as it goes, not edge by edge:
 * where the way down follows it nothing is left to compare, and where the way leaves it, it does so at `same`. */
static place find_place(ramet_cache *cache, const int32_t *tokens, uint32_t n) {
    place at = {.node = &cache->tree.root};
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

ramet_status ramet_tree_match(ramet_cache *cache, const int32_t *tokens, uint32_t n, ramet_context **out,
                              uint32_t *out_matched, ramet_error *error) {
    *out = NULL;
    *out_matched = 0;
    ramet_context *context;
    ramet_cache_lock(cache);
    ramet_status status = ramet_table_reserve(cache, RAMET_TABLE_LEVELS)
                              ? ramet_context_take(cache, &context, error)
                              : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a page table");
    if (status != RAMET_OK) {
        ramet_cache_unlock(cache);
        return status;
    }
    place at = find_place(cache, tokens, n);
    if (at.matched > 0) {
        ramet_entry *entry = at.node->newest, *exact = at.matched == at.node->depth ? at.node->entry : NULL;
        context->length = at.matched;
        context->table = ramet_table_prefix(cache, &entry->table,
                                            ramet_pages_for(at.matched, cache->options.page_tokens), RAMET_BY_CONTEXTS);
        context->has_logits = exact && exact->row;
        if (context->has_logits) context->row = ramet_row_retain(cache, exact->row, RAMET_BY_CONTEXTS);
        touch_entry(&cache->tree, entry);
    }
    ramet_cache_unlock(cache);
    *out = context;
    *out_matched = at.matched;
    return RAMET_OK;
}

/* ---- keeping ---- */

static void refresh_entry(ramet_cache *cache, ramet_entry *entry, const ramet_context *context) {
    if (!entry->row && context->has_logits) entry->row = ramet_row_retain(cache, context->row, RAMET_BY_TREE);
    touch_entry(&cache->tree, entry);
}

/* Cuts the edge into `below` at depth `depth` by putting `mid` there. */
static void split_edge(ramet_cache *cache, ramet_tree_node *below, ramet_tree_node *mid, uint32_t depth) {
    ramet_tree_node *above = below->parent;
    mid->depth = depth;
    mid->newest = below->newest;
    replace_child(above, token_at(cache, below->newest, above->depth), mid);
    add_child(mid, token_at(cache, below->newest, depth), below);
}

/* Keeps the context's tokens, all of which are in `tokens`:
 *   1. find where they leave the tree; an entry that ends there is refreshed, and that is all;
 *   2. allocate: the entry, a node to split the edge if they leave it half way, a leaf if some are left over;
 *   3. link. Nothing fails here. */
static ramet_status keep_entry(ramet_context *context, const int32_t *tokens, ramet_error *error) {
    ramet_cache *cache = context->cache;
    uint32_t length = context->length;
    /* 1 */
    place at = find_place(cache, tokens, length);
    bool splits = at.matched < at.node->depth, grows = at.matched < length;
    if (!splits && !grows && at.node->entry) {
        refresh_entry(cache, at.node->entry, context);
        return RAMET_OK;
    }
    /* 2 */
    ramet_entry *entry = ramet_alloc(1, sizeof *entry);
    ramet_tree_node *mid = splits ? alloc_node(2) : NULL, *leaf = grows ? alloc_node(0) : NULL;
    ramet_tree_node *end = splits ? mid : at.node;
    if (!entry || (splits && !mid) || (grows && !leaf) || (grows && !reserve_children(end, end->n_children + 1))) {
        free(entry);
        free_node(mid);
        free_node(leaf);
        return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for an entry of the prefix tree");
    }
    /* 3 */
    if (splits) split_edge(cache, at.node, mid, at.matched);
    if (grows) {
        leaf->depth = length;
        add_child(end, tokens[at.matched], leaf);
        end = leaf;
    }
    end->entry = entry;
    *entry = (ramet_entry){.table = context->table, .length = length, .node = end};
    ramet_table_retain(cache, &entry->table, RAMET_BY_TREE);
    if (context->has_logits) entry->row = ramet_row_retain(cache, context->row, RAMET_BY_TREE);
    link_newest(&cache->tree, entry);
    cache->tree.n_entries++;
    return RAMET_OK;
}

ramet_status ramet_tree_retain(ramet_context *context, ramet_error *error) {
    ramet_cache *cache = context->cache;
    uint64_t budget = cache->options.tree_budget_bytes;
    RAMET_TRY(ramet_context_check_resident(context, error));
    RAMET_TRY(ramet_context_cut(context, context->length, error)); /* pages made writable ahead are not kept */
    if (context->length == 0) return RAMET_OK;
    uint64_t alone =
        context->table.n_pages * cache->options.page_bytes + (context->has_logits ? ramet_row_bytes(cache) : 0);
    if (alone > budget)
        return ramet_fail(
            error, RAMET_E_BUDGET,
            "a prefix of %u tokens takes %llu bytes, the prefix tree's budget is %llu: raise it to keep this one",
            context->length, (unsigned long long)alone, (unsigned long long)budget);
    int32_t *tokens = ramet_alloc(context->length, sizeof *tokens);
    if (!tokens) return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for an entry of the prefix tree");
    ramet_context_read_tokens(context, 0, context->length, tokens);
    ramet_cache_lock(cache);
    ramet_status status = keep_entry(context, tokens, error);
    while (ramet_tree_bytes(cache) > budget) ramet_tree_evict_oldest(cache); /* never this one: it fits alone */
    ramet_cache_unlock(cache);
    free(tokens);
    return status;
}

/* ---- giving up ---- */

/* Takes out the node that an entry has left, and its parent when that has one child now and no entry of its own. */
static void prune_node(const ramet_cache *cache, const ramet_entry *gone) {
    ramet_tree_node *node = gone->node, *above = node->parent;
    if (node->n_children == 0) {
        remove_child(above, token_at(cache, gone, above->depth));
        free_node(node);
        node = above;
        above = node->parent;
    }
    if (above && !node->entry && node->n_children == 1) { /* its child's edge then begins where its own did */
        replace_child(above, token_at(cache, gone, above->depth), node->children[0].node);
        free_node(node);
    }
}

static void remove_oldest(ramet_cache *cache) {
    ramet_tree *tree = &cache->tree;
    ramet_entry *entry = tree->oldest;
    unlink_entry(tree, entry);
    tree->n_entries--;
    entry->node->entry = NULL;
    prune_node(cache, entry);
    ramet_table_release(cache, &entry->table, RAMET_BY_TREE);
    ramet_row_release(cache, &entry->row, RAMET_BY_TREE);
    free(entry);
}

void ramet_tree_evict_oldest(ramet_cache *cache) {
    RAMET_ASSERT(cache->tree.oldest, "K11: the tree holds %u pages but no entry", cache->slab.n_held[RAMET_BY_TREE]);
    cache->tree.n_evictions++;
    remove_oldest(cache);
}

void ramet_tree_clear(ramet_cache *cache) {
    ramet_cache_lock(cache);
    uint64_t n_freed_before = cache->slab.n_freed;
    while (cache->tree.oldest) remove_oldest(cache);
    ramet_slab_trim(&cache->slab, n_freed_before); /* slots of closed contexts stay warm for the next ones */
    ramet_cache_unlock(cache);
}

/* ---- listing ---- */

/* Lock held. All entries' tokens, oldest first, one after the other; their lengths. */
static bool copy_entries(ramet_cache *cache, int32_t **out_tokens, uint32_t **out_lengths) {
    size_t total = 0, n = 0;
    for (const ramet_entry *entry = cache->tree.oldest; entry; entry = entry->newer) total += entry->length;
    *out_tokens = ramet_alloc(total, sizeof **out_tokens);
    *out_lengths = ramet_alloc(cache->tree.n_entries, sizeof **out_lengths);
    if (!*out_tokens || !*out_lengths) return false;
    total = 0;
    for (const ramet_entry *entry = cache->tree.oldest; entry; entry = entry->newer) {
        ramet_table_read_tokens(&entry->table, cache->options.page_tokens, 0, entry->length, *out_tokens + total);
        total += entry->length;
        (*out_lengths)[n++] = entry->length;
    }
    return true;
}

ramet_status ramet_tree_each(ramet_cache *cache, ramet_tree_visit visit, void *user, ramet_error *error) {
    int32_t *tokens;
    uint32_t *lengths;
    ramet_cache_lock(cache);
    bool copied = copy_entries(cache, &tokens, &lengths);
    uint32_t n = cache->tree.n_entries;
    ramet_cache_unlock(cache);
    const int32_t *next = tokens;
    for (uint32_t i = 0; copied && i < n; i++) {
        visit(user, next, lengths[i]);
        next += lengths[i];
    }
    free(tokens);
    free(lengths);
    return copied ? RAMET_OK : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to list the prefix tree");
}
