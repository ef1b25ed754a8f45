/* table.c - page tables: persistent radix arrays of fan-out 64.
 *
 *   A, 70 pages       root ──┬── leaf p0..p63
 *                            └── leaf p64..p69             B is a fork of A that has added a page: its root and
 *   B, 71 pages       root'──┬── (A's first leaf)          its last leaf are its own, the other leaf and all of A's
 *                            └── leaf' p64..p69, p70       pages are shared. Up to 64 pages the leaf is the root.
 *
 * A root is retained by each context and entry whose table it is: a fork is one more of them. Whoever writes copies the
 * path that others can reach and changes the copy in place from then on. Nodes come from a pool that is filled before
 * anything changes. Owns nodes, their counts (K1) and the propagation of holds. Refuses to know bytes, tokens' meaning
 * and budgets. */
#include "base/memory.h"
#include "state/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes ---- */

bool ramet_table_reserve(ramet_cache *cache, uint32_t n) {
    ramet_node_pool *pool = &cache->nodes;
    while (pool->n_spare < n) {
        ramet_table_node *node = ramet_alloc(1, sizeof *node);
        if (!node) return false;
        node->next = pool->spare;
        pool->spare = node;
        pool->n_spare++;
    }
    return true;
}

void ramet_table_trim_pool(ramet_cache *cache, uint32_t keep) {
    ramet_node_pool *pool = &cache->nodes;
    while (pool->n_spare > keep) {
        ramet_table_node *node = pool->spare;
        pool->spare = node->next;
        pool->n_spare--;
        free(node);
    }
}

static ramet_table_node *take_node(ramet_cache *cache, uint32_t height) {
    ramet_node_pool *pool = &cache->nodes;
    ramet_table_node *node = pool->spare;
    RAMET_ASSERT(node, "a table node is needed that was not reserved");
    pool->spare = node->next;
    pool->n_spare--;
    node->counts = (ramet_counts){.refcount = 1};
    node->height = height;
    node->n = 0;
    node->prev = NULL;
    node->next = pool->live;
    if (pool->live) pool->live->prev = node;
    pool->live = node;
    pool->n_live++;
    return node;
}

static void give_node(ramet_cache *cache, ramet_table_node *node) {
    ramet_node_pool *pool = &cache->nodes;
    if (node->next) node->next->prev = node->prev;
    *(node->prev ? &node->prev->next : &pool->live) = node->next;
    pool->n_live--;
    node->next = pool->spare;
    pool->spare = node;
    pool->n_spare++;
}

/* ---- counting ---- */

static void retain_child(ramet_table_node *node, uint32_t i) {
    if (node->height == 0)
        ramet_block_retain(node->child[i].page);
    else
        node->child[i].node->counts.refcount++;
}

static void release_node(ramet_cache *cache, ramet_table_node *node) {
    RAMET_ASSERT(node->counts.refcount > 0, "K1: a table node is released but free");
    if (--node->counts.refcount > 0) return;
    for (uint32_t i = 0; i < node->n; i++) {
        if (node->height == 0)
            ramet_block_release(cache, node->child[i].page);
        else
            release_node(cache, node->child[i].node);
    }
    give_node(cache, node);
}

/* A hold goes further down only when it is the first of its kind: what was held already is counted already. */
static void hold_node(ramet_cache *cache, ramet_table_node *node, ramet_holder holder) {
    if (node->counts.holds[holder]++ > 0) return;
    for (uint32_t i = 0; i < node->n; i++) {
        if (node->height == 0)
            ramet_block_hold(cache, node->child[i].page, holder);
        else
            hold_node(cache, node->child[i].node, holder);
    }
}

static void unhold_node(ramet_cache *cache, ramet_table_node *node, ramet_holder holder) {
    RAMET_ASSERT(node->counts.holds[holder] > 0, "K11: a table node is let go by a holder that has none");
    if (--node->counts.holds[holder] > 0) return;
    for (uint32_t i = 0; i < node->n; i++) {
        if (node->height == 0)
            ramet_block_unhold(cache, node->child[i].page, holder);
        else
            unhold_node(cache, node->child[i].node, holder);
    }
}

