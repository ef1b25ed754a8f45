/* internal.h - how blocks, tables, the tree and contexts are laid out, for this room and its tests alone.
 *
 * Thread rule, all of it: everything in a cache is read and changed under cache->lock, with two exceptions for the
 * owner of a context (who is inside it): it may read its context's fields and walk down its own table without the lock,
 * because only the owner changes them (under the lock), and it may read the bytes of every block that it uses and write
 * those of pages and spare blocks that nobody else can reach, because a shared block is never written (K4, K10).
 * cache->pager_lock is taken before cache->lock and held while blocks are on their way; see room.c.
 *
 * Blocks and table nodes are shared and counted. "Held" means reachable from a root, and roots are of two kinds:
 * contexts (and the second hold of pinned entries) and entries of the tree. */
#ifndef RAMET_STATE_INTERNAL_H
#define RAMET_STATE_INTERNAL_H

#include "base/memory.h"
#include "state/state.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

typedef enum ramet_holder { RAMET_BY_CONTEXTS, RAMET_BY_TREE, RAMET_HOLDERS } ramet_holder;

typedef struct ramet_counts {
    uint32_t refcount; /* pointers to it: table leaves and roots' tails to a block; parents and roots to a node (K1) */
    uint32_t holds[RAMET_HOLDERS]; /* how many of these pointers a context, a tree entry can reach (K11) */
} ramet_counts;

/* What ramet_cache_check counted for itself; valid when the stamp is the current walk's. */
typedef struct ramet_recount {
    ramet_counts counts;
    uint32_t n_users;
    uint32_t stamp;
} ramet_recount;

/* ---- slab.c: memory for blocks of one kind ---- */

#define RAMET_NO_SLOT UINT32_MAX

typedef enum ramet_slot_state { RAMET_SLOT_OUT, RAMET_SLOT_WARM, RAMET_SLOT_COLD } ramet_slot_state;

typedef struct ramet_slot {
    uint64_t freed_at;  /* while free: the slab's n_given after it was */
    uint32_t next_free; /* while free */
    uint32_t block;     /* while out: whose it is */
    uint32_t state;     /* ramet_slot_state; free and cold: its memory went back to the system */
} ramet_slot;

typedef struct ramet_slab {
    uint8_t *data;     /* [n_slots], reserved; a slot costs memory when it is first touched */
    ramet_slot *slots; /* [n_slots], reserved */
    size_t stride;
    uint32_t n_slots;
    uint32_t n_touched;            /* slots [0, n_touched) have been out at least once */
    uint32_t n_out, n_warm;        /* n_warm: slots that cost memory, the ones that are out among them */
    uint32_t free_warm, free_cold; /* heads of the lists of free slots below n_touched */
    uint64_t n_given;
    bool is_tight; /* what was given back comes back in small pages: a huge one would be more than its slot needs */
} ramet_slab;

/* `n_slots` of `bytes`; both may be 0. */
ramet_status ramet_slab_init(ramet_slab *slab, uint64_t n_slots, uint64_t bytes, ramet_error *error);
void ramet_slab_fini(ramet_slab *slab);
/* A slot for that block; the caller has made sure that one is free. Its bytes are whatever was there before. */
uint32_t ramet_slab_take(ramet_slab *slab, uint32_t block);
/* Whether the next slot costs memory that the slab does not have yet. */
bool ramet_slab_is_cold(const ramet_slab *slab);
void ramet_slab_give(ramet_slab *slab, uint32_t slot);
/* Hands the memory of slots back to the system that are free and were freed when n_given was `since` or more. */
void ramet_slab_trim(ramet_slab *slab, uint64_t since);
static inline uint8_t *ramet_slab_data(const ramet_slab *slab, uint32_t slot) {
    return slab->data + slot * slab->stride;
}

/* ---- block.c: what is counted, held, used ---- */

typedef enum ramet_kind { RAMET_PAGE, RAMET_LOGITS, RAMET_STATE, RAMET_KINDS } ramet_kind;
const char *ramet_kind_name(ramet_kind kind);

/* Where a tail block has its place in a context or an entry. */
enum { RAMET_TAILS = RAMET_KINDS - 1 };
#define RAMET_TAIL_OF(kind) ((kind)-RAMET_LOGITS)
#define RAMET_KIND_OF(tail) ((ramet_kind)((tail) + RAMET_LOGITS))

