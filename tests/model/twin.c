/* twin.c - see twin.h: contexts, blocks, and what they may take. Nothing here is remembered that can be counted. */
#include "model/twin_parts.h"

#include <stdlib.h>
#include <string.h>

twin *twin_create(const ramet_cache_options *options) {
    twin *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->blocks = calloc(1, sizeof *t->blocks);
    if (!t->blocks) abort();
    t->n_blocks_there = 1;
    t->options = *options;
    t->has_pager = options->pager != NULL;
    return t;
}

void twin_destroy(twin *t) {
    twin_clear(t);
    free(t->blocks);
    free(t);
}

/* ---- who holds and uses what ---- */

uint64_t twin_bytes_of(const twin *t, twin_kind kind) {
    return kind == TWIN_PAGE     ? t->options.page_bytes
           : kind == TWIN_LOGITS ? t->options.n_vocab * sizeof(float)
                                 : t->options.state_bytes;
}

static twin_block *meet(twin *t, uint32_t id, twin_holder holder) {
    twin_block *b = &t->blocks[id];
    if (id == 0) return NULL;
    uint64_t bytes = twin_bytes_of(t, b->kind);
    if (b->round != t->round) {
        *b = (twin_block){.kind = b->kind, .lost = b->lost, .round = t->round};
        t->live_bytes += bytes;
        t->n_pages_live += b->kind == TWIN_PAGE;
    }
    if (b->by[holder]++ > 0) return b;
    t->bytes_by[holder] += bytes;
    t->n_pages_by_tree += b->kind == TWIN_PAGE && holder == TWIN_BY_TREE;
    return b;
}

static void use(twin *t, twin_block *b) {
    if (b && b->n_users++ == 0) t->used_bytes += twin_bytes_of(t, b->kind);
}

static void meet_context(twin *t, const twin_context *c) {
    for (uint32_t i = 0; i < twin_n_blocks(c); i++) {
        twin_block *b = meet(t, twin_block_at(c, i), TWIN_BY_CONTEXTS);
        if (c->is_used) use(t, b);
    }
    for (int kind = 0; kind < TWIN_TAILS; kind++) use(t, meet(t, c->spare[kind], TWIN_BY_CONTEXTS));
    if (c->holds_logits) use(t, &t->blocks[c->text.tail[TWIN_LOGITS]]);
}

static void meet_entry(twin *t, const twin_entry *e) {
    for (int by_tree = 0; by_tree < 2; by_tree++) { /* a pinned one holds like a context, too */
        twin_holder holder = by_tree ? TWIN_BY_TREE : TWIN_BY_CONTEXTS;
        if (!by_tree && !e->is_pinned) continue;
        for (uint32_t k = 0; k < e->text.n_pages; k++) meet(t, e->text.pages[k], holder);
        for (int kind = 0; kind < TWIN_TAILS; kind++) meet(t, e->text.tail[kind], holder);
    }
}

void twin_count(twin *t) {
    t->round++;
    t->live_bytes = t->used_bytes = t->bytes_by[TWIN_BY_CONTEXTS] = t->bytes_by[TWIN_BY_TREE] = 0;
    t->n_pages_live = t->n_pages_by_tree = 0;
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++)
        if (t->contexts[i].is_open) meet_context(t, &t->contexts[i]);
    for (uint32_t i = 0; i < t->n_entries; i++) meet_entry(t, t->entries[i]);
}

static uint32_t count_by(const twin *t, uint32_t id, twin_holder holder) {
    return t->blocks[id].round == t->round ? t->blocks[id].by[holder] : 0;
}

static bool is_alone(const twin *t, uint32_t id, bool with_tree) {
    return count_by(t, id, TWIN_BY_CONTEXTS) + (with_tree ? count_by(t, id, TWIN_BY_TREE) : 0) == 1;
}

uint32_t twin_n_users(const twin *t, uint32_t id) {
    return t->blocks[id].round == t->round ? t->blocks[id].n_users : 0;
}

