/* twin.c - see twin.h. Nothing here is remembered that can be counted. */
#include "model/twin.h"

#include <stdlib.h>
#include <string.h>

twin *twin_create(const ramet_cache_options *options) {
    twin *t = calloc(1, sizeof *t);
    t->options = *options;
    t->n_slots = (uint32_t)(options->budget_bytes / options->page_bytes);
    return t;
}

void twin_destroy(twin *t) {
    twin_clear(t);
    free(t);
}

/* ---- who holds what ---- */

void twin_count(twin *t) {
    memset(t->by_contexts, 0, (t->last_page + 1) * sizeof t->by_contexts[0]);
    memset(t->by_tree, 0, (t->last_page + 1) * sizeof t->by_tree[0]);
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++) {
        const twin_text *text = &t->contexts[i].text;
        for (uint32_t k = 0; t->contexts[i].is_open && k < text->n_pages; k++) t->by_contexts[text->pages[k]]++;
    }
    for (uint32_t i = 0; i < t->n_entries; i++)
        for (uint32_t k = 0; k < t->entries[i]->n_pages; k++) t->by_tree[t->entries[i]->pages[k]]++;
    t->n_by_contexts = t->n_by_tree = t->n_live = 0;
    for (uint32_t page = 1; page <= t->last_page; page++) {
        t->n_by_contexts += t->by_contexts[page] > 0;
        t->n_by_tree += t->by_tree[page] > 0;
        t->n_live += t->by_contexts[page] + t->by_tree[page] > 0;
    }
}

static uint32_t pages_for(const twin *t, uint32_t n) {
    return (n + t->options.page_tokens - 1) / t->options.page_tokens;
}

/* After twin_count. */
static uint64_t tree_bytes(const twin *t) {
    uint64_t bytes = t->n_by_tree * t->options.page_bytes;
    for (uint32_t i = 0; i < t->n_entries; i++) { /* each row once: with the first entry that has it */
        bool is_counted = t->entries[i]->row == 0;
        for (uint32_t j = 0; j < i && !is_counted; j++) is_counted = t->entries[j]->row == t->entries[i]->row;
        if (!is_counted) bytes += TWIN_VOCAB * sizeof(float);
    }
    return bytes;
}

/* ---- pages ---- */

static uint32_t count_needed(const twin *t, const twin_text *text, uint32_t first, uint32_t end, bool with_tree) {
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++) {
        uint32_t page = i < text->n_pages ? text->pages[i] : 0;
        n += page == 0 || t->by_contexts[page] + (with_tree ? t->by_tree[page] : 0) > 1;
    }
    return n;
}

