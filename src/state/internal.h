/* internal.h - how pages, tables, rows, the tree and contexts are laid out, for this room and its tests alone.
 *
 * Thread rule, all of it: everything in a cache is read and changed under cache->lock, with two exceptions for the
 * owner of a context (who is inside it): it may read its context's fields and walk down its own table without the lock,
 * because only the owner changes them (under the lock), and it may read the bytes of every page of its table and write
 * those of pages that nobody else can reach, because a shared page is never written (K4).
 *
 * Three kinds of things are shared and counted: pages, table nodes and logits rows. "Held" means reachable from a root,
 * and roots are of two kinds: contexts and tree entries. */
#ifndef RAMET_STATE_INTERNAL_H
#define RAMET_STATE_INTERNAL_H

#include "base/memory.h"
#include "state/state.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

typedef enum ramet_holder { RAMET_BY_CONTEXTS, RAMET_BY_TREE, RAMET_HOLDERS } ramet_holder;

typedef struct ramet_counts {
    uint32_t refcount;             /* pointers to it: table leaves to a page; parents and roots to a node (K1) */
    uint32_t holds[RAMET_HOLDERS]; /* how many of these pointers a context, a tree entry can reach (K11) */
} ramet_counts;

/* What ramet_cache_check counted for itself; valid when the stamp is the current walk's. */
typedef struct ramet_recount {
    ramet_counts counts;
    uint32_t stamp;
} ramet_recount;

/* ---- slab.c: slots ---- */

#define RAMET_NO_SLOT UINT32_MAX

/* The header of a slot; it stays where it is when the page is freed, so that a stale pointer can be told (K2). */
typedef struct ramet_page {
    ramet_counts counts;
    ramet_recount recount;
    uint32_t slot;
    uint32_t next_free; /* slot; while free */
    uint64_t freed_at;  /* while free: the slab's n_freed after it was */
    int32_t tokens[];   /* [page_tokens] */
} ramet_page;

typedef struct ramet_slab {
    uint8_t *data, *headers; /* [n_slots], reserved; a slot costs memory when it is first touched */
    size_t data_stride, header_stride;
    uint32_t n_slots;
    uint32_t n_touched; /* slots [0, n_touched) have been out at least once */
    uint32_t n_live;
    uint32_t free_slot;             /* head of the list of free slots below n_touched */
    uint32_t n_held[RAMET_HOLDERS]; /* pages that contexts, that tree entries hold; each counted once */
    uint64_t n_allocated, n_freed, n_copied;
} ramet_slab;

ramet_status ramet_slab_init(ramet_slab *slab, const ramet_cache_options *options, ramet_error *error);
void ramet_slab_fini(ramet_slab *slab);
/* A slot out of the slab; the caller has made sure that one is free. Its bytes are whatever was there before. */
ramet_page *ramet_slab_take(ramet_slab *slab);
void ramet_slab_give(ramet_slab *slab, ramet_page *page);
/* Hands the memory of slots back to the system that are free and were freed when n_freed was `since` or more. */
void ramet_slab_trim(const ramet_slab *slab, uint64_t since);
ramet_page *ramet_slab_page(const ramet_slab *slab, uint32_t slot);
/* Whether a pointer is a header of a slot that has ever been out. */
bool ramet_slab_knows(const ramet_slab *slab, const ramet_page *page);

static inline uint8_t *ramet_slab_data(const ramet_slab *slab, const ramet_page *page) {
    return slab->data + page->slot * slab->data_stride;
}

/* ---- page.c: counting ---- */

/* A fresh page with one pointer to it, from a context's table. The caller has made room. */
ramet_page *ramet_page_create(ramet_cache *cache);
ramet_page *ramet_page_copy(ramet_cache *cache, const ramet_page *source);
void ramet_page_retain(ramet_page *page);
void ramet_page_release(ramet_cache *cache, ramet_page *page);
void ramet_page_hold(ramet_cache *cache, ramet_page *page, ramet_holder holder);
void ramet_page_unhold(ramet_cache *cache, ramet_page *page, ramet_holder holder);

/* ---- table.c: persistent radix arrays of pages ---- */

