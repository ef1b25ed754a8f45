/* twin.h - the stupid twin of the state and store rooms: flat copies, flat lists, everything counted again each time.
 *
 * A context is a full copy of its tokens, rows of KV and tail. The tree is a list from the least to the most recently
 * used entry, scanned for whatever is asked. The disk is an array of copies. A block (page, row of logits, state) is
 * only an identity: a fork copies the list of identities, a write to one that occurs elsewhere takes a new one. So the
 * twin knows who shares what without any table, count or tree. It must stay this obvious.
 *
 * With a pager it does not know which blocks are in memory: it says what comes of every operation as if all reading and
 * writing went well, and is told when it did not. */
#ifndef RAMET_TEST_TWIN_H
#define RAMET_TEST_TWIN_H

#include "state/state.h"

enum {
    TWIN_MAX_TOKENS = 1600,
    TWIN_MAX_PAGES = TWIN_MAX_TOKENS / 16 + 1,
    TWIN_MAX_ROW = 16, /* bytes per position; a precision may have fewer */
    TWIN_VOCAB = 8,
    TWIN_MAX_STATE = 256, /* bytes */
    TWIN_MAX_CONTEXTS = 8,
    TWIN_MAX_ENTRIES = 1000,
    TWIN_MAX_FILES = 4,
    TWIN_OWNERS = 3, /* 0: everybody */
};

typedef enum twin_kind { TWIN_LOGITS, TWIN_STATE, TWIN_TAILS, TWIN_PAGE = TWIN_TAILS } twin_kind;
typedef enum twin_holder { TWIN_BY_CONTEXTS, TWIN_BY_TREE, TWIN_HOLDERS } twin_holder;

typedef struct twin_text {
    uint32_t n;
    int32_t tokens[TWIN_MAX_TOKENS];
    uint8_t rows[TWIN_MAX_TOKENS * TWIN_MAX_ROW]; /* packed; the twin does not know how long one is */
    uint32_t n_pages;
    uint32_t pages[TWIN_MAX_PAGES]; /* identities, from 1 */
    uint32_t tail[TWIN_TAILS];      /* identities, 0: none */
    float logits[TWIN_VOCAB];
    uint8_t state[TWIN_MAX_STATE];
} twin_text;

typedef struct twin_context {
    bool is_open, is_used, holds_logits;
    ramet_status lost;          /* RAMET_OK: it is not */
    uint32_t spare[TWIN_TAILS]; /* identities, 0: none */
    twin_text text;
} twin_context;

typedef struct twin_entry {
    uint32_t owner;
    bool is_pinned, is_arriving; /* arriving: others may go for it */
    double base;
    uint32_t n_shared; /* longest common prefix with any other entry of its zone; counted by twin_scores */
    double score;      /* the same */
    twin_text text;
} twin_entry;

/* A snapshot: a text whose identities mean nothing. */
typedef struct twin_file {
    bool exists;
    twin_text text;
} twin_file;

typedef struct twin_block {
    twin_kind kind;
    ramet_status lost;
    uint32_t round; /* of twin_count in which it occurred last; then */
    uint32_t by[TWIN_HOLDERS], n_users;
} twin_block;

typedef struct twin {
    ramet_cache_options options;
    bool has_pager;
    twin_context contexts[TWIN_MAX_CONTEXTS];
    twin_entry *entries[TWIN_MAX_ENTRIES]; /* the least recently used one first */
    uint32_t n_entries;
    bool is_scored; /* n_shared of every entry is of now */
    double inflation;
    twin_file files[TWIN_MAX_FILES];
    uint32_t last_block;
    uint64_t n_pages_allocated, n_copied, n_evictions, n_lost_contexts;
    /* Counted by twin_count alone. */
    uint32_t round;
    uint64_t bytes_by[TWIN_HOLDERS], live_bytes, used_bytes;
    uint32_t n_pages_live, n_pages_by_tree;
    twin_block *blocks; /* by identity; that of 0 is nobody's */
    uint32_t n_blocks_there;
} twin;

twin *twin_create(const ramet_cache_options *options);
void twin_destroy(twin *t);

/* The same operations with the same results, what memory and the disk refuse excepted. */
ramet_status twin_use(twin *t, twin_context *c);
void twin_leave(twin *t, twin_context *c);
ramet_status twin_write_out(twin *t, twin_context *c);
ramet_status twin_writable(twin *t, twin_context *c, uint32_t n);
void twin_commit(twin *t, twin_context *c, const int32_t *tokens, uint32_t n);
ramet_status twin_cut(twin *t, twin_context *c, uint32_t n);
ramet_status twin_rewrite(twin *t, twin_context *c, uint32_t pos, uint32_t n);
/* Bytes of pages that the two above, of positions [pos, pos + n), would take. */
uint64_t twin_wanted(twin *t, const twin_context *c, uint32_t pos, uint32_t n);
ramet_status twin_share(twin *t, twin_context *c, twin_context *out);
void twin_close(twin_context *c);

ramet_status twin_reserve_tail(twin *t, twin_context *c);
void twin_take_spare(twin *t, twin_context *c, twin_kind kind);
/* False: no row was reserved, and memory has no room for one. */
bool twin_logits_writable(twin *t, twin_context *c, bool has_room);
void twin_install_state(twin *t, twin_context *c, const uint8_t *state);

ramet_status twin_retain(twin *t, twin_context *c, uint32_t owner, bool is_pinned);
ramet_status twin_unpin(twin *t, uint32_t owner, const int32_t *tokens, uint32_t n);
uint32_t twin_match(twin *t, uint32_t owner, const int32_t *tokens, uint32_t n, twin_context *out);
bool twin_evict(twin *t); /* false: there is none but pinned ones */
void twin_clear(twin *t);

ramet_status twin_restore(twin *t, const twin_file *file, twin_context *out);

/* Pages, then tail. */
uint32_t twin_n_blocks(const twin_context *c);
uint32_t twin_block_at(const twin_context *c, uint32_t i); /* 0: none */

/* Counts who holds and uses what, for whoever looks next. */
void twin_count(twin *t);
uint32_t twin_n_users(const twin *t, uint32_t block);
uint32_t twin_count_exclusive(const twin *t, const twin_context *c);
/* But for bytes in memory, which the twin knows only without a pager: live_bytes. */
void twin_get_stats(const twin *t, ramet_engine_stats *out);
/* Entries in the order in which they would go, then the pinned ones. */
void twin_order(twin *t, const twin_entry *out[TWIN_MAX_ENTRIES]);

#endif
