/* twin.c - see twin.h. Nothing here is fast, and nothing is remembered that can be counted. */
#include "model/twin.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PAGE_IDENTITIES = 1 << 20 };

twin *twin_create(const ramet_cache_options *options) {
    twin *t = calloc(1, sizeof *t);
    t->options = *options;
    t->n_slots = (uint32_t)(options->budget_bytes / options->page_bytes);
    t->holders = calloc(MAX_PAGE_IDENTITIES, sizeof *t->holders);
    return t;
}

void twin_destroy(twin *t) {
    twin_clear(t);
    free(t->holders);
    free(t);
}

/* ---- who holds what ---- */

static void add_text(twin *t, const twin_text *text) {
    for (uint32_t i = 0; i < text->n_pages; i++) t->holders[text->pages[i]]++;
}

/* Fills t->holders; returns how many pages have one. */
static uint32_t count_holders(twin *t, bool of_contexts, bool of_tree) {
    memset(t->holders, 0, (t->last_page + 1) * sizeof *t->holders);
    for (uint32_t i = 0; of_contexts && i < TWIN_MAX_CONTEXTS; i++)
        if (t->contexts[i].is_open) add_text(t, &t->contexts[i].text);
    for (uint32_t i = 0; of_tree && i < t->n_entries; i++) add_text(t, &t->entries[i]->text);
    uint32_t n = 0;
    for (uint32_t i = 1; i <= t->last_page; i++) n += t->holders[i] > 0;
    return n;
}

static uint32_t pages_for(const twin *t, uint32_t n) {
    return (n + t->options.page_tokens - 1) / t->options.page_tokens;
}

static uint64_t tree_bytes(twin *t) {
    uint64_t bytes = count_holders(t, false, true) * t->options.page_bytes;
    for (uint32_t i = 0; i < t->n_entries; i++) { /* each row once: with the first entry that has it */
        bool is_counted = t->entries[i]->text.row == 0;
        for (uint32_t j = 0; j < i; j++) is_counted = is_counted || t->entries[j]->text.row == t->entries[i]->text.row;
        if (!is_counted) bytes += TWIN_VOCAB * sizeof(float);
    }
    return bytes;
}

static uint32_t oldest_entry(const twin *t) {
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < t->n_entries; i++)
        if (t->entries[i]->last_use < t->entries[oldest]->last_use) oldest = i;
    return oldest;
}

static void remove_entry(twin *t, uint32_t i) {
    free(t->entries[i]);
    t->entries[i] = t->entries[--t->n_entries];
}

static void evict_oldest(twin *t) {
    remove_entry(t, oldest_entry(t));
    t->n_evictions++;
}

void twin_clear(twin *t) {
    while (t->n_entries) remove_entry(t, 0);
}

/* ---- pages ---- */

/* With t->holders filled. */
static uint32_t count_needed(const twin *t, const twin_text *text, uint32_t first, uint32_t end) {
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++) n += i >= text->n_pages || t->holders[text->pages[i]] > 1;
    return n;
}

static ramet_status own_pages(twin *t, twin_text *text, uint32_t first, uint32_t end) {
    uint32_t live = count_holders(t, true, false);
    if (count_needed(t, text, first, end) > t->n_slots - live) return RAMET_E_BUDGET; /* even without the tree */
    for (;;) {
        live = count_holders(t, true, true);
        if (count_needed(t, text, first, end) <= t->n_slots - live) break;
        evict_oldest(t);
    }
    for (uint32_t i = first; i < end; i++) {
        if (i < text->n_pages && t->holders[text->pages[i]] == 1) continue;
        t->n_copied += i < text->n_pages;
        text->pages[i] = ++t->last_page;
        if (i >= text->n_pages) text->n_pages = i + 1;
        if (t->last_page + 1 >= MAX_PAGE_IDENTITIES) abort(); /* fewer operations per seed, please */
    }
    return RAMET_OK;
}

ramet_status twin_writable(twin *t, twin_context *c, uint32_t n) {
    if (c->is_spilled) return RAMET_E_ARGUMENT;
    if (n > t->options.n_ctx - c->text.n) return RAMET_E_WINDOW;
    if (n == 0) return RAMET_OK;
    return own_pages(t, &c->text, c->text.n / t->options.page_tokens, pages_for(t, c->text.n + n));
}

ramet_status twin_rewrite(twin *t, twin_context *c, uint32_t pos, uint32_t n) {
    if (c->is_spilled || pos > c->text.n || n > c->text.n - pos) return RAMET_E_ARGUMENT;
    if (n == 0) return RAMET_OK;
    return own_pages(t, &c->text, pos / t->options.page_tokens, pages_for(t, pos + n));
}

/* ---- contexts ---- */

void twin_commit(twin *t, twin_context *c, const int32_t *tokens, uint32_t n) {
    (void)t;
    if (n == 0) return;
    memcpy(c->text.tokens + c->text.n, tokens, n * sizeof *tokens);
    c->text.n += n;
    c->text.row = 0;
}