static uint32_t new_block(twin *t, twin_kind kind) {
    if (++t->last_block == t->n_blocks_there) {
        t->n_blocks_there *= 2;
        t->blocks = realloc(t->blocks, t->n_blocks_there * sizeof *t->blocks);
        if (!t->blocks) abort();
    }
    t->blocks[t->last_block] = (twin_block){.kind = kind};
    t->n_pages_allocated += kind == TWIN_PAGE;
    return t->last_block;
}

/* ---- room ---- */

/* After twin_count. OK: there is room, or an entry has gone and the caller looks again. */
static ramet_status make_room(twin *t, uint64_t bytes, uint64_t bytes_without_tree, bool *out_is_there) {
    uint64_t budget = t->options.budget_bytes, by_contexts = t->bytes_by[TWIN_BY_CONTEXTS];
    *out_is_there = bytes <= budget - (t->has_pager ? t->used_bytes : t->live_bytes);
    if (*out_is_there) return RAMET_OK;
    if (t->has_pager || by_contexts > budget || bytes_without_tree > budget - by_contexts) return RAMET_E_BUDGET;
    return twin_evict(t) ? RAMET_OK : RAMET_E_BUDGET;
}

uint32_t twin_pages_for(const twin *t, uint32_t n) {
    return (n + t->options.page_tokens - 1) / t->options.page_tokens;
}

static uint32_t count_needed(const twin *t, const twin_text *text, uint32_t first, uint32_t end, bool with_tree) {
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++) n += i >= text->n_pages || !is_alone(t, text->pages[i], with_tree);
    return n;
}

static ramet_status own_pages(twin *t, twin_text *text, uint32_t first, uint32_t end) {
    for (bool is_there = false; !is_there;) {
        twin_count(t);
        uint64_t bytes = count_needed(t, text, first, end, true) * t->options.page_bytes;
        uint64_t without_tree = count_needed(t, text, first, end, false) * t->options.page_bytes;
        if (bytes == 0) return RAMET_OK;
        ramet_status status = make_room(t, bytes, without_tree, &is_there);
        if (status != RAMET_OK) return status;
    }
    for (uint32_t i = first; i < end; i++) {
        bool exists = i < text->n_pages;
        if (exists && is_alone(t, text->pages[i], true)) continue;
        t->n_copied += exists;
        text->pages[i] = new_block(t, TWIN_PAGE);
        if (!exists) text->n_pages = i + 1;
    }
    return RAMET_OK;
}

uint64_t twin_wanted(twin *t, const twin_context *c, uint32_t pos, uint32_t n) {
    twin_count(t);
    return count_needed(t, &c->text, pos / t->options.page_tokens, twin_pages_for(t, pos + n), true) *
           t->options.page_bytes;
}

ramet_status twin_writable(twin *t, twin_context *c, uint32_t n) {
    if (c->lost) return c->lost;
    if (n > t->options.n_ctx - c->text.n) return RAMET_E_WINDOW;
    if (n == 0) return RAMET_OK;
    return own_pages(t, &c->text, c->text.n / t->options.page_tokens, twin_pages_for(t, c->text.n + n));
}

ramet_status twin_rewrite(twin *t, twin_context *c, uint32_t pos, uint32_t n) {
    if (c->lost) return c->lost;
    if (pos > c->text.n || n > c->text.n - pos) return RAMET_E_ARGUMENT;
    if (n == 0) return RAMET_OK;
    return own_pages(t, &c->text, pos / t->options.page_tokens, twin_pages_for(t, pos + n));
}

/* ---- contexts ---- */

uint32_t twin_n_blocks(const twin_context *c) {
    return c->text.n_pages + TWIN_TAILS;
}

uint32_t twin_block_at(const twin_context *c, uint32_t i) {
    return i < c->text.n_pages ? c->text.pages[i] : c->text.tail[i - c->text.n_pages];
}

