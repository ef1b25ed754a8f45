/* compare.c - see lockstep.h: everything that must be equal between a cache and its twin. */
#include "lockstep/lockstep.h"

#include <stdlib.h>
#include <string.h>

/* ---- a context ---- */

static const uint8_t *bytes_of(const ramet_cache *cache, const walk_pager *pager, const ramet_block *block) {
    return block->slot != RAMET_NO_SLOT ? ramet_block_data(cache, block) : walk_pager_peek(pager, block->name);
}

static void *grown(void *data, size_t n, size_t more) {
    uint8_t *bytes = realloc(data, n + more);
    if (!bytes) abort();
    memset(bytes + n, 0, more);
    return bytes;
}

static void page_memory_grow(page_memory *m, const ramet_kv_layout *layout, uint32_t more) {
    size_t rows_bytes = layout->page_tokens * layout->row_bytes;
    m->pages = grown(m->pages, m->n_pages * layout->page_bytes, more * layout->page_bytes);
    m->rows = grown(m->rows, m->n_pages * rows_bytes, more * rows_bytes);
    m->looked_at = grown(m->looked_at, m->n_pages * sizeof *m->looked_at, more * sizeof *m->looked_at);
    m->n_pages += more;
}

void page_memory_free(page_memory *m) {
    free(m->pages);
    free(m->rows);
    free(m->looked_at);
}

/* The rows of a page, exported again when any byte of it is another one than the last time: a page of zeros, to begin
 * with, has rows of zeros. */
static const uint8_t *rows_of(page_memory *m, const ramet_kv_layout *layout, const ramet_block *page,
                              const uint8_t *data) {
    if (page->id >= m->n_pages) page_memory_grow(m, layout, page->id + 1);
    uint8_t *was = m->pages + page->id * layout->page_bytes;
    uint8_t *rows = m->rows + page->id * layout->page_tokens * layout->row_bytes;
    if (m->looked_at[page->id] != m->round && memcmp(was, data, layout->page_bytes) != 0) {
        memcpy(was, data, layout->page_bytes);
        ramet_kv_export(layout, data, 0, layout->page_tokens, rows);
    }
    m->looked_at[page->id] = m->round;
    return rows;
}

static const char *compare_rows(const ramet_context *context, const ramet_kv_layout *layout, page_memory *m,
                                const walk_pager *pager, const twin_text *text) {
    for (uint32_t pos = 0; pos < text->n; pos += layout->page_tokens) {
        uint32_t n = ramet_min_u32(layout->page_tokens, text->n - pos);
        const ramet_block *page = ramet_table_page(&context->table, pos / layout->page_tokens);
        const uint8_t *rows = rows_of(m, layout, page, bytes_of(context->cache, pager, page));
        if (memcmp(rows, text->rows + pos * layout->row_bytes, n * layout->row_bytes) != 0) return "bytes (K4)";
    }
    return NULL;
}

static const char *compare_tail(const ramet_context *context, const walk_pager *pager, const twin_text *text) {
    const ramet_block *logits = context->tail[RAMET_TAIL_OF(RAMET_LOGITS)];
    const ramet_block *state = context->tail[RAMET_TAIL_OF(RAMET_STATE)];
    if (ramet_context_has_logits(context) != (text->tail[TWIN_LOGITS] != 0)) return "presence of logits";
    if (ramet_context_has_state(context) != (text->tail[TWIN_STATE] != 0)) return "presence of a state";
    if (logits && memcmp(bytes_of(context->cache, pager, logits), text->logits, sizeof text->logits) != 0)
        return "logits (K10)";
    size_t state_bytes = (size_t)context->cache->options.state_bytes;
    if (state && memcmp(bytes_of(context->cache, pager, state), text->state, state_bytes) != 0) return "state (K10)";
    return NULL;
}

const char *pair_compare_text(ramet_context *context, const ramet_kv_layout *layout, page_memory *m,
                              const walk_pager *pager, const twin_text *text) {
    static int32_t tokens[TWIN_MAX_TOKENS];
    if (ramet_context_length(context) != text->n) return "length";
    ramet_context_read_tokens(context, 0, text->n, tokens);
    if (memcmp(tokens, text->tokens, text->n * sizeof *tokens) != 0) return "tokens";
    if (ramet_context_common_prefix(context, text->tokens, text->n) != text->n) return "common prefix";
    const char *difference = compare_tail(context, pager, text);
    return difference ? difference : compare_rows(context, layout, m, pager, text);
}

/* What is used is in memory; without a pager all is. */
static bool is_where_it_should_be(const pair *p, uint32_t i) {
    const ramet_context *context = p->contexts[i];
    for (uint32_t k = 0; k < ramet_context_n_blocks(context); k++) {
        const ramet_block *block = ramet_context_block(context, k);
        bool must_be_here = !p->setup.has_pager || twin_n_users(p->twin, twin_block_at(&p->twin->contexts[i], k)) > 0;
        if (block && block->slot == RAMET_NO_SLOT && must_be_here) return false;
    }
    return true;
}