ramet_status twin_cut(twin *t, twin_context *c, uint32_t n) {
    if (c->is_spilled || n > c->text.n) return RAMET_E_ARGUMENT;
    if (n < c->text.n) c->text.row = 0;
    c->text.n = n;
    c->text.n_pages = pages_for(t, n);
    return RAMET_OK;
}

ramet_status twin_share(twin *t, twin_context *c, twin_context *out) {
    if (c->is_spilled) return RAMET_E_ARGUMENT;
    twin_cut(t, c, c->text.n);
    *out = *c;
    return RAMET_OK;
}

void twin_logits_writable(twin *t, twin_context *c) {
    c->text.row = ++t->last_row;
}

ramet_status twin_drop(twin *t, twin_context *c) {
    (void)t;
    if (c->is_spilled) return RAMET_E_ARGUMENT;
    c->is_spilled = true;
    c->text.n_pages = 0;
    return RAMET_OK;
}

ramet_status twin_refill(twin *t, twin_context *c) {
    if (!c->is_spilled) return RAMET_E_ARGUMENT;
    ramet_status status = own_pages(t, &c->text, 0, pages_for(t, c->text.n));
    if (status == RAMET_OK) c->is_spilled = false;
    return status;
}

/* ---- the tree ---- */

ramet_status twin_retain(twin *t, twin_context *c) {
    if (c->is_spilled) return RAMET_E_ARGUMENT;
    twin_cut(t, c, c->text.n);
    const twin_text *text = &c->text;
    if (text->n == 0) return RAMET_OK;
    uint64_t alone = text->n_pages * t->options.page_bytes + (text->row ? TWIN_VOCAB * sizeof(float) : 0);
    if (alone > t->options.tree_budget_bytes) return RAMET_E_BUDGET;
    twin_entry *entry = NULL;
    for (uint32_t i = 0; i < t->n_entries; i++)
        if (t->entries[i]->text.n == text->n && memcmp(t->entries[i]->text.tokens, text->tokens, text->n * 4) == 0)
            entry = t->entries[i];
    if (!entry) {
        if (t->n_entries == TWIN_MAX_ENTRIES) abort(); /* a smaller tree budget, please */
        entry = t->entries[t->n_entries++] = malloc(sizeof *entry);
        entry->text = *text;
    } else if (entry->text.row == 0) {
        entry->text.row = text->row;
        memcpy(entry->text.logits, text->logits, sizeof text->logits);
    }
    entry->last_use = ++t->clock;
    while (tree_bytes(t) > t->options.tree_budget_bytes) evict_oldest(t);
    return RAMET_OK;
}

uint32_t twin_match(twin *t, const int32_t *tokens, uint32_t n, twin_context *out) {
    uint32_t best = 0;
    twin_entry *from = NULL;
    for (uint32_t i = 0; i < t->n_entries; i++) {
        twin_entry *entry = t->entries[i];
        uint32_t same = 0;
        while (same < n && same < entry->text.n && entry->text.tokens[same] == tokens[same]) same++;
        if (same > best || (same == best && from && entry->last_use > from->last_use)) {
            best = same;
            from = entry;
        }
    }
    memset(out, 0, sizeof *out);
    out->is_open = true;
    if (!from) return 0;
    out->text = from->text;
    out->text.n = best;
    out->text.n_pages = pages_for(t, best);
    out->text.row = 0;
    for (uint32_t i = 0; i < t->n_entries; i++) { /* logits of the entry that has exactly these tokens */
        const twin_text *text = &t->entries[i]->text;
        if (text->n != best || memcmp(text->tokens, tokens, best * sizeof *tokens) != 0) continue;
        out->text.row = text->row;
        memcpy(out->text.logits, text->logits, sizeof text->logits);
    }
    from->last_use = ++t->clock;
    return best;
}

/* ---- looking ---- */

void twin_get_stats(twin *t, ramet_engine_stats *out) {
    *out = (ramet_engine_stats){
        .pages_live = count_holders(t, true, true),
        .pages_allocated = t->last_page,
        .pages_copied = t->n_copied,
        .tree_entries = t->n_entries,
        .tree_pages = count_holders(t, false, true),
        .tree_bytes = tree_bytes(t),
        .tree_evictions = t->n_evictions,
    };
    out->pages_freed = out->pages_allocated - out->pages_live;
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++) out->contexts += t->contexts[i].is_open;
}

uint32_t twin_count_exclusive(twin *t, const twin_context *c) {
    count_holders(t, true, true);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->text.n_pages; i++) n += t->holders[c->text.pages[i]] == 1;
    return n;
}

const twin_entry *twin_entry_by_age(const twin *t, uint32_t nth) {
    for (uint32_t i = 0; i < t->n_entries; i++) {
        uint32_t n_older = 0;
        for (uint32_t j = 0; j < t->n_entries; j++) n_older += t->entries[j]->last_use < t->entries[i]->last_use;
        if (n_older == nth) return t->entries[i];
    }
    return NULL;
}