void ramet_table_retain(ramet_cache *cache, const ramet_table *table, ramet_holder holder) {
    if (!table->root) return;
    table->root->counts.refcount++;
    hold_node(cache, table->root, holder);
}

void ramet_table_release(ramet_cache *cache, ramet_table *table, ramet_holder holder) {
    if (table->root) {
        unhold_node(cache, table->root, holder);
        release_node(cache, table->root);
    }
    *table = (ramet_table){0};
}

/* ---- shape ---- */

/* Pages below one child of a node of this height. */
static uint32_t span_of(uint32_t height) {
    return UINT32_C(1) << (RAMET_FAN_BITS * height);
}
static uint32_t child_of(const ramet_table_node *node, uint32_t page_idx) {
    return page_idx / span_of(node->height) % RAMET_FAN_OUT;
}
uint32_t ramet_table_path_nodes(const ramet_table *table, uint32_t first, uint32_t end) {
    uint32_t n = 0, last = end - 1, top = (table->n_pages > end ? table->n_pages : end) - 1;
    do { /* a level per turn, leaves first */
        first /= RAMET_FAN_OUT;
        last /= RAMET_FAN_OUT;
        top /= RAMET_FAN_OUT;
        n += last - first + 1;
    } while (top > 0);
    return n;
}

/* The first n of a node's `have` pages, retained. */
static ramet_table_node *take_prefix(ramet_cache *cache, ramet_table_node *node, uint32_t have, uint32_t n) {
    if (n == have) {
        node->counts.refcount++;
        return node;
    }
    uint32_t span = span_of(node->height), last = (n - 1) / span;
    ramet_table_node *cut = take_node(cache, node->height);
    memcpy(cut->child, node->child, (last + 1) * sizeof cut->child[0]);
    cut->n = last + 1;
    for (uint32_t i = 0; i < last; i++) retain_child(cut, i);
    if (node->height == 0)
        retain_child(cut, last);
    else
        cut->child[last].node =
            take_prefix(cache, node->child[last].node, ramet_min_u32(have - last * span, span), n - last * span);
    return cut;
}

ramet_table ramet_table_prefix(ramet_cache *cache, const ramet_table *table, uint32_t n_pages, ramet_holder holder) {
    ramet_table prefix = {.n_pages = n_pages};
    if (n_pages == 0) return prefix;
    ramet_table_node *top = table->root;
    uint32_t have = table->n_pages;
    for (; n_pages <= span_of(top->height) && top->height > 0; top = top->child[0].node) /* as low as n_pages allows */
        have = ramet_min_u32(have, span_of(top->height));
    prefix.root = take_prefix(cache, top, have, n_pages);
    hold_node(cache, prefix.root, holder);
    return prefix;
}

/* Puts a copy in the place of a node that others reach too. The place is a context's alone. */
static void replace_shared(ramet_cache *cache, ramet_table_node **place) {
    ramet_table_node *shared = *place, *own = take_node(cache, shared->height);
    memcpy(own->child, shared->child, shared->n * sizeof own->child[0]);
    own->n = shared->n;
    for (uint32_t i = 0; i < own->n; i++) retain_child(own, i);
    hold_node(cache, own, RAMET_BY_CONTEXTS);
    unhold_node(cache, shared, RAMET_BY_CONTEXTS);
    release_node(cache, shared);
    *place = own;
}

/* A node that is in use by one pointer of a context's table. */
static ramet_table_node *take_own_node(ramet_cache *cache, uint32_t height) {
    ramet_table_node *node = take_node(cache, height);
    node->counts.holds[RAMET_BY_CONTEXTS] = 1;
    return node;
}

