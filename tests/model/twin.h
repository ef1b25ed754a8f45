/* twin.h - the stupid twin of the state room: flat copies, flat lists, everything counted again each time it is asked.
 *
 * A context is a full copy of its tokens and bytes. The tree is a list that is scanned for the longest common prefix,
 * and its order is a number. A page is only an identity: a fork copies the list of identities, a write to one that
 * occurs elsewhere takes a new one. So the twin knows who shares what without any table, count or tree. It must stay
 * this obvious. */
#ifndef RAMET_TEST_TWIN_H
#define RAMET_TEST_TWIN_H

#include "state/state.h"

enum {
    TWIN_MAX_TOKENS = 1600,
    TWIN_MAX_PAGES = TWIN_MAX_TOKENS / 16 + 1,
    TWIN_BYTES = 8, /* per position */
    TWIN_VOCAB = 4,
    TWIN_MAX_CONTEXTS = 8,
    TWIN_MAX_ENTRIES = 400,
};

typedef struct twin_text {
    uint32_t n;
    int32_t tokens[TWIN_MAX_TOKENS];
    uint8_t bytes[TWIN_MAX_TOKENS][TWIN_BYTES];
    uint32_t n_pages;
    uint32_t pages[TWIN_MAX_PAGES]; /* identities, from 1 */
    uint32_t row;                   /* identity of the logits, 0: none */
    float logits[TWIN_VOCAB];
} twin_text;

typedef struct twin_context {
    bool is_open, is_spilled;
    twin_text text;
} twin_context;

typedef struct twin_entry {
    uint64_t last_use;
    twin_text text;
} twin_entry;

typedef struct twin {
    ramet_cache_options options;
    uint32_t n_slots;
    twin_context contexts[TWIN_MAX_CONTEXTS];
    twin_entry *entries[TWIN_MAX_ENTRIES];
    uint32_t n_entries;
    uint32_t last_page, last_row;
    uint64_t clock, n_copied, n_evictions;
    uint32_t *holders; /* scratch: of each page identity */
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
ramet_status twin_retain(twin *t, twin_context *c);
uint32_t twin_match(twin *t, const int32_t *tokens, uint32_t n, twin_context *out);
void twin_clear(twin *t);

void twin_get_stats(twin *t, ramet_engine_stats *out);
uint32_t twin_count_exclusive(twin *t, const twin_context *c);
/* The i-th least recently used entry. */
const twin_entry *twin_entry_by_age(const twin *t, uint32_t i);

#endif
