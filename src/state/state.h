/* state.h - pages, page tables, contexts, the prefix tree, and the cache that holds them.
 *
 *   context ──> table root ──> node ─┬─> page 0   tokens[64]  slot ──> slab
 *      fork ──────┘ (shared)         ├─> page 1
 *   entry of the tree ──> root' ─────┘   ...
 *
 * A page is `page_tokens` consecutive positions of all layers, refcounted, with its token ids. A page table is a
 * persistent radix array (fan-out 64): forks share the root, a write copies the path to one leaf, never the table. So a
 * fork costs the same at 1 k and at 1 M tokens. A position in a shared page is only ever copied by
 * ramet_context_writable.
 *
 * Owns all of that, and invariants K1-K9 and K11 (ramet_cache_check walks them). Refuses to know weights, files and
 * what the bytes of a page mean.
 *
 * Threads: the cache has a lock, taken inside; a context is entered by one owner at a time (ramet_context_enter). */
#ifndef RAMET_STATE_STATE_H
#define RAMET_STATE_STATE_H

#include "base/error.h"

typedef struct ramet_cache ramet_cache;
/* `ramet_context` is the type of ramet.h; the state room defines it. */

typedef struct ramet_cache_options {
    uint32_t page_tokens;       /* 16..256, a power of two */
    uint64_t page_bytes;        /* of KV data in a page; from ramet_kv_layout, or anything in tests */
    uint32_t n_ctx;             /* longest context, tokens */
    uint32_t n_vocab;           /* floats in a logits row; 0: none kept */
    uint64_t budget_bytes;      /* ceiling of all pages (page_bytes each): a hard limit, kept before allocating */
    uint64_t tree_budget_bytes; /* ceiling of the pages that the tree holds, each counted once */
    void *user;                 /* handed back by ramet_cache_user */
} ramet_cache_options;

ramet_status ramet_cache_create(const ramet_cache_options *options, ramet_cache **out, ramet_error *error);
/* Asserts K7: with every context closed and the tree cleared, nothing is left. Clears the tree itself. */
void ramet_cache_destroy(ramet_cache **cache);
void *ramet_cache_user(const ramet_cache *cache);
const ramet_cache_options *ramet_cache_get_options(const ramet_cache *cache);
void ramet_cache_get_stats(ramet_cache *cache, ramet_engine_stats *out);
/* Walks pages, tables, contexts and tree and checks every invariant; E_INVARIANT with the K-number in the message. */
ramet_status ramet_cache_check(ramet_cache *cache, ramet_error *error);

/* ---- contexts ---- */

ramet_status ramet_cache_context_create(ramet_cache *cache, ramet_context **out, ramet_error *error);
ramet_cache *ramet_context_cache(const ramet_context *context);

/* The busy word: E_BUSY when somebody else is inside. Every function below marked [inside] is called between enter and
 * leave. */
ramet_status ramet_context_enter(ramet_context *context, ramet_error *error);
void ramet_context_leave(ramet_context *context);

/* [inside] A context sharing everything, last logits included: O(1), no page, no table node. */
ramet_status ramet_context_share(ramet_context *context, ramet_context **out, ramet_error *error);
/* [inside] Gives up all it holds and frees it; *context = NULL. */
void ramet_context_destroy(ramet_context **context);

/* [inside] Makes positions [length, length + n) this context's own to write: allocates missing pages, and copies the
 * last partial page if it is shared (the only place where a page is copied). When the slab is full it evicts tree
 * entries first. All or nothing: on E_BUDGET, E_NO_MEMORY and E_WINDOW the context is as before. The length does not
 * change yet. */
ramet_status ramet_context_writable(ramet_context *context, uint32_t n, ramet_error *error);
/* [inside] Takes n tokens into the context after their KV has been written: length += n. Needs ramet_context_writable
 * before. Drops the last logits. */