ramet_block **ramet_table_own_path(ramet_cache *cache, ramet_table *table, uint32_t page_idx) {
    /* 1. A taller table when the page lies past what its height can reach: the old root, and the table's pointer to it,
     *    move under the new one, so no count changes. */
    if (!table->root) table->root = take_own_node(cache, 0);
    while (page_idx / span_of(table->root->height) >= RAMET_FAN_OUT) {
        ramet_table_node *taller = take_own_node(cache, table->root->height + 1);
        taller->child[taller->n++].node = table->root;
        table->root = taller;
    }
    /* 2. Down to the leaf: copy what is shared, add what is missing. */
    for (ramet_table_node **place = &table->root;;) {
        if ((*place)->counts.refcount > 1) replace_shared(cache, place);
        ramet_table_node *node = *place;
        uint32_t i = child_of(node, page_idx);
        if (i == node->n) {
            if (node->height == 0)
                node->child[i].page = NULL;
            else
                node->child[i].node = take_own_node(cache, node->height - 1);
            node->n++;
        }
        if (node->height == 0) return &node->child[i].page;
        place = &node->child[i].node;
    }
}

/* ---- looking ---- */

static const ramet_table_node *leaf_of(const ramet_table *table, uint32_t page_idx) {
    const ramet_table_node *node = table->root;
    while (node->height > 0) node = node->child[child_of(node, page_idx)].node;
    return node;
}

ramet_block *ramet_table_page(const ramet_table *table, uint32_t page_idx) {
    return leaf_of(table, page_idx)->child[page_idx % RAMET_FAN_OUT].page;
}

static bool is_single(const ramet_counts *counts, ramet_view view) {
    return (view == RAMET_AS_IS ? counts->refcount : counts->holds[RAMET_BY_CONTEXTS]) == 1;
}

bool ramet_table_is_exclusive(const ramet_table *table, uint32_t page_idx, ramet_view view) {
    const ramet_table_node *node = table->root;
    for (; is_single(&node->counts, view); node = node->child[child_of(node, page_idx)].node)
        if (node->height == 0) return is_single(&node->child[child_of(node, page_idx)].page->counts, view);
    return false;
}

static uint32_t count_exclusive(const ramet_table_node *node) {
    if (node->counts.refcount > 1) return 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n; i++)
        n += node->height == 0 ? node->child[i].page->counts.refcount == 1 : count_exclusive(node->child[i].node);
    return n;
}

uint32_t ramet_table_count_exclusive(const ramet_table *table) {
    return table->root ? count_exclusive(table->root) : 0;
}

uint32_t ramet_table_match(const ramet_table *table, uint32_t page_tokens, const int32_t *tokens, uint32_t from,
                           uint32_t to) {
    const ramet_table_node *leaf = NULL;
    for (uint32_t pos = from; pos < to;) {
        uint32_t i = pos / page_tokens % RAMET_FAN_OUT;
        if (!leaf || i == 0) leaf = leaf_of(table, pos / page_tokens);
        const int32_t *here = leaf->child[i].page->tokens + pos % page_tokens;
        uint32_t n = ramet_min_u32(page_tokens - pos % page_tokens, to - pos);
        if (memcmp(here, tokens + pos, n * sizeof *tokens) != 0) {
            uint32_t same = 0;
            while (here[same] == tokens[pos + same]) same++;
            return pos + same - from;
        }
        pos += n;
    }
    return to - from;
}

void ramet_table_read_tokens(const ramet_table *table, uint32_t page_tokens, uint32_t from, uint32_t n, int32_t *out) {
    for (uint32_t pos = from; pos < from + n;) {
        uint32_t run = ramet_min_u32(page_tokens - pos % page_tokens, from + n - pos);
        const ramet_block *page = ramet_table_page(table, pos / page_tokens);
        memcpy(out + (pos - from), page->tokens + pos % page_tokens, run * sizeof *out);
        pos += run;
    }
}
