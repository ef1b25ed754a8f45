/* twin_tree.c - see twin.h: the prefix tree, a list of entries. */
#include "model/twin_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- what comes next to go ---- */

static uint32_t common_prefix(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b) {
    uint32_t n = n_a < n_b ? n_a : n_b, same = 0;
    while (same + 8 <= n && memcmp(a + same, b + same, 8 * sizeof *a) == 0) same += 8;
    while (same < n && a[same] == b[same]) same++;
    return same;
}

static void count_shared(twin *t) {
    for (uint32_t i = 0; i < t->n_entries; i++) t->entries[i]->n_shared = 0;
    for (uint32_t i = 0; i < t->n_entries; i++)
        for (uint32_t j = 0; j < i; j++) {
            twin_entry *a = t->entries[i], *b = t->entries[j];
            if (a->owner != b->owner) continue;
            uint32_t same = common_prefix(a->text.tokens, a->text.n, b->text.tokens, b->text.n);
            if (a->n_shared < same) a->n_shared = same;
            if (b->n_shared < same) b->n_shared = same;
        }
    t->is_scored = true;
}

static uint64_t tail_bytes(const twin *t, const uint32_t tail[TWIN_TAILS]) {
    return (tail[TWIN_LOGITS] ? twin_bytes_of(t, TWIN_LOGITS) : 0) +
           (tail[TWIN_STATE] ? twin_bytes_of(t, TWIN_STATE) : 0);
}

/* Tokens to run again per byte that it takes; where another entry has all its pages, only the tail would be gone. */
static double cost_of(const twin *t, const twin_entry *e) {
    uint64_t tail = tail_bytes(t, e->text.tail);
    if (e->n_shared == e->text.n) return tail ? 1.0 / (double)tail : 0.0;
    uint64_t n_pages = twin_pages_for(t, e->text.n) - e->n_shared / t->options.page_tokens;
    return (double)(e->text.n - e->n_shared) / (double)(n_pages * t->options.page_bytes + tail);
}

static void score(twin *t) {
    if (!t->is_scored) count_shared(t);
    for (uint32_t i = 0; i < t->n_entries; i++) t->entries[i]->score = t->entries[i]->base + cost_of(t, t->entries[i]);
}

void twin_order(twin *t, const twin_entry *out[TWIN_MAX_ENTRIES]) {
    uint32_t n = 0;
    score(t);
    for (uint32_t i = 0; i < t->n_entries; i++) { /* after all that do not go later */
        const twin_entry *e = t->entries[i];
        if (e->is_pinned) continue;
        uint32_t place = n++;
        for (; place > 0 && out[place - 1]->score > e->score; place--) out[place] = out[place - 1];
        out[place] = e;
    }
    for (uint32_t i = 0; i < t->n_entries; i++)
        if (t->entries[i]->is_pinned) out[n++] = t->entries[i];
}

/* ---- going ---- */

static void remove_entry(twin *t, uint32_t i) {
    t->n_entries--;
    memmove(t->entries + i, t->entries + i + 1, (t->n_entries - i) * sizeof t->entries[0]);
    t->is_scored = false;
}

void twin_remove_lost_entries(twin *t) {
    for (uint32_t i = t->n_entries; i-- > 0;) {
        twin_entry *e = t->entries[i];
        if (!twin_lost_block(t, &e->text)) continue;
        remove_entry(t, i);
        free(e);
    }
}

bool twin_evict(twin *t) {
    uint32_t victim = UINT32_MAX;
    score(t);
    for (uint32_t i = 0; i < t->n_entries; i++) {
        const twin_entry *e = t->entries[i];
        if (e->is_pinned || e->is_arriving) continue;
        if (victim == UINT32_MAX || e->score < t->entries[victim]->score) victim = i;
    }
    if (victim == UINT32_MAX) return false;
    twin_entry *gone = t->entries[victim];
    if (gone->score > t->inflation) t->inflation = gone->score;
    remove_entry(t, victim);
    free(gone);
    t->n_evictions++;
    return true;
}

void twin_clear(twin *t) {
    while (t->n_entries) free(t->entries[--t->n_entries]);
    t->is_scored = false;
}

/* ---- keeping ---- */

static bool has_tokens(const twin_text *text, const int32_t *tokens, uint32_t n) {
    return text->n == n && memcmp(text->tokens, tokens, n * sizeof *tokens) == 0;
}

static uint32_t find_entry(const twin *t, uint32_t owner, const int32_t *tokens, uint32_t n) {
    uint32_t i = 0;
    while (i < t->n_entries && !(t->entries[i]->owner == owner && has_tokens(&t->entries[i]->text, tokens, n))) i++;
    return i;
}

/* The most recently used one is the last. */
static twin_entry *use_entry(twin *t, uint32_t i) {
    twin_entry *e = t->entries[i];
    memmove(t->entries + i, t->entries + i + 1, (t->n_entries - 1 - i) * sizeof t->entries[0]);
    t->entries[t->n_entries - 1] = e;
    e->base = t->inflation;
    return e;
}

