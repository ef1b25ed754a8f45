/* run_use.c - see lockstep.h: the operations around use: what comes back and goes out for it, and the tail, which is
 * written by whoever uses. */
#include "lockstep/run.h"

#include <string.h>

/* ---- blocks that move ---- */

void pair_begin_room(pair *p) {
    p->pager.may_move = p->setup.has_pager;
}

void pair_end_room(pair *p) {
    ramet_engine_stats stats;
    p->pager.may_move = false;
    if (!p->setup.has_pager) return;
    ramet_cache_get_stats(p->cache, &stats);
    while (p->twin->n_evictions < stats.tree_evictions) {
        require(p->pager.has_write_failed, "an entry is evicted where blocks can be written out");
        require(twin_evict(p->twin), "more entries are evicted than there are");
    }
}

/* Room that there is, and that there would be without the entries of the tree, pinned ones excepted. */
static uint64_t room_without_tree(const ramet_cache *cache) {
    uint64_t bytes = cache->options.budget_bytes - ramet_memory_bytes(cache);
    for (int kind = 0; kind < RAMET_KINDS; kind++)
        for (uint32_t id = 0; id < cache->blocks[kind].n_touched; id++) {
            const ramet_block *block = ramet_blocks_at(&cache->blocks[kind], id);
            bool is_the_trees = block->counts.refcount > 0 && block->counts.holds[RAMET_BY_CONTEXTS] == 0;
            if (is_the_trees && block->slot != RAMET_NO_SLOT) bytes += cache->blocks[kind].bytes;
        }
    return bytes;
}

bool op_lacks_disk(pair *p, const op *o, ramet_status status, uint64_t wanted_bytes) {
    if (status != RAMET_E_NO_DISK) return false;
    require(p->pager.has_write_failed, "%s: no disk, and none was taken away", op_name(o->kind));
    require(wanted_bytes > room_without_tree(p->cache), "%s: no disk, and there are entries to go", op_name(o->kind));
    lockstep_now->n_without_disk++;
    return true;
}

/* ---- use ---- */

typedef struct missing {
    uint64_t name;
    uint32_t block; /* the twin's identity of it */
} missing;

/* What is written out of the context: the pager has only names. */
static uint32_t list_missing(const pair *p, uint32_t i, missing out[TWIN_MAX_PAGES + TWIN_TAILS], uint64_t *out_bytes) {
    uint32_t n = 0;
    *out_bytes = 0;
    for (uint32_t k = 0; p->setup.has_pager && k < ramet_context_n_blocks(p->contexts[i]); k++) {
        const ramet_block *block = ramet_context_block(p->contexts[i], k);
        if (!block || block->slot != RAMET_NO_SLOT) continue;
        out[n++] = (missing){block->name, twin_block_at(&p->twin->contexts[i], k)};
        *out_bytes += p->cache->blocks[block->kind].bytes;
    }
    return n;
}

static void learn_losses(pair *p, const missing *was_out, uint32_t n) {
    for (uint32_t i = 0; i < p->pager.n_lost; i++) {
        uint32_t k = 0;
        while (k < n && was_out[k].name != p->pager.lost[i].name) k++;
        require(k < n, "K9: a block is read that the context does not need");
        p->twin->blocks[was_out[k].block].lost = p->pager.lost[i].status;
    }
}

bool op_use(pair *p, const op *o) {
    uint32_t i = o->context;
    twin_context *c = &p->twin->contexts[i];
    ramet_error error = {0};
    missing was_out[TWIN_MAX_PAGES + TWIN_TAILS];
    if (c->is_used) return true;
    uint64_t n_moved = p->pager.n_written + p->pager.n_read;
    uint64_t out_bytes;
    uint32_t n_out = list_missing(p, i, was_out, &out_bytes);
    pair_begin_room(p);
    ramet_status status = ramet_context_use(p->contexts[i], &error);
    pair_end_room(p);
    learn_losses(p, was_out, n_out);
    bool is_retriable = p->pager.has_read_failed && p->pager.n_lost == 0 && status == RAMET_E_NO_MEMORY;
    if (is_retriable || op_lacks_disk(p, o, status, out_bytes)) {
        lockstep_now->n_refused++;
        return false;
    }
    require(!p->pager.has_read_failed || p->pager.n_lost > 0, "use: a read failed, and it got %s",
            ramet_status_name(status));
    require(status != RAMET_E_BUDGET || n_moved == p->pager.n_written + p->pager.n_read,
            "use: blocks are moved for what has no room");
    return op_agrees(o, status, &error, twin_use(p->twin, c));
}

void op_leave(pair *p, uint32_t i) {
    ramet_context_leave(p->contexts[i]);
    twin_leave(p->twin, &p->twin->contexts[i]);
}

/* ---- out ---- */

/* Blocks of the context that nobody uses and that are in memory: two places may have the same one. */
static uint32_t count_idle(const pair *p, uint32_t i) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < ramet_context_n_blocks(p->contexts[i]); k++) {
        const ramet_block *block = ramet_context_block(p->contexts[i], k);
        n += block && block->slot != RAMET_NO_SLOT &&
             twin_n_users(p->twin, twin_block_at(&p->twin->contexts[i], k)) == 0;
    }
    return n;
}