void twin_commit(twin *t, twin_context *c, const int32_t *tokens, uint32_t n) {
    if (n == 0) return;
    memcpy(c->text.tokens + c->text.n, tokens, n * sizeof *tokens);
    c->text.n += n;
    c->holds_logits = false;
    twin_count(t);
    for (int kind = 0; kind < TWIN_TAILS; kind++) { /* one that is nobody else's is the spare one for next time */
        if (c->text.tail[kind] && !c->spare[kind] && is_alone(t, c->text.tail[kind], true))
            c->spare[kind] = c->text.tail[kind];
        c->text.tail[kind] = 0;
    }
}

ramet_status twin_cut(twin *t, twin_context *c, uint32_t n) {
    if (c->lost) return c->lost;
    if (n > c->text.n) return RAMET_E_ARGUMENT;
    if (n < c->text.n) {
        c->text.tail[TWIN_LOGITS] = c->text.tail[TWIN_STATE] = 0;
        c->holds_logits = false;
    }
    c->text.n = n;
    c->text.n_pages = twin_pages_for(t, n);
    return RAMET_OK;
}

void twin_copy_text(twin_text *to, const twin_text *from) {
    to->n = from->n;
    to->n_pages = from->n_pages;
    memcpy(to->tokens, from->tokens, from->n * sizeof *to->tokens);
    memcpy(to->rows, from->rows, from->n * TWIN_MAX_ROW);
    memcpy(to->pages, from->pages, from->n_pages * sizeof *to->pages);
    memcpy(to->tail, from->tail, sizeof to->tail);
    memcpy(to->logits, from->logits, sizeof to->logits);
    memcpy(to->state, from->state, sizeof to->state);
}

void twin_close(twin_context *c) {
    c->is_open = c->is_used = c->holds_logits = false;
    c->lost = RAMET_OK;
    c->spare[TWIN_LOGITS] = c->spare[TWIN_STATE] = 0;
    c->text.tail[TWIN_LOGITS] = c->text.tail[TWIN_STATE] = 0;
    c->text.n = c->text.n_pages = 0;
}

void twin_open(twin_context *c) {
    twin_close(c);
    c->is_open = true;
}

ramet_status twin_share(twin *t, twin_context *c, twin_context *out) {
    if (c->lost) return c->lost;
    twin_cut(t, c, c->text.n);
    twin_open(out);
    twin_copy_text(&out->text, &c->text);
    return RAMET_OK;
}

/* ---- use ---- */

ramet_status twin_lost_block(const twin *t, const twin_text *text) {
    for (uint32_t i = 0; i < text->n_pages; i++)
        if (t->blocks[text->pages[i]].lost) return t->blocks[text->pages[i]].lost;
    ramet_status logits = t->blocks[text->tail[TWIN_LOGITS]].lost; /* of none: RAMET_OK */
    return logits ? logits : t->blocks[text->tail[TWIN_STATE]].lost;
}

ramet_status twin_use(twin *t, twin_context *c) {
    if (c->lost) return c->lost;
    ramet_status lost = twin_lost_block(t, &c->text);
    if (lost) {
        twin_open(c);
        c->lost = lost;
        t->n_lost_contexts++;
        twin_remove_lost_entries(t);
        return lost;
    }
    c->is_used = true;
    twin_count(t);
    if (t->has_pager && t->used_bytes > t->options.budget_bytes) {
        c->is_used = false;
        return RAMET_E_BUDGET;
    }
    c->holds_logits = false;
    return RAMET_OK;
}

void twin_leave(twin *t, twin_context *c) {
    (void)t;
    c->is_used = false;
    c->spare[TWIN_LOGITS] = c->spare[TWIN_STATE] = 0;
}

ramet_status twin_write_out(twin *t, twin_context *c) {
    if (c->lost) return c->lost;
    if (!t->has_pager) return RAMET_E_ARGUMENT;
    c->holds_logits = false;
    return twin_cut(t, c, c->text.n);
}

/* ---- the tail ---- */

void twin_take_spare(twin *t, twin_context *c, twin_kind kind) {
    c->spare[kind] = new_block(t, kind);
}