static uint64_t bytes_alone(const twin *t, const twin_text *text, const uint32_t tail[TWIN_TAILS]) {
    return twin_pages_for(t, text->n) * t->options.page_bytes + tail_bytes(t, tail);
}

static uint64_t pinned_bytes(const twin *t) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->n_entries; i++)
        if (t->entries[i]->is_pinned) bytes += bytes_alone(t, &t->entries[i]->text, t->entries[i]->text.tail);
    return bytes;
}

/* Others go until the tree fits. */
static void arrive(twin *t, twin_entry *e) {
    e->is_arriving = true;
    for (twin_count(t); t->bytes_by[TWIN_BY_TREE] > t->options.tree_budget_bytes; twin_count(t))
        if (!twin_evict(t)) break;
    e->is_arriving = false;
    e->base = t->inflation;
}

/* It takes the tail blocks that it lacks. */
static ramet_status refresh(twin *t, uint32_t i, const twin_text *text, bool is_pinned) {
    twin_entry *e = t->entries[i];
    uint32_t tail[TWIN_TAILS];
    for (int kind = 0; kind < TWIN_TAILS; kind++)
        tail[kind] = e->text.tail[kind] ? e->text.tail[kind] : text->tail[kind];
    uint64_t had = bytes_alone(t, text, e->text.tail), has = bytes_alone(t, text, tail), pinned = pinned_bytes(t);
    uint64_t pinned_besides = pinned - (e->is_pinned ? had : 0);
    is_pinned = is_pinned || e->is_pinned;
    if (is_pinned && pinned_besides + has > t->options.pin_budget_bytes) return RAMET_E_BUDGET;
    if (has > had && pinned_besides + has > t->options.tree_budget_bytes) return RAMET_E_BUDGET;
    if (!e->text.tail[TWIN_LOGITS]) memcpy(e->text.logits, text->logits, sizeof text->logits);
    if (!e->text.tail[TWIN_STATE]) memcpy(e->text.state, text->state, sizeof text->state);
    memcpy(e->text.tail, tail, sizeof tail);
    e->is_pinned = is_pinned;
    arrive(t, use_entry(t, i));
    return RAMET_OK;
}

ramet_status twin_retain(twin *t, twin_context *c, uint32_t owner, bool is_pinned) {
    if (c->lost) return c->lost;
    twin_cut(t, c, c->text.n);
    if (c->text.n == 0) return RAMET_OK;
    ramet_status lost = twin_lost_block(t, &c->text);
    if (lost) return lost;
    uint32_t i = find_entry(t, owner, c->text.tokens, c->text.n);
    if (i < t->n_entries) return refresh(t, i, &c->text, is_pinned);
    uint64_t besides = pinned_bytes(t), alone = bytes_alone(t, &c->text, c->text.tail);
    if (is_pinned && besides + alone > t->options.pin_budget_bytes) return RAMET_E_BUDGET;
    if (besides + alone > t->options.tree_budget_bytes) return RAMET_E_BUDGET;
    twin_entry *e = malloc(sizeof *e);
    if (!e || t->n_entries == TWIN_MAX_ENTRIES) abort();
    e->owner = owner;
    e->is_pinned = is_pinned;
    e->base = 0;
    twin_copy_text(&e->text, &c->text);
    t->entries[t->n_entries++] = e;
    t->is_scored = false;
    arrive(t, e);
    return RAMET_OK;
}

ramet_status twin_unpin(twin *t, uint32_t owner, const int32_t *tokens, uint32_t n) {
    uint32_t i = find_entry(t, owner, tokens, n);
    if (i == t->n_entries || !t->entries[i]->is_pinned) return RAMET_E_NOT_FOUND;
    use_entry(t, i)->is_pinned = false;
    return RAMET_OK;
}

/* ---- matching ---- */

uint32_t twin_match(twin *t, uint32_t owner, const int32_t *tokens, uint32_t n, twin_context *out) {
    uint32_t best = 0, from = 0;
    for (uint32_t i = 0; i < t->n_entries; i++) {
        const twin_entry *e = t->entries[i];
        if (e->owner != owner && e->owner != 0) continue;
        uint32_t same = common_prefix(e->text.tokens, e->text.n, tokens, n);
        /* Of equals the owner's, and then the most recently used one. */
        if (same > best || (same == best && (e->owner == owner || t->entries[from]->owner != owner))) {
            best = same;
            from = i;
        }
    }
    twin_open(out);
    if (best == 0) return 0;
    twin_copy_text(&out->text, &t->entries[from]->text);
    twin_cut(t, out, best);
    out->text.tail[TWIN_LOGITS] = out->text.tail[TWIN_STATE] = 0;
    uint32_t exact = find_entry(t, t->entries[from]->owner, tokens, best);
    if (exact < t->n_entries) { /* the tail of the entry that has exactly these tokens */
        const twin_text *text = &t->entries[exact]->text;
        memcpy(out->text.tail, text->tail, sizeof text->tail);
        memcpy(out->text.logits, text->logits, sizeof text->logits);
        memcpy(out->text.state, text->state, sizeof text->state);
    }
    use_entry(t, from);
    return best;
}