void op_spill(pair *p, const op *o) {
    ramet_error error = {0};
    uint32_t i = o->context;
    twin_context *c = &p->twin->contexts[i];
    uint64_t n_written = p->pager.n_written;
    ramet_alloc_fail_after(o->fail_after);
    pair_begin_room(p);
    ramet_status status = ramet_context_write_out(p->contexts[i], &error);
    pair_end_room(p);
    pair_shed_ahead(p, i, status);
    if (op_lacks_memory(o, status)) return;
    ramet_status should = twin_write_out(p->twin, c);
    if (status == RAMET_E_NO_DISK) {
        require(p->pager.has_write_failed && should == RAMET_OK, "spill: no disk, and none was taken away");
        lockstep_now->n_without_disk++;
        return;
    }
    if (!op_agrees(o, status, &error, should)) return;
    twin_count(p->twin);
    require(count_idle(p, i) == 0, "spill: %u blocks that nobody uses are still in memory", count_idle(p, i));
    require(p->pager.n_written - n_written <= twin_n_blocks(c), "spill: more is written out than the context reaches");
}

/* ---- the tail ---- */

/* Each kind for itself: of two one may be there although there was no room for the other. */
bool op_reserve(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    twin_context *c = &p->twin->contexts[o->context];
    bool had_row = c->spare[TWIN_LOGITS] != 0;
    uint64_t row_bytes = p->cache->blocks[RAMET_LOGITS].bytes, state_bytes = p->cache->blocks[RAMET_STATE].bytes;
    if (ROOM(ramet_context_reserve_tail(p->contexts[o->context], &error),
             row_bytes > state_bytes ? row_bytes : state_bytes, twin_reserve_tail(p->twin, c)))
        return true;
    bool has_row = p->contexts[o->context]->spare[RAMET_TAIL_OF(RAMET_LOGITS)] != NULL;
    if (status == RAMET_E_NO_DISK && has_row && !had_row) twin_take_spare(p->twin, c, TWIN_LOGITS);
    return false;
}

void op_write_logits(pair *p, const op *o) {
    ramet_engine_stats stats;
    uint64_t rng = op_rng(o) + 1;
    twin_context *c = &p->twin->contexts[o->context];
    ramet_cache_get_stats(p->cache, &stats);
    bool has_room = TWIN_VOCAB * sizeof(float) <= p->twin->options.budget_bytes - stats.memory_bytes;
    ramet_alloc_fail_after(1); /* it takes nothing but room */
    float *row = ramet_context_logits_writable(p->contexts[o->context]);
    ramet_alloc_fail_after(0);
    require(twin_logits_writable(p->twin, c, has_room) == (row != NULL), "a row of logits is %s",
            row ? "there" : "missing");
    for (uint32_t v = 0; row && v < TWIN_VOCAB; v++) row[v] = c->text.logits[v] = (float)lockstep_below(&rng, 1000);
}

/* NULL: there are none. */
const uint8_t *op_write_state(pair *p, const op *o) {
    static uint8_t new[TWIN_MAX_STATE];
    const twin_context *c = &p->twin->contexts[o->context];
    uint64_t rng = op_rng(o) + 2;
    if (p->setup.state_bytes == 0) return NULL;
    for (uint32_t i = 0; i < p->setup.state_bytes; i++) new[i] = (uint8_t)lockstep_random(&rng);
    memcpy(ramet_context_state_writable(p->contexts[o->context]), new, p->setup.state_bytes);
    const uint8_t *old = ramet_context_peek_state(p->contexts[o->context]);
    require(!old == (c->text.tail[TWIN_STATE] == 0), "K10: the old state is %s", old ? "there" : "gone");
    require(!old || memcmp(old, c->text.state, p->setup.state_bytes) == 0, "K10: the old state is another one");
    return new;
}

void op_install_state(pair *p, const op *o, const uint8_t *state) {
    if (!state) return;
    ramet_context_state_install(p->contexts[o->context]);
    twin_install_state(p->twin, &p->twin->contexts[o->context], state);
}

/* After it a tail of the same tokens cannot fail; some leave it at that. */
void op_reserve_tail(pair *p, const op *o) {
    if (!op_reserve(p, o) || o->noise & 1) return;
    op_install_state(p, o, op_write_state(p, o));
    op_write_logits(p, o);
    require(ramet_context_has_logits(p->contexts[o->context]), "no row of logits after one was reserved");
}

void op_hold(pair *p, const op *o) {
    twin_context *c = &p->twin->contexts[o->context];
    const float *row = ramet_context_hold_logits(p->contexts[o->context]);
    require(!row == (c->text.tail[TWIN_LOGITS] == 0), "logits to hold are %s", row ? "there" : "missing");
    p->held_logits[o->context] = row;
    c->holds_logits = row != NULL;
}