enum { RAMET_FAN_BITS = 6, RAMET_FAN_OUT = 1 << RAMET_FAN_BITS, RAMET_TABLE_LEVELS = 5 };

typedef struct ramet_table_node ramet_table_node;
struct ramet_table_node {
    ramet_counts counts;
    ramet_recount recount;
    uint32_t height;               /* 0: a leaf, its children are pages */
    uint32_t n;                    /* children in use, from 0 on without gaps */
    ramet_table_node *prev, *next; /* of all live nodes; next alone: of the spare ones */
    union {
        ramet_table_node *node;
        ramet_page *page;
    } child[RAMET_FAN_OUT];
};

/* As low as n_pages allows; no page, no root. */
typedef struct ramet_table {
    ramet_table_node *root;
    uint32_t n_pages;
} ramet_table;

typedef struct ramet_node_pool {
    ramet_table_node *live, *spare;
    uint32_t n_live, n_spare;
} ramet_node_pool;

/* Makes `n` table nodes available, so that what follows cannot fail; false: no memory. */
bool ramet_table_reserve(ramet_cache *cache, uint32_t n);
/* Nodes on all paths to pages [first, end), some of them perhaps yet to come: what owning these can take at most. */
uint32_t ramet_table_path_nodes(const ramet_table *table, uint32_t first, uint32_t end);
void ramet_table_trim_pool(ramet_cache *cache, uint32_t keep);

void ramet_table_retain(ramet_cache *cache, const ramet_table *table, ramet_holder holder);
void ramet_table_release(ramet_cache *cache, ramet_table *table, ramet_holder holder);
/* The first n_pages (<= table's) as a table of their own, retained: shares all but the path to its last page, so it
 * needs at most RAMET_TABLE_LEVELS reserved nodes. No page is touched. */
ramet_table ramet_table_prefix(ramet_cache *cache, const ramet_table *table, uint32_t n_pages, ramet_holder holder);
/* For a context's table: where its pointer to page `page_idx` (<= n_pages) lies, on a path that nobody else can reach,
 * with the nodes that the caller reserved. A NULL there is for the caller to fill, and to count in n_pages. */
ramet_page **ramet_table_own_path(ramet_cache *cache, ramet_table *table, uint32_t page_idx);

ramet_page *ramet_table_page(const ramet_table *table, uint32_t page_idx);
/* Whether this table alone reaches the page: as things are, or as they would be without the prefix tree. */
typedef enum ramet_view { RAMET_AS_IS, RAMET_WITHOUT_TREE } ramet_view;
bool ramet_table_is_exclusive(const ramet_table *table, uint32_t page_idx, ramet_view view);
uint32_t ramet_table_count_exclusive(const ramet_table *table);
/* How many of tokens[from..to) equal the table's, from `from` on. */
uint32_t ramet_table_match(const ramet_table *table, uint32_t page_tokens, const int32_t *tokens, uint32_t from,
                           uint32_t to);
void ramet_table_read_tokens(const ramet_table *table, uint32_t page_tokens, uint32_t from, uint32_t n, int32_t *out);

/* ---- row.c: logits rows ---- */

typedef struct ramet_row ramet_row;
struct ramet_row {
    uint32_t holds[RAMET_HOLDERS]; /* contexts, entries that have it */
    ramet_recount recount;
    ramet_row *next; /* of the spare ones */
    float values[];  /* [n_vocab] */
};

typedef struct ramet_row_pool {
    ramet_row *spare;
    uint32_t n_live, n_spare;
    uint32_t n_held_by_tree; /* each counted once */
} ramet_row_pool;

ramet_row *ramet_row_create(ramet_cache *cache); /* held by one context; NULL: no memory */
ramet_row *ramet_row_retain(ramet_cache *cache, ramet_row *row, ramet_holder holder);
void ramet_row_release(ramet_cache *cache, ramet_row **row, ramet_holder holder);
void ramet_row_trim_pool(ramet_cache *cache, uint32_t keep);

/* ---- tree.c: the prefix tree ---- */

typedef struct ramet_entry ramet_entry;
typedef struct ramet_tree_node ramet_tree_node;