/* After twin_count. */
static const char *compare_context(pair *p, uint32_t i) {
    const twin_context *c = &p->twin->contexts[i];
    if (!p->contexts[i] != !c->is_open) return "whether it is open";
    if (!p->contexts[i]) return NULL;
    uint64_t reachable, exclusive;
    ramet_context_count_pages(p->contexts[i], &reachable, &exclusive);
    if (reachable != c->text.n_pages) return "number of pages";
    if (exclusive != twin_count_exclusive(p->twin, c)) return "number of exclusive pages (K1)";
    if ((ramet_status)p->contexts[i]->lost != c->lost) return "whether it is lost (K9)";
    if (p->contexts[i]->is_used != c->is_used) return "whether it is used (K9)";
    const char *difference = pair_compare_text(p->contexts[i], &p->layout, &p->memory, &p->pager, &c->text);
    if (difference) return difference;
    if (!is_where_it_should_be(p, i)) return "what is used is written out (K9)";
    if (c->holds_logits && memcmp(p->held_logits[i], c->text.logits, sizeof c->text.logits) != 0)
        return "logits that are held";
    return NULL;
}

/* ---- the tree ---- */

typedef struct listing {
    const twin_entry *entries[TWIN_MAX_ENTRIES];
    uint32_t n_entries, n;
    const char *difference;
} listing;

static const char *compare_owner(const ramet_retain *how, const twin_entry *entry) {
    const char *name = owner_name(entry->owner);
    if (!name != !how->owner || (name && strcmp(name, how->owner) != 0)) return "an entry is another's (K12)";
    return how->is_pinned != entry->is_pinned ? "an entry is pinned, or not" : NULL;
}

static void compare_entry(void *user, const ramet_retain *how, const int32_t *tokens, uint32_t n) {
    listing *l = user;
    if (l->difference) return;
    const twin_entry *e = l->n < l->n_entries ? l->entries[l->n] : NULL;
    l->n++;
    if (!e || e->text.n != n || memcmp(e->text.tokens, tokens, n * sizeof *tokens) != 0)
        l->difference = "entries or their order (K6)";
    else
        l->difference = compare_owner(how, e);
}

static const char *compare_tree(pair *p) {
    static listing l;
    l.n_entries = p->twin->n_entries;
    l.n = 0;
    l.difference = NULL;
    twin_order(p->twin, l.entries);
    if (ramet_tree_each(p->cache, compare_entry, &l, NULL) != RAMET_OK) return "no memory";
    return l.difference || l.n == l.n_entries ? l.difference : "entries or their order (K6)";
}

/* ---- the numbers ---- */

static const char *compare_pager(const pair *p, const ramet_engine_stats *a) {
    if (a->spilled_bytes != p->pager.kept_bytes) return "bytes with the pager (K9)";
    if (a->blocks_spilled != p->pager.n_written || a->blocks_read_back != p->pager.n_read) return "blocks that moved";
    if (!p->setup.has_pager && a->spilled_bytes > 0) return "something is spilled, and there is no pager";
    if (a->memory_bytes + a->spilled_bytes != p->twin->live_bytes) return "bytes in memory and out (K11)";
    return NULL;
}

static const char *compare_stats(const pair *p) {
    ramet_engine_stats a, b;
    ramet_cache_get_stats(p->cache, &a);
    twin_get_stats(p->twin, &b);
    if (a.pages_allocated - a.pages_freed != a.pages_live) return "allocated - freed = live (K2)";
    if (a.pages_live != b.pages_live) return "live pages";
    if (a.pages_allocated != b.pages_allocated || a.pages_freed != b.pages_freed) return "allocated or freed pages";
    if (a.pages_copied != b.pages_copied) return "copied pages";
    if (a.contexts != b.contexts || a.contexts_lost != b.contexts_lost) return "contexts";
    if (a.tree_entries != b.tree_entries || a.tree_pinned != b.tree_pinned) return "entries that are pinned";
    if (a.tree_evictions != b.tree_evictions) return "evictions";
    if (a.tree_pages != b.tree_pages || a.tree_bytes != b.tree_bytes) return "pages or bytes of the tree (K11)";
    return compare_pager(p, &a);
}

/* How many entries there are first: one too many or too few shows in every other number, too. */
const char *pair_compare(pair *p, uint32_t *out_context) {
    twin_count(p->twin);
    p->memory.round++;
    *out_context = TWIN_MAX_CONTEXTS;
    if (ramet_tree_n_entries(p->cache) != p->twin->n_entries) return "number of entries (K6)";
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++) {
        const char *difference = compare_context(p, i);
        if (!difference) continue;
        *out_context = i;
        return difference;
    }
    const char *difference = compare_stats(p);
    return difference ? difference : compare_tree(p);
}

void pair_require_equal(pair *p) {
    ramet_error error = {0};
    uint32_t i;
    require(ramet_cache_check(p->cache, &error) == RAMET_OK, "%s", error.message);
    const char *difference = pair_compare(p, &i);
    require(!difference || i < TWIN_MAX_CONTEXTS, "differs from the twin: %s", difference);
    require(!difference, "differs from the twin (context %u): %s", i, difference);
}