/* Stays where it is when the block is freed, so that a stale pointer can be told (K2). */
typedef struct ramet_block ramet_block;
struct ramet_block {
    ramet_counts counts; /* refcount 0: free, or on its way to be */
    ramet_recount recount;
    uint32_t id;      /* of its kind */
    uint8_t kind;     /* ramet_kind */
    bool is_moving;   /* being written out or read back: its slot is taken, whoever wants it waits for the pager lock */
    uint8_t lost;     /* ramet_status: why it could not be read back; RAMET_OK: it is there */
    uint32_t slot;    /* RAMET_NO_SLOT: written out, under `name` */
    uint32_t n_users; /* ways in which contexts in use reach it: it stays in memory */
    uint32_t n_tokens;            /* of a tail block in place: what it stands after (K10) */
    uint64_t name;                /* written out under; 0: not */
    ramet_block *colder, *warmer; /* while idle, see ramet_idle; `colder` alone: while free, or to be forgotten */
    int32_t tokens[];             /* of a page: [page_tokens] */
};

/* Headers of the blocks of one kind, and their memory. */
typedef struct ramet_blocks {
    ramet_slab slab;
    uint8_t *headers; /* [n_headers], reserved */
    size_t header_stride;
    uint32_t n_headers, n_touched;
    ramet_block *free;
    uint64_t bytes;                 /* of a block */
    uint32_t n_live, n_used;        /* n_used: with users */
    uint32_t n_doomed;              /* freed; the pager has yet to forget them, or is about to */
    uint32_t n_held[RAMET_HOLDERS]; /* that contexts, that tree entries hold; each counted once */
    uint64_t n_allocated, n_freed, n_copied;
} ramet_blocks;

/* Blocks in memory that nobody uses, from the coldest on; empty without a pager. */
typedef struct ramet_idle {
    ramet_block *coldest, *warmest;
} ramet_idle;

ramet_status ramet_blocks_init(ramet_blocks *blocks, const ramet_cache_options *options, ramet_kind kind,
                               ramet_error *error);
void ramet_blocks_fini(ramet_blocks *blocks);
ramet_block *ramet_blocks_at(const ramet_blocks *blocks, uint32_t id);
/* Whether a pointer is a header of a block that has ever been out. */
bool ramet_blocks_know(const ramet_blocks *blocks, const ramet_block *block);

/* In memory, one pointer to it, held by a context, idle. The caller has made room (room.c). */
ramet_block *ramet_block_create(ramet_cache *cache, ramet_kind kind);
ramet_block *ramet_block_copy(ramet_cache *cache, const ramet_block *source);
void ramet_block_retain(ramet_block *block);
/* One that nothing points at any more: for room.c, where it went while the block was moving. */
void ramet_block_free(ramet_cache *cache, ramet_block *block);
void ramet_block_release(ramet_cache *cache, ramet_block *block);
void ramet_block_hold(ramet_cache *cache, ramet_block *block, ramet_holder holder);
void ramet_block_unhold(ramet_cache *cache, ramet_block *block, ramet_holder holder);
/* Both at once, for the tail of a context or an entry; NULL does nothing. */
ramet_block *ramet_block_share(ramet_cache *cache, ramet_block *block, ramet_holder holder);
void ramet_block_drop(ramet_cache *cache, ramet_block **block, ramet_holder holder);
/* Without a pager these do nothing. */
void ramet_block_use(ramet_cache *cache, ramet_block *block);
void ramet_block_unuse(ramet_cache *cache, ramet_block *block);
/* A slot for a block that has none, and back; the caller has made room. */
void ramet_block_take_slot(ramet_cache *cache, ramet_block *block);
void ramet_block_give_slot(ramet_cache *cache, ramet_block *block);
void ramet_idle_add(ramet_cache *cache, ramet_block *block, bool is_coldest);
void ramet_idle_remove(ramet_cache *cache, ramet_block *block);
/* Lets the pager forget blocks that are gone. Takes the lock; not held. */
void ramet_blocks_forget(ramet_cache *cache, ramet_block *doomed);
uint8_t *ramet_block_data(const ramet_cache *cache, const ramet_block *block);

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
        ramet_block *page;
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
ramet_block **ramet_table_own_path(ramet_cache *cache, ramet_table *table, uint32_t page_idx);

ramet_block *ramet_table_page(const ramet_table *table, uint32_t page_idx);
/* Whether this table alone reaches the page: as things are, or as they would be without the prefix tree. */
typedef enum ramet_view { RAMET_AS_IS, RAMET_WITHOUT_TREE } ramet_view;
bool ramet_table_is_exclusive(const ramet_table *table, uint32_t page_idx, ramet_view view);
uint32_t ramet_table_count_exclusive(const ramet_table *table);
/* How many of tokens[from..to) equal the table's, from `from` on. */
uint32_t ramet_table_match(const ramet_table *table, uint32_t page_tokens, const int32_t *tokens, uint32_t from,
                           uint32_t to);
