/* run_tree.c - see lockstep.h: the operations on the prefix tree and the pools. */
#include "lockstep/run.h"

#include <string.h>

/* ---- keeping ---- */

static uint32_t owner_of(const op *o) {
    return o->other % TWIN_OWNERS;
}

void op_retain(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    ramet_retain how = {.owner = owner_name(owner_of(o)), .is_pinned = o->a % 4 == 0};
    (void)BOTH(ramet_tree_retain(p->contexts[o->context], &how, &error),
               twin_retain(p->twin, &p->twin->contexts[o->context], owner_of(o), how.is_pinned));
    pair_shed_ahead(p, o->context, status);
}

/* Mostly of an entry that is pinned, and by its owner. */
void op_unpin(pair *p, const op *o) {
    ramet_error error = {0};
    const twin *t = p->twin;
    uint32_t n = t->n_entries, i = n > 0 ? o->a % n : 0;
    for (uint32_t k = 0; k < n && !t->entries[i]->is_pinned; k++) i = (i + 1) % n;
    static const twin_text none;
    const twin_text *text = n > 0 ? &t->entries[i]->text : &none;
    uint32_t owner = n > 0 && o->noise % 8 ? t->entries[i]->owner : owner_of(o);
    uint32_t length = o->noise / 8 % 8 ? text->n : text->n / 2;
    static int32_t tokens[TWIN_MAX_TOKENS];
    memcpy(tokens, text->tokens, length * sizeof *tokens);
    ramet_status status = ramet_tree_unpin(p->cache, owner_name(owner), tokens, length, &error);
    op_agrees(o, status, &error, twin_unpin(p->twin, owner, tokens, length));
}

/* ---- matching ---- */

/* A query made from the tokens of some context or entry: cut, with one token changed, with some appended. */
static uint32_t draw_query(const pair *p, const op *o, int32_t *out) {
    uint64_t rng = op_rng(o);
    uint32_t from = o->a % (TWIN_MAX_CONTEXTS + 2 * p->twin->n_entries);
    const twin_text *text = from < TWIN_MAX_CONTEXTS
                                ? &p->twin->contexts[from].text
                                : &p->twin->entries[(from - TWIN_MAX_CONTEXTS) % p->twin->n_entries]->text;
    uint32_t n = ramet_min_u32(o->b, text->n);
    memcpy(out, text->tokens, n * sizeof *out);
    if (n > 0 && lockstep_below(&rng, 3) == 0) out[lockstep_below(&rng, n)] = 1 + (int32_t)lockstep_below(&rng, 3);
    uint32_t more = lockstep_below(&rng, 3) ? 0 : lockstep_below(&rng, 20);
    more = ramet_min_u32(more, p->setup.n_ctx - n);
    draw_tokens(p, &rng, out + n, more);
    return n + more;
}

void op_match(pair *p, const op *o) {
    ramet_error error = {0};
    static int32_t tokens[TWIN_MAX_TOKENS];
    uint32_t n = draw_query(p, o, tokens), matched, owner = owner_of(o);
    ramet_alloc_fail_after(o->fail_after);
    ramet_status status =
        ramet_tree_match(p->cache, owner_name(owner), tokens, n, &p->contexts[o->context], &matched, &error);
    if (op_lacks_memory(o, status) || !op_agrees(o, status, &error, RAMET_OK)) return;
    uint32_t should = twin_match(p->twin, owner, tokens, n, &p->twin->contexts[o->context]);
    require(matched == should, "match: %u of %u tokens, the twin %u (K6, K12)", matched, n, should);
}

/* ---- going ---- */

void op_evict(pair *p) {
    ramet_cache_lock(p->cache);
    bool has_gone = ramet_tree_evict(p->cache);
    ramet_cache_unlock(p->cache);
    require(has_gone == twin_evict(p->twin), "an entry is evicted by one alone");
}

void op_trim(pair *p) {
    ramet_cache_lock(p->cache);
    ramet_table_trim_pool(p->cache, 0);
    for (int kind = 0; kind < RAMET_KINDS; kind++) ramet_slab_trim(&p->cache->blocks[kind].slab, 0);
    ramet_cache_unlock(p->cache);
}

void op_clear(pair *p) {
    ramet_tree_clear(p->cache);
    twin_clear(p->twin);
}