void ramet_context_commit(ramet_context *context, const int32_t *tokens, uint32_t n);
/* [inside] Forgets positions >= n (n <= length), releases pages beyond, keeps logits only if n == length. */
ramet_status ramet_context_cut(ramet_context *context, uint32_t n, ramet_error *error);
/* [inside] Positions [pos, pos + n) become writable again with the length unchanged (an overwrite of tokens in place,
 * for tests of K4 and for restores). Copies shared pages in the range. */
ramet_status ramet_context_rewrite(ramet_context *context, uint32_t pos, uint32_t n, ramet_error *error);

/* [inside] Data of the page that holds position `pos` (pos < length, or made writable). */
uint8_t *ramet_context_page_write(ramet_context *context, uint32_t pos); /* asserts that it is exclusive */
/* The same without the lock and the assert, for threads that write what ramet_context_page_write has vouched for since
 * the context was entered. */
uint8_t *ramet_context_page_own(ramet_context *context, uint32_t pos);
const uint8_t *ramet_context_page_read(const ramet_context *context, uint32_t pos);
/* [inside] Token ids of [from, from + n). */
void ramet_context_read_tokens(const ramet_context *context, uint32_t from, uint32_t n, int32_t *out);
/* [inside] How many of `tokens` the context starts with. */
uint32_t ramet_context_common_prefix(const ramet_context *context, const int32_t *tokens, uint32_t n);

/* [inside] Sets aside the memory that the next ramet_context_logits_writable may need, which then cannot fail. The last
 * logits stay. */
ramet_status ramet_context_reserve_logits(ramet_context *context, ramet_error *error);
/* [inside] A row of n_vocab floats to write the logits after the last token into: reused when nobody else holds it,
 * else new. NULL: no memory. ramet_context_peek_logits gives it back, or NULL when there is none. */
float *ramet_context_logits_writable(ramet_context *context);
const float *ramet_context_peek_logits(const ramet_context *context);

/* [inside] Spill support: drops every page of the context but remembers its length, tokens and logits; the data must
 * have been saved. ramet_context_refill puts fresh pages under it, all zero, to be written by the reader. `where` is an
 * opaque string owned by the context (a path), NULL when resident. K9: spilled means zero pages. */
ramet_status ramet_context_drop(ramet_context *context, const char *where, ramet_error *error);
/* What a context knew while it was spilled, so that a refill whose reading fails can be undone, which cannot fail. */
typedef struct ramet_spilled {
    char *where;
    int32_t *tokens;
} ramet_spilled;
/* *out (may be NULL) is filled on success alone; the caller frees it; after undo_refill it is empty. */
ramet_status ramet_context_refill(ramet_context *context, ramet_spilled *out, ramet_error *error);
void ramet_context_undo_refill(ramet_context *context, ramet_spilled *spilled); /* leaves it empty */
void ramet_spilled_free(ramet_spilled *spilled);
const char *ramet_context_where(const ramet_context *context);

void ramet_context_count_pages(ramet_context *context, uint64_t *out_reachable, uint64_t *out_exclusive);

/* ---- prefix tree ---- */

/* [inside] Keeps a prefix entry with the context's tokens, table and logits. An entry with the same tokens is
 * refreshed. Evicts least recently used entries until the tree fits its budget; E_BUDGET when this one alone does not
 * fit. */
ramet_status ramet_tree_retain(ramet_context *context, ramet_error *error);
/* A new context sharing the longest prefix over all entries; 0 matched gives an empty context. Among entries with the
 * same match the most recently used one. Marks that entry used. Logits come along when the entry has exactly these
 * tokens. */
ramet_status ramet_tree_match(ramet_cache *cache, const int32_t *tokens, uint32_t n, ramet_context **out,
                              uint32_t *out_matched, ramet_error *error);
void ramet_tree_clear(ramet_cache *cache);
/* Entries from the least to the most recently used, for tests: `visit` gets a copy of the tokens, outside the lock. */
typedef void (*ramet_tree_visit)(void *user, const int32_t *tokens, uint32_t n);
ramet_status ramet_tree_each(ramet_cache *cache, ramet_tree_visit visit, void *user, ramet_error *error);

#endif