struct ramet_entry {
    ramet_table table; /* its tokens are those of its pages: there is no second copy */
    uint32_t length;   /* tokens, at least 1 */
    ramet_row *row;    /* may be NULL */
    uint64_t last_use; /* of tree->clock; unique */
    ramet_tree_node *node;
    ramet_entry *older, *newer;
};

/* The edge into a node spells tokens [parent->depth, depth) of any entry below it; `newest` is asked. */
typedef struct ramet_tree_child {
    int32_t first; /* token of the edge; here, so that a search among many siblings reads this array alone */
    ramet_tree_node *node;
} ramet_tree_child;

struct ramet_tree_node {
    ramet_tree_node *parent;    /* NULL: the root, of depth 0 and without entry and newest */
    ramet_tree_child *children; /* ascending by `first` */
    size_t n_children, capacity;
    uint32_t depth;      /* tokens from the root to the end of the edge */
    ramet_entry *entry;  /* ends here, or NULL */
    ramet_entry *newest; /* most recently used one at or below this node */
};

typedef struct ramet_tree {
    ramet_tree_node root;
    ramet_entry *oldest, *newest;
    uint32_t n_entries;
    uint64_t clock, n_evictions;
} ramet_tree;

void ramet_tree_evict_oldest(ramet_cache *cache); /* there is one */
uint64_t ramet_tree_bytes(const ramet_cache *cache);

/* ---- context.c, cache.c ---- */

/* One line of the processor's cache, so that a fork touches no neighbour. A free one stays busy: a call on a context
 * that was closed gets E_BUSY until the slot is out again. */
struct ramet_context {
    alignas(64) ramet_cache *cache; /* NULL: a free slot */
    atomic_bool is_busy;
    /* Written by the owner under the lock: the owner may read without it, others with it. */
    bool has_logits;   /* `row` is of the last token; else it is kept for reuse */
    uint32_t length;   /* tokens; of a free slot: the next free one */
    ramet_table table; /* pages past the last token have been made writable ahead, and are exclusive */
    ramet_row *row;
    ramet_row *spare_row;    /* set aside by ramet_context_reserve_logits; ours alone */
    char *where;             /* spilled, and where to; NULL: resident */
    int32_t *spilled_tokens; /* [length] while spilled */
};

/* The slots of contexts: addresses are reserved, memory comes with the first use of a slot and stays. */
enum { RAMET_MAX_CONTEXTS = 1 << 20 };
typedef struct ramet_context_pool {
    ramet_context *slots; /* [RAMET_MAX_CONTEXTS] */
    uint32_t n_touched;   /* slots [0, n_touched) have been out at least once */
    uint32_t n_live;
    uint32_t free_slot; /* head of the list of free slots below n_touched, or RAMET_NO_SLOT */
} ramet_context_pool;

/* Lock held. A context of nothing; E_BUDGET when the last slot is out. */
ramet_status ramet_context_take(ramet_cache *cache, ramet_context **out, ramet_error *error);
ramet_status ramet_context_check_resident(const ramet_context *context, ramet_error *error);
/* Lock held. The one function that copies pages; see writable.c. */
ramet_status ramet_context_own_pages(ramet_context *context, uint32_t first, uint32_t end, ramet_error *error);

struct ramet_cache {
    ramet_cache_options options; /* immutable */
    pthread_mutex_t lock;
    /* Under the lock: */
    ramet_slab slab;
    ramet_node_pool nodes;
    ramet_row_pool rows;
    ramet_tree tree;
    ramet_context_pool contexts;
    uint32_t check_stamp;
};

static inline void ramet_cache_lock(ramet_cache *cache) {
    pthread_mutex_lock(&cache->lock);
}
void ramet_cache_unlock(ramet_cache *cache); /* and frees what the pools have too much */
static inline uint32_t ramet_pages_for(uint32_t n_tokens, uint32_t page_tokens) {
    return n_tokens / page_tokens + (n_tokens % page_tokens != 0);
}
/* What one entry weighs in the tree's budget when it shares nothing. */
static inline uint64_t ramet_row_bytes(const ramet_cache *cache) {
    return (uint64_t)cache->options.n_vocab * sizeof(float);
}

#endif
