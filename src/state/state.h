/* state.h - blocks, page tables, contexts, the prefix tree, and the cache that holds them.
 *
 *   context ──> table root ──> node ─┬─> page 0   tokens[64]  slot ──> memory, or a name ──> the pager's disk
 *      fork ──────┘ (shared)         ├─> page 1
 *   entry of the tree ──> root' ─────┘   ...
 *
 * A block is bytes with a refcount: a page (`page_tokens` consecutive positions of all layers, with their token ids), a
 * row of logits, or a recurrent state. A page table is a persistent radix array of pages (fan-out 64): forks share the
 * root, a write copies the path to one leaf, never the table. So a fork costs the same at 1 k and at 1 M tokens. A
 * position in a shared page is only ever copied by ramet_context_writable.
 *
 * Blocks in memory stay within one budget. Past it, without a pager, entries of the tree go; with one, the coldest idle
 * blocks are written out, whoever holds them, and come back when a context that reaches them is used.
 *
 * Owns all of that, and invariants K1-K7 and K9-K12 (ramet_cache_check walks them). Refuses to know weights, files and
 * what the bytes of a block mean.
 *
 * Threads: the cache has a lock, taken inside; a context is entered by one owner at a time (ramet_context_enter). */
#ifndef RAMET_STATE_STATE_H
#define RAMET_STATE_STATE_H

#include "base/error.h"

typedef struct ramet_cache ramet_cache;
/* `ramet_context` is the type of ramet.h; the state room defines it. */

/* A block on its way. */
typedef struct ramet_pager_item {
    uint64_t name;       /* unique for the life of the cache */
    uint8_t *data;       /* `bytes` of it: to be written, or to be read into */
    uint64_t bytes;      /* the same for every block of its kind */
    ramet_status status; /* out, of a read: how this one went */
} ramet_pager_item;

/* Where blocks go that memory has no room for. `write` and `read` are called by one thread at a time, without the
 * cache's lock; `forget` by any. */
typedef struct ramet_pager {
    /* All or nothing: on failure none of the names is used. */
    ramet_status (*write)(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error);
    /* Fills in every item's status, and returns the first that is not RAMET_OK, with its error. E_NO_MEMORY and E_BUDGET
     * may be tried again; after anything else the block is taken for lost. What was read is not forgotten yet. */
    ramet_status (*read)(void *user, ramet_pager_item *items, uint32_t n, ramet_error *error);
    /* The block under this name is not needed any more. Cannot fail. */
    void (*forget)(void *user, uint64_t name);
    void *user;
} ramet_pager;

typedef struct ramet_cache_options {
    uint32_t page_tokens;       /* 16..256, a power of two */
    uint64_t page_bytes;        /* of KV data in a page; from ramet_kv_layout, or anything in tests */
    uint64_t state_bytes;       /* of a recurrent state; 0: none */
    uint32_t n_ctx;             /* longest context, tokens */
    uint32_t n_vocab;           /* floats in a logits row; 0: none kept */
    uint64_t budget_bytes;      /* ceiling of all blocks in memory: a hard limit, kept before allocating */
    uint64_t tree_budget_bytes; /* ceiling of what the tree holds, in memory and not, each block counted once */
    uint64_t pin_budget_bytes;  /* ceiling of what its pinned entries would take alone, summed; at most the above */
    const ramet_pager *pager;   /* copied; NULL: nothing is ever written out */
    void *user;                 /* handed back by ramet_cache_user */
} ramet_cache_options;

ramet_status ramet_cache_create(const ramet_cache_options *options, ramet_cache **out, ramet_error *error);
/* Asserts K7: with every context closed and the tree cleared, nothing is left. Clears the tree itself. */
void ramet_cache_destroy(ramet_cache **cache);
void *ramet_cache_user(const ramet_cache *cache);
const ramet_cache_options *ramet_cache_get_options(const ramet_cache *cache);
void ramet_cache_get_stats(ramet_cache *cache, ramet_engine_stats *out);
/* Whether n pages and a tail more fit in memory as things are, with nothing evicted or written out. */
bool ramet_cache_has_room(ramet_cache *cache, uint64_t n_pages);
/* Walks blocks, tables, contexts and tree and checks every invariant; E_INVARIANT with the K-number in the message. */
ramet_status ramet_cache_check(ramet_cache *cache, ramet_error *error);

/* ---- contexts ---- */

ramet_status ramet_cache_context_create(ramet_cache *cache, ramet_context **out, ramet_error *error);
ramet_cache *ramet_context_cache(const ramet_context *context);

/* The busy word: E_BUSY when somebody else is inside. Every function below marked [inside] is called between enter and
 * leave. */
ramet_status ramet_context_enter(ramet_context *context, ramet_error *error);
void ramet_context_leave(ramet_context *context); /* ends its use, too */

/* [inside] Everything that the context reaches is in memory from here on, and stays until it is left: what is not is
 * read back, in order, into room that is made first. Functions marked [used] are called after it. Without a pager it
 * costs nothing. E_BUDGET, E_NO_DISK, E_NO_MEMORY: as before. When a block turns out to be lost, the context holds
 * nothing any more and this and all later calls say so; entries of the tree that need the block go with it, and nothing
 * else does. */
ramet_status ramet_context_use(ramet_context *context, ramet_error *error);
/* [inside, not used] Writes out all that the context reaches and nobody uses. E_ARGUMENT without a pager; after a
 * failure some of it may be out, and everything is as it was for whoever uses it. */
ramet_status ramet_context_write_out(ramet_context *context, ramet_error *error);