static ramet_status own_pages(twin *t, twin_text *text, uint32_t first, uint32_t end) {
    twin_count(t);
    if (count_needed(t, text, first, end, false) > t->n_slots - t->n_by_contexts) return RAMET_E_BUDGET;
    for (; count_needed(t, text, first, end, true) > t->n_slots - t->n_live; twin_count(t)) twin_evict_oldest(t);
    for (uint32_t i = first; i < end; i++) {
        bool is_there = i < text->n_pages;
        if (is_there && t->by_contexts[text->pages[i]] + t->by_tree[text->pages[i]] == 1) continue;
        t->n_copied += is_there;
        if (++t->last_page == TWIN_MAX_PAGE_IDENTITIES) abort(); /* fewer operations per seed, please */
        text->pages[i] = t->last_page;
        if (!is_there) text->n_pages = i + 1;
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

void twin_undo_refill(twin *t, twin_context *c) {
    twin_drop(t, c);
}

ramet_status twin_restore(twin *t, const twin_file *file, twin_context *out) {
    const twin_text *text = &file->text;
    twin_context new = {.is_open = true};
    ramet_status status = twin_writable(t, &new, text->n);
    if (status != RAMET_OK) return status;
    memcpy(new.text.rows, text->rows, sizeof text->rows);
    twin_commit(t, &new, text->tokens, text->n);
    if (text->row) twin_logits_writable(t, &new);
    memcpy(new.text.logits, text->logits, sizeof text->logits);
    *out = new;
    return RAMET_OK;
}

/* ---- the tree ---- */

static void remove_entry(twin *t, uint32_t i) {
    t->n_entries--;
    memmove(t->entries + i, t->entries + i + 1, (t->n_entries - i) * sizeof t->entries[0]);
}

/* The most recently used one is the last. */
static void use_entry(twin *t, uint32_t i) {
    twin_text *entry = t->entries[i];
    remove_entry(t, i);
    t->entries[t->n_entries++] = entry;
}

void twin_evict_oldest(twin *t) {
    free(t->entries[0]);
    remove_entry(t, 0);
    t->n_evictions++;
}

void twin_clear(twin *t) {
    while (t->n_entries) free(t->entries[--t->n_entries]);
}

static bool has_tokens(const twin_text *text, const int32_t *tokens, uint32_t n) {
    return text->n == n && memcmp(text->tokens, tokens, n * sizeof *tokens) == 0;
}

ramet_status twin_retain(twin *t, twin_context *c) {
    if (c->is_spilled) return RAMET_E_ARGUMENT;
    twin_cut(t, c, c->text.n);
    const twin_text *text = &c->text;
    if (text->n == 0) return RAMET_OK;
    uint64_t alone = text->n_pages * t->options.page_bytes + (text->row ? TWIN_VOCAB * sizeof(float) : 0);
    if (alone > t->options.tree_budget_bytes) return RAMET_E_BUDGET;
    uint32_t i = 0;
    while (i < t->n_entries && !has_tokens(t->entries[i], text->tokens, text->n)) i++;
    if (i == t->n_entries) {
        if (i == TWIN_MAX_ENTRIES) abort(); /* a smaller tree budget, please */
        t->entries[t->n_entries++] = malloc(sizeof *text);
        *t->entries[i] = *text;
    } else if (t->entries[i]->row == 0) {
        t->entries[i]->row = text->row;
        memcpy(t->entries[i]->logits, text->logits, sizeof text->logits);
    }
    use_entry(t, i);
    for (twin_count(t); tree_bytes(t) > t->options.tree_budget_bytes; twin_count(t)) twin_evict_oldest(t);
    return RAMET_OK;
}

uint32_t twin_match(twin *t, const int32_t *tokens, uint32_t n, twin_context *out) {
    uint32_t best = 0, from = 0;
    for (uint32_t i = 0; i < t->n_entries; i++) {
        const twin_text *text = t->entries[i];
        uint32_t same = 0;
        while (same < n && same < text->n && text->tokens[same] == tokens[same]) same++;
        if (same >= best) { /* of equals the most recently used one */
            best = same;
            from = i;
        }
    }
    memset(out, 0, sizeof *out);
    out->is_open = true;
    if (best == 0) return 0;
    out->text = *t->entries[from];
    twin_cut(t, out, best);
    out->text.row = 0;
    for (uint32_t i = 0; i < t->n_entries; i++) { /* logits of the entry that has exactly these tokens */
        const twin_text *text = t->entries[i];
        if (!has_tokens(text, tokens, best)) continue;
        out->text.row = text->row;
        memcpy(out->text.logits, text->logits, sizeof text->logits);
    }
    use_entry(t, from);
    return best;
}

/* ---- looking ---- */

void twin_get_stats(const twin *t, ramet_engine_stats *out) {
    *out = (ramet_engine_stats){
        .pages_live = t->n_live,
        .pages_allocated = t->last_page,
        .pages_freed = t->last_page - t->n_live,
        .pages_copied = t->n_copied,
        .tree_entries = t->n_entries,
        .tree_pages = t->n_by_tree,
        .tree_bytes = tree_bytes(t),
        .tree_evictions = t->n_evictions,
    };
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++) out->contexts += t->contexts[i].is_open;
}

uint32_t twin_count_exclusive(const twin *t, const twin_context *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->text.n_pages; i++)
        n += t->by_contexts[c->text.pages[i]] + t->by_tree[c->text.pages[i]] == 1;
    return n;
}
