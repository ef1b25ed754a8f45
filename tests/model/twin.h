/* twin.h - the stupid twin of the state and store rooms: flat copies, flat lists, everything counted again each time.
 *
 * A context is a full copy of its tokens and rows of KV. The tree is a list from the least to the most recently used
 * entry, scanned for the longest common prefix. The disk is an array of copies. A page is only an identity: a fork
 * copies the list of identities, a write to one that occurs elsewhere takes a new one. So the twin knows who shares
 * what without any table, count or tree. It must stay this obvious. */
#ifndef RAMET_TEST_TWIN_H
#define RAMET_TEST_TWIN_H

#include "state/state.h"

enum {
    TWIN_MAX_TOKENS = 1600,
    TWIN_MAX_PAGES = TWIN_MAX_TOKENS / 16 + 1,
    TWIN_MAX_ROW = 16, /* bytes per position; a precision may have fewer */
    TWIN_VOCAB = 8,
    TWIN_MAX_CONTEXTS = 8,
    TWIN_MAX_ENTRIES = 1000,
    TWIN_MAX_FILES = 4,
    TWIN_MAX_PAGE_IDENTITIES = 1 << 16,
};

typedef struct twin_text {
    uint32_t n;
    int32_t tokens[TWIN_MAX_TOKENS];
    uint8_t rows[TWIN_MAX_TOKENS * TWIN_MAX_ROW]; /* packed; the twin does not know how long one is */
    uint32_t n_pages;
    uint32_t pages[TWIN_MAX_PAGES]; /* identities, from 1 */
    uint32_t row;                   /* identity of the logits, 0: none */
    float logits[TWIN_VOCAB];
} twin_text;

typedef struct twin_context {
    bool is_open, is_spilled;
    twin_text text;
} twin_context;

/* A snapshot: a text whose identities mean nothing. */
typedef struct twin_file {
    bool exists;
    twin_text text;
} twin_file;

typedef struct twin {
    ramet_cache_options options;
    uint32_t n_slots;
    twin_context contexts[TWIN_MAX_CONTEXTS];
    twin_text *entries[TWIN_MAX_ENTRIES]; /* the least recently used one first */
    uint32_t n_entries;
    twin_file files[TWIN_MAX_FILES];
    uint32_t last_page, last_row;
    uint64_t n_copied, n_evictions;
    /* Counted by twin_count alone: how often each page occurs, and how many pages occur. */
    uint32_t by_contexts[TWIN_MAX_PAGE_IDENTITIES], by_tree[TWIN_MAX_PAGE_IDENTITIES];
    uint32_t n_by_contexts, n_by_tree, n_live;
} twin;

twin *twin_create(const ramet_cache_options *options);
void twin_destroy(twin *t);

/* The same operations with the same results, RAMET_E_NO_MEMORY excepted. */
ramet_status twin_writable(twin *t, twin_context *c, uint32_t n);
void twin_commit(twin *t, twin_context *c, const int32_t *tokens, uint32_t n);
ramet_status twin_cut(twin *t, twin_context *c, uint32_t n);
ramet_status twin_rewrite(twin *t, twin_context *c, uint32_t pos, uint32_t n);
ramet_status twin_share(twin *t, twin_context *c, twin_context *out);
void twin_logits_writable(twin *t, twin_context *c);
ramet_status twin_drop(twin *t, twin_context *c);
ramet_status twin_refill(twin *t, twin_context *c);
void twin_undo_refill(twin *t, twin_context *c);
ramet_status twin_retain(twin *t, twin_context *c);
uint32_t twin_match(twin *t, const int32_t *tokens, uint32_t n, twin_context *out);
void twin_evict_oldest(twin *t); /* there is one */
void twin_clear(twin *t);
ramet_status twin_restore(twin *t, const twin_file *file, twin_context *out);

/* Counts who holds what, for whoever looks next: twin_get_stats and twin_count_exclusive. */
void twin_count(twin *t);
void twin_get_stats(const twin *t, ramet_engine_stats *out);
uint32_t twin_count_exclusive(const twin *t, const twin_context *c);

#endif