void ramet_table_read_tokens(const ramet_table *table, uint32_t page_tokens, uint32_t from, uint32_t n, int32_t *out);

/* ---- tree.c, radix.c, zone.c, score.c: the prefix tree ---- */

typedef struct ramet_entry ramet_entry;
typedef struct ramet_tree_node ramet_tree_node;
typedef struct ramet_zone ramet_zone;

struct ramet_entry {
    ramet_table table;              /* its tokens are those of its pages: there is no second copy */
    ramet_block *tail[RAMET_TAILS]; /* may be NULL */
    uint32_t length;                /* tokens, at least 1 */
    uint32_t place;                 /* in the heap, or RAMET_NO_PLACE */
    bool is_pinned;
    uint64_t last_use;  /* of tree->clock; unique */
    double base, score; /* see score.c */
    ramet_tree_node *node;
    ramet_zone *zone;
};
#define RAMET_NO_PLACE UINT32_MAX

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

/* The entries of an owner. The one of everybody, with a NULL owner, is always there; the others while they have entries. */
struct ramet_zone {
    char *owner;
    ramet_tree_node root;
    uint32_t n_entries;
};

typedef struct ramet_tree {
    ramet_zone everybody;
    ramet_zone **zones; /* of owners, ascending */
    size_t n_zones, zones_capacity;
    ramet_entry **heap; /* [n_entries]: those that are not pinned; the next to go is the first */
    size_t n_heap, heap_capacity;
    ramet_entry **pinned;
    size_t n_pinned, pinned_capacity;
    uint64_t pinned_bytes; /* what each would take alone, summed */
    double inflation;
    uint64_t clock, n_evictions;
} ramet_tree;

/* Takes out the entry whose loss costs least; false: there is none, but pinned ones. */
bool ramet_tree_evict(ramet_cache *cache);
/* Takes out all entries that need a lost block. */
void ramet_tree_remove_lost(ramet_cache *cache);
uint64_t ramet_tree_bytes(const ramet_cache *cache);
uint32_t ramet_tree_n_entries(const ramet_cache *cache);
void ramet_tree_fini(ramet_cache *cache); /* empty */

/* radix.c. The longest common prefix with any entry, and the lowest node that has a part of it in its edge: all entries
 * at or below that node, and no others, start with it. The root when nothing matches. */
typedef struct ramet_place {
    ramet_tree_node *node;
    uint32_t matched;
} ramet_place;
ramet_place ramet_radix_find(const ramet_cache *cache, ramet_tree_node *root, const int32_t *tokens, uint32_t n);
/* A node where `length` tokens end, of which that place was found; it has no entry. NULL: no memory. The caller puts
 * an entry there, and touches it, before anything else. */
ramet_tree_node *ramet_radix_grow(ramet_cache *cache, ramet_place at, const int32_t *tokens, uint32_t length);
void ramet_radix_touch(ramet_entry *entry); /* the most recently used of all */
void ramet_radix_remove(ramet_cache *cache, ramet_entry *entry);

/* zone.c */
ramet_zone *ramet_zone_find(ramet_tree *tree, const char *owner);   /* NULL: the owner has no entries */
ramet_zone *ramet_zone_create(ramet_tree *tree, const char *owner); /* NULL: no memory */
void ramet_zone_remove(ramet_tree *tree, ramet_zone *zone);         /* without entries; not everybody's */

/* score.c */
bool ramet_heap_reserve(ramet_tree *tree); /* for one more entry */
void ramet_heap_add(ramet_cache *cache, ramet_entry *entry);
void ramet_heap_remove(ramet_cache *cache, ramet_entry *entry);
/* After a change of what is around the node: its entry, if any, has another score. */
void ramet_heap_rescore(ramet_cache *cache, const ramet_tree_node *node);
double ramet_entry_cost(const ramet_cache *cache,
                        const ramet_entry *entry); /* of its loss: tokens to run again per byte */
uint64_t ramet_entry_bytes_alone(const ramet_cache *cache, const ramet_table *table,
                                 ramet_block *const tail[RAMET_TAILS]);

/* ---- context.c, use.c, cache.c ---- */

/* One line of the processor's cache, so that a fork touches no neighbour. A free one stays busy: a call on a context
 * that was closed gets E_BUSY until the slot is out again. */