/* [inside] A context sharing everything, last logits and state included: O(1), no block, no table node. */
ramet_status ramet_context_share(ramet_context *context, ramet_context **out, ramet_error *error);
/* [inside] Its content is not what running its tokens gives, nor is what is run after it: the caller took it from
 * something rounded. So are its forks, and it is kept for nobody: ramet_tree_retain returns E_UNSUPPORTED. A cut to no
 * tokens ends it. */
void ramet_context_mark_lossy(ramet_context *context);
bool ramet_context_is_lossy(const ramet_context *context);
/* [inside] Gives up all it holds and frees it; *context = NULL. */
void ramet_context_destroy(ramet_context **context);

/* [used] Makes positions [length, length + n) this context's own to write: allocates missing pages, and copies the
 * last partial page if it is shared (the only place where a page is copied). Room is made first. All or nothing: on
 * E_BUDGET, E_NO_DISK, E_NO_MEMORY and E_WINDOW the context is as before. The length does not change yet. */
ramet_status ramet_context_writable(ramet_context *context, uint32_t n, ramet_error *error);
/* [used] Takes n tokens into the context after their KV has been written: length += n. Needs ramet_context_writable
 * before. Drops the last logits and the state. */
void ramet_context_commit(ramet_context *context, const int32_t *tokens, uint32_t n);
/* [inside] Forgets positions >= n (n <= length), releases pages beyond, keeps logits and state only if n == length. */
ramet_status ramet_context_cut(ramet_context *context, uint32_t n, ramet_error *error);
/* [used] Positions [pos, pos + n) become writable again with the length unchanged (an overwrite of tokens in place,
 * for tests of K4 and for restores). Copies shared pages in the range. */
ramet_status ramet_context_rewrite(ramet_context *context, uint32_t pos, uint32_t n, ramet_error *error);

/* [used] Data of the page that holds position `pos` (pos < length, or made writable). */
uint8_t *ramet_context_page_write(ramet_context *context, uint32_t pos); /* asserts that it is exclusive */
/* The same without the lock and the assert, for threads that write what ramet_context_page_write has vouched for since
 * the context was entered. */
uint8_t *ramet_context_page_own(ramet_context *context, uint32_t pos);
const uint8_t *ramet_context_page_read(const ramet_context *context, uint32_t pos);
/* [inside] Token ids of [from, from + n). */
void ramet_context_read_tokens(const ramet_context *context, uint32_t from, uint32_t n, int32_t *out);
/* [inside] How many of `tokens` the context starts with. */
uint32_t ramet_context_common_prefix(const ramet_context *context, const int32_t *tokens, uint32_t n);

/* The tail of a context: the logits after its last token, and its recurrent state there. A tail block is never written
 * once it is in place, and knows its token count (K10): a step reads the old one and writes a spare one.
 *
 * [used] Sets aside the spare blocks that the next tail may need, which then cannot fail, unless the context is shared or
 * kept before its commit: E_BUDGET, E_NO_DISK. The tail stays as it is. */
ramet_status ramet_context_reserve_tail(ramet_context *context, ramet_error *error);
/* [used] After the commit: a row of n_vocab floats in place as the logits, to be filled before the context is left.
 * NULL: it was not reserved, and there is no room. */
float *ramet_context_logits_writable(ramet_context *context);
/* [used] The spare state that was reserved, `state_bytes` of it, while the old one can still be read; then, after the
 * commit, it goes in place. */
uint8_t *ramet_context_state_writable(ramet_context *context);
void ramet_context_state_install(ramet_context *context);
/* [used] NULL when there is none. */
const float *ramet_context_peek_logits(const ramet_context *context);
const uint8_t *ramet_context_peek_state(const ramet_context *context);
/* [inside] Whether there are logits. */
bool ramet_context_has_logits(const ramet_context *context);
bool ramet_context_has_state(const ramet_context *context);
/* [used] The same as peek, and the row stays in memory until the context is used again or spilled. */
const float *ramet_context_hold_logits(ramet_context *context);

void ramet_context_count_pages(ramet_context *context, uint64_t *out_reachable, uint64_t *out_exclusive);

/* ---- prefix tree ---- */

/* [inside] Keeps a prefix entry with the context's tokens, table and tail. An owner's entries are found by that owner
 * alone, those of no owner (NULL) by all (K12). An entry with the same tokens and owner is refreshed. Entries whose loss
 * costs least go until the tree fits its budget; E_BUDGET when this one alone does not fit beside the pinned ones. A
 * pinned one never goes by itself; E_BUDGET past the budget of pins, and nothing is kept. */
typedef struct ramet_retain {
    const char *owner; /* NULL: everybody */
    bool is_pinned;
} ramet_retain;
ramet_status ramet_tree_retain(ramet_context *context, const ramet_retain *how, ramet_error *error);
/* E_NOT_FOUND when the owner has no pinned entry of exactly these tokens. */
ramet_status ramet_tree_unpin(ramet_cache *cache, const char *owner, const int32_t *tokens, uint32_t n,
                              ramet_error *error);
/* A new context sharing the longest prefix over the owner's entries and those of everybody; 0 matched gives an empty
 * context. Among entries with the same match the owner's, and then the most recently used one. Marks that entry used.
 * The tail comes along when the entry has exactly these tokens. Reads nothing back. */
ramet_status ramet_tree_match(ramet_cache *cache, const char *owner, const int32_t *tokens, uint32_t n,
                              ramet_context **out, uint32_t *out_matched, ramet_error *error);
void ramet_tree_clear(ramet_cache *cache); /* pinned ones, too */
/* Entries in the order in which they would go, then the pinned ones from the least recently used on, for tests: `visit`
 * gets copies, outside the lock. */
typedef void (*ramet_tree_visit)(void *user, const ramet_retain *how, const int32_t *tokens, uint32_t n);
ramet_status ramet_tree_each(ramet_cache *cache, ramet_tree_visit visit, void *user, ramet_error *error);

#endif