/* A state is written beside the old one; a row of logits that is nobody else's again in its place. After twin_count. */
static bool needs_spare(const twin *t, const twin_context *c, twin_kind kind, bool with_tree) {
    if (twin_bytes_of(t, kind) == 0 || c->spare[kind]) return false;
    return kind == TWIN_STATE || !c->text.tail[kind] || !is_alone(t, c->text.tail[kind], with_tree);
}

ramet_status twin_reserve_tail(twin *t, twin_context *c) {
    if (c->lost) return c->lost;
    for (int kind = 0; kind < TWIN_TAILS; kind++)
        for (twin_count(t); needs_spare(t, c, (twin_kind)kind, true); twin_count(t)) {
            uint64_t bytes = twin_bytes_of(t, (twin_kind)kind);
            bool is_there, stays = needs_spare(t, c, (twin_kind)kind, false);
            ramet_status status = make_room(t, bytes, stays ? bytes : 0, &is_there);
            if (status != RAMET_OK) return status;
            if (is_there) twin_take_spare(t, c, (twin_kind)kind);
        }
    return RAMET_OK;
}

bool twin_logits_writable(twin *t, twin_context *c, bool has_room) {
    uint32_t *row = &c->text.tail[TWIN_LOGITS], *spare = &c->spare[TWIN_LOGITS];
    c->holds_logits = false;
    twin_count(t);
    if (*row && !*spare && is_alone(t, *row, true)) return true;
    if (!*spare && has_room) twin_take_spare(t, c, TWIN_LOGITS);
    *row = *spare;
    *spare = 0;
    return *row != 0;
}

void twin_install_state(twin *t, twin_context *c, const uint8_t *state) {
    c->text.tail[TWIN_STATE] = c->spare[TWIN_STATE];
    c->spare[TWIN_STATE] = 0;
    memcpy(c->text.state, state, (size_t)t->options.state_bytes);
}

/* ---- files ---- */

static ramet_status fill(twin *t, const twin_text *text, twin_context *out) {
    ramet_status status = twin_writable(t, out, text->n);
    bool has_logits = text->tail[TWIN_LOGITS] != 0;
    if (status == RAMET_OK && has_logits) status = twin_reserve_tail(t, out);
    if (status != RAMET_OK) return status;
    memcpy(out->text.rows, text->rows, text->n * TWIN_MAX_ROW);
    twin_commit(t, out, text->tokens, text->n);
    if (has_logits) twin_logits_writable(t, out, false);
    memcpy(out->text.logits, text->logits, sizeof text->logits);
    return RAMET_OK;
}

ramet_status twin_restore(twin *t, const twin_file *file, twin_context *out) {
    twin_open(out);
    twin_use(t, out);
    ramet_status status = fill(t, &file->text, out);
    twin_leave(t, out);
    if (status != RAMET_OK) twin_close(out);
    return status;
}

/* ---- looking ---- */

void twin_get_stats(const twin *t, ramet_engine_stats *out) {
    *out = (ramet_engine_stats){
        .pages_live = t->n_pages_live,
        .pages_allocated = t->n_pages_allocated,
        .pages_freed = t->n_pages_allocated - t->n_pages_live,
        .pages_copied = t->n_copied,
        .contexts_lost = t->n_lost_contexts,
        .tree_entries = t->n_entries,
        .tree_pages = t->n_pages_by_tree,
        .tree_bytes = t->bytes_by[TWIN_BY_TREE],
        .tree_evictions = t->n_evictions,
    };
    for (uint32_t i = 0; i < TWIN_MAX_CONTEXTS; i++) out->contexts += t->contexts[i].is_open;
    for (uint32_t i = 0; i < t->n_entries; i++) out->tree_pinned += t->entries[i]->is_pinned;
}

uint32_t twin_count_exclusive(const twin *t, const twin_context *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->text.n_pages; i++) n += is_alone(t, c->text.pages[i], true);
    return n;
}