struct ramet_context {
    alignas(64) ramet_cache *cache; /* NULL: a free slot */
    atomic_bool is_busy;
    /* Written by the owner under the lock: the owner may read without it, others with it. */
    bool is_used : 1;      /* what it reaches has one user more */
    bool holds_logits : 1; /* its logits have one user more */
    bool is_lossy : 1;     /* see ramet_context_mark_lossy */
    uint8_t lost;          /* ramet_status; RAMET_OK: it is not */
    uint32_t length;       /* tokens; of a free slot: the next free one */
    ramet_table table;     /* pages past the last token have been made writable ahead, and are exclusive */
    ramet_block *tail[RAMET_TAILS];
    ramet_block *spare[RAMET_TAILS]; /* set aside by ramet_context_reserve_tail, while it is used; ours alone */
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
ramet_status ramet_context_check_alive(const ramet_context *context, ramet_error *error);
/* Lock held. The one function that copies pages; see writable.c. */
ramet_status ramet_context_own_pages(ramet_context *context, uint32_t first, uint32_t end, ramet_error *error);
/* Lock not held. Of a context that is used, by whoever is inside it. */
void ramet_context_end_use(ramet_context *context);
/* Lock held. Why a block that it reaches could not be read back, or RAMET_OK. */
ramet_status ramet_context_lost_block(const ramet_context *context);
/* Lock held. Lets go of all that it reaches, and of its use. */
void ramet_context_empty(ramet_context *context);
/* ---- tail.c ---- */

/* Lock held. The tail is not of the last token any more. A block that is ours alone may stay as the spare one. */
void ramet_context_forget_tail(ramet_context *context, ramet_kind kind, bool keep_spare);
void ramet_context_forget_spares(ramet_context *context);
void ramet_context_release_held(ramet_context *context); /* of ramet_context_hold_logits */

/* ---- room.c: memory within the budget ---- */

/* How many blocks of a kind are to come: as things are, and if the tree had no entries but pinned ones. */
typedef struct ramet_need {
    ramet_kind kind;
    uint32_t n, n_without_tree;
} ramet_need;

uint64_t ramet_memory_bytes(const ramet_cache *cache); /* of blocks that have a slot */
uint64_t ramet_used_bytes(const ramet_cache *cache);   /* of blocks with users, in memory or awaited */
bool ramet_room_fits(const ramet_cache *cache, ramet_need need);
/* Lock held. Whether contexts at work may reach that much more. */
ramet_status ramet_room_check_use(const ramet_cache *cache, uint64_t bytes, ramet_error *error);
/* Lock held, but perhaps not all the time. Makes some room, or says why not; the caller looks again. */
ramet_status ramet_room_make(ramet_cache *cache, ramet_need need, ramet_error *error);
/* Lock held, but not all the time: brings back all that the context, which is used, reaches. */
ramet_status ramet_room_fetch(ramet_context *context, ramet_error *error);
/* The same: writes out all that the context, which is not used, reaches and nobody uses. */
ramet_status ramet_room_clear(ramet_context *context, ramet_error *error);

/* The blocks that a context reaches: pages, then tail, which may be NULL. */
static inline uint32_t ramet_context_n_blocks(const ramet_context *context) {
    return context->table.n_pages + RAMET_TAILS;
}
static inline ramet_block *ramet_context_block(const ramet_context *context, uint32_t i) {
    uint32_t n_pages = context->table.n_pages;
    return i < n_pages ? ramet_table_page(&context->table, i) : context->tail[i - n_pages];
}

typedef struct ramet_pager_counts {
    uint64_t n_written, n_read, written_bytes, read_bytes, write_nanoseconds, read_nanoseconds;
    uint64_t on_disk_bytes, blocks_lost, contexts_lost;
} ramet_pager_counts;

struct ramet_cache {
    ramet_cache_options options; /* immutable, as is the pager */
    ramet_pager pager;           /* write NULL: none */
    pthread_mutex_t pager_lock, lock;
    /* Under the lock: */
    ramet_blocks blocks[RAMET_KINDS];
    ramet_idle idle;
    ramet_block *doomed; /* freed, and the pager is to forget them */
    uint64_t last_name;
    ramet_pager_counts paged;
    ramet_node_pool nodes;
    ramet_tree tree;
    ramet_context_pool contexts;
    uint32_t check_stamp;
};

static inline void ramet_cache_lock(ramet_cache *cache) {
    pthread_mutex_lock(&cache->lock);
}
/* And frees what the pools have too much, and lets the pager forget. */
void ramet_cache_unlock(ramet_cache *cache);
static inline bool ramet_has_pager(const ramet_cache *cache) {
    return cache->pager.write != NULL;
}
static inline uint32_t ramet_pages_for(uint32_t n_tokens, uint32_t page_tokens) {
    return n_tokens / page_tokens + (n_tokens % page_tokens != 0);
}

#endif
