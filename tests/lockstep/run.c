/* run.c - see lockstep.h: each operation, done to ramet and to the twin; what both answer must agree. */
#include "lockstep/run.h"

#include <stdlib.h>
#include <string.h>

/* ---- both ---- */

bool op_agrees(const op *o, ramet_status is, const ramet_error *error, ramet_status should) {
    require(is == should, "%s: got %s (%s), the twin got %s", op_name(o->kind), ramet_status_name(is), error->message,
            ramet_status_name(should));
    lockstep_now->n_refused += is != RAMET_OK;
    return is == RAMET_OK;
}

bool op_lacks_memory(const op *o, ramet_status status) {
    ramet_alloc_fail_after(0);
    if (status != RAMET_E_NO_MEMORY) return false;
    require(o->fail_after > 0, "%s: no memory, and none was taken away", op_name(o->kind));
    lockstep_now->n_without_memory++;
    return true;
}

/* One owner at a time: everybody who knocks while somebody is inside is refused, also the one who is inside. False: it
 * is another one, and the operation must not happen. */
static bool enter(pair *p, const op *o, uint32_t i) {
    ramet_error error = {0};
    ramet_status status = ramet_context_enter(p->contexts[i], &error);
    require(status == (p->held_by[i] ? RAMET_E_BUSY : RAMET_OK), "%s: entering a context that owner %u holds gets %s",
            op_name(o->kind), p->held_by[i], ramet_status_name(status));
    bool is_refused = p->held_by[i] && p->held_by[i] != o->owner;
    lockstep_now->n_busy += is_refused;
    return !is_refused;
}

static void leave(pair *p, uint32_t i) {
    if (!p->held_by[i]) ramet_context_leave(p->contexts[i]);
}

/* ---- rows, tokens ---- */

uint64_t op_rng(const op *o) {
    return (o->noise + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Few different tokens and long equal runs, so that prefixes meet. */
static void draw_tokens(const pair *p, uint64_t *rng, int32_t *out, uint32_t n) {
    static const int32_t plain[] = {7, 3, 0, 5}, wild[] = {7, -3, 0, 50000};
    uint32_t noise = lockstep_below(rng, 3) == 0 ? 2 : 60;
    for (uint32_t i = 0; i < n; i++)
        out[i] = lockstep_below(rng, noise) ? 7 : (p->setup.is_wild ? wild : plain)[lockstep_below(rng, 4)];
}

void pair_put_rows(pair *p, uint32_t i, uint32_t pos, uint32_t n) {
    uint32_t page_tokens = p->layout.page_tokens;
    const uint8_t *rows = p->twin->contexts[i].text.rows;
    for (uint32_t end = pos + n, run; pos < end; pos += run) {
        run = ramet_min_u32(page_tokens - pos % page_tokens, end - pos);
        ramet_kv_import(&p->layout, ramet_context_page_write(p->contexts[i], pos), pos % page_tokens, run,
                        rows + pos * p->layout.row_bytes);
    }
}

static void write_rows(pair *p, uint64_t *rng, uint32_t i, uint32_t pos, uint32_t n) {
    uint8_t *rows = p->twin->contexts[i].text.rows + pos * p->layout.row_bytes;
    for (size_t k = 0; k < n * p->layout.row_bytes; k += 8) { /* rows are multiples of 8 bytes */
        uint64_t random = lockstep_random(rng);
        memcpy(rows + k, &random, 8);
    }
    pair_put_rows(p, i, pos, n);
}

/* ---- contexts ---- */

static void do_create(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    if (BOTH(ramet_cache_context_create(p->cache, &p->contexts[o->context], &error), RAMET_OK))
        p->twin->contexts[o->context] = (twin_context){.is_open = true};
}

static void do_logits(pair *p, const op *o) {
    uint64_t rng = op_rng(o) + 1;
    ramet_alloc_fail_after(o->fail_after);
    float *row = ramet_context_logits_writable(p->contexts[o->context]);
    twin_context *c = &p->twin->contexts[o->context];
    c->text.row = 0;
    if (op_lacks_memory(o, row ? RAMET_OK : RAMET_E_NO_MEMORY)) return;
    twin_logits_writable(p->twin, c);
    for (uint32_t v = 0; v < TWIN_VOCAB; v++) row[v] = c->text.logits[v] = (float)lockstep_below(&rng, 1000);
}

/* After it a row of logits cannot fail; some are left in reserve. */
static void do_reserve_logits(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    if (!BOTH(ramet_context_reserve_logits(p->contexts[o->context], &error), RAMET_OK)) return;
    if (o->noise & 1) return;
    ramet_alloc_fail_after(1);
    const float *row = ramet_context_logits_writable(p->contexts[o->context]);
    ramet_alloc_fail_after(0);
    require(row, "no row of logits after one was reserved");
    op plain = *o;
    plain.fail_after = 0;
    do_logits(p, &plain);
}

static void do_extend(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    uint32_t i = o->context, n = ramet_min_u32(o->b, o->a);
    twin_context *c = &p->twin->contexts[i];
    if (!BOTH(ramet_context_writable(p->contexts[i], o->a, &error), twin_writable(p->twin, c, o->a))) return;
    static int32_t tokens[TWIN_MAX_TOKENS];
    uint64_t rng = op_rng(o);
    draw_tokens(p, &rng, tokens, n);
    write_rows(p, &rng, i, c->text.n, n);
    ramet_context_commit(p->contexts[i], tokens, n);
    twin_commit(p->twin, c, tokens, n);
    if (c->text.n > 0 && o->noise & 1) do_logits(p, o);
}

static void do_cut(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    (void)BOTH(ramet_context_cut(p->contexts[o->context], o->a, &error),
               twin_cut(p->twin, &p->twin->contexts[o->context], o->a));
}

static void do_rewrite(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    uint64_t rng = op_rng(o);
    if (BOTH(ramet_context_rewrite(p->contexts[o->context], o->a, o->b, &error),
             twin_rewrite(p->twin, &p->twin->contexts[o->context], o->a, o->b)))
        write_rows(p, &rng, o->context, o->a, o->b);
}

/* ramet keeps shedding pages made writable ahead apart from the rest: it has happened even when the fork then fails. */
static void shed_ahead(pair *p, uint32_t i, ramet_status status) {
    uint64_t reachable, exclusive;
    ramet_context_count_pages(p->contexts[i], &reachable, &exclusive);
    twin_context *c = &p->twin->contexts[i];
    if (status == RAMET_E_NO_MEMORY && !c->is_spilled && reachable < c->text.n_pages) twin_cut(p->twin, c, c->text.n);
}

static bool do_fork(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    twin_context *c = &p->twin->contexts[o->context];
    bool done = BOTH(ramet_context_share(p->contexts[o->context], &p->contexts[o->other], &error),
                     twin_share(p->twin, c, &p->twin->contexts[o->other]));
    shed_ahead(p, o->context, status);
    return done;
}

static void do_close(pair *p, uint32_t i) {
    if (p->how[i] != DROPPED) ramet_store_forget_spill(p->contexts[i]); /* that one has no file */
    ramet_context *closed = p->contexts[i];
    ramet_context_destroy(&p->contexts[i]);
    require(ramet_context_enter(closed, NULL) == RAMET_E_BUSY, "a closed context can be entered");
    p->twin->contexts[i].is_open = false;
    p->held_by[i] = 0;
    p->how[i] = RESIDENT;
}

/* A fork, shorter by one token at a time. */
static void do_cut_everywhere(pair *p, const op *o) {
    if (!do_fork(p, o)) return;
    op cut = {.kind = OP_CUT, .context = o->other};
    for (cut.a = p->twin->contexts[o->other].text.n; cut.a-- > 0;) {
        do_cut(p, &cut);
        pair_require_equal(p);
    }
    do_close(p, o->other);
}

/* ---- the tree ---- */

static void do_retain(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    (void)BOTH(ramet_tree_retain(p->contexts[o->context], &error),
               twin_retain(p->twin, &p->twin->contexts[o->context]));
    shed_ahead(p, o->context, status);
}

/* A query made from the tokens of some context or entry: cut, with one token changed, with some appended. */
static uint32_t draw_query(const pair *p, const op *o, int32_t *out) {
    uint64_t rng = op_rng(o);
    uint32_t from = o->a % (TWIN_MAX_CONTEXTS + 2 * p->twin->n_entries);
    const twin_text *text = from < TWIN_MAX_CONTEXTS
                                ? &p->twin->contexts[from].text
                                : p->twin->entries[(from - TWIN_MAX_CONTEXTS) % p->twin->n_entries];
    uint32_t n = ramet_min_u32(o->b, text->n);
    memcpy(out, text->tokens, n * sizeof *out);
    if (n > 0 && lockstep_below(&rng, 3) == 0) out[lockstep_below(&rng, n)] = 1 + (int32_t)lockstep_below(&rng, 3);
    uint32_t more = lockstep_below(&rng, 3) ? 0 : lockstep_below(&rng, 20);
    more = ramet_min_u32(more, p->setup.n_ctx - n);
    draw_tokens(p, &rng, out + n, more);
    return n + more;
}

static void do_match(pair *p, const op *o) {
    ramet_error error = {0};
    static int32_t tokens[TWIN_MAX_TOKENS];
    uint32_t n = draw_query(p, o, tokens), matched, should = 0;
    ramet_alloc_fail_after(o->fail_after);
    ramet_status status = ramet_tree_match(p->cache, tokens, n, &p->contexts[o->context], &matched, &error);
    if (op_lacks_memory(o, status) || !op_agrees(o, status, &error, RAMET_OK)) return;
    should = twin_match(p->twin, tokens, n, &p->twin->contexts[o->context]);
    require(matched == should, "match: %u of %u tokens, the twin %u", matched, n, should);
}

static void do_evict(pair *p) {
    ramet_cache_lock(p->cache);
    if (p->cache->tree.oldest) ramet_tree_evict_oldest(p->cache);
    ramet_cache_unlock(p->cache);
    if (p->twin->n_entries > 0) twin_evict_oldest(p->twin);
}

static void do_trim(pair *p) {
    ramet_cache_lock(p->cache);
    ramet_table_trim_pool(p->cache, 0);
    ramet_row_trim_pool(p->cache, 0);
    ramet_cache_unlock(p->cache);
}

static void do_clear(pair *p) {
    ramet_tree_clear(p->cache);
    twin_clear(p->twin);
}

/* ---- one of them ---- */

static void run_on_context(pair *p, const op *o) {
    uint32_t i = o->context;
    switch (o->kind) {
    case OP_FORK: do_fork(p, o); break;
    case OP_CLOSE: do_close(p, i); return;
    case OP_EXTEND: do_extend(p, o); break;
    case OP_REWRITE: do_rewrite(p, o); break;
    case OP_CUT: do_cut(p, o); break;
    case OP_CUT_EVERYWHERE: do_cut_everywhere(p, o); break;
    case OP_LOGITS: do_logits(p, o); break;
    case OP_RESERVE_LOGITS: do_reserve_logits(p, o); break;
    case OP_RETAIN: do_retain(p, o); break;
    case OP_DROP: op_drop(p, o); break;
    case OP_REFILL: op_refill(p, o); break;
    case OP_SPILL: op_spill(p, o); break;
    case OP_READ_BACK: op_read_back(p, o); break;
    case OP_SNAPSHOT: op_snapshot(p, o); break;
    case OP_LOSE: op_lose(p, o); break;
    case OP_ENTER: p->held_by[i] = o->owner; break;
    case OP_LEAVE: p->held_by[i] = 0; break;
    default: break;
    }
    leave(p, i);
}

static bool applies(const pair *p, const op *o) {
    bool is_open = p->contexts[o->context] != NULL;
    bool has_file = o->other < TWIN_MAX_FILES && p->twin->files[o->other].exists;
    switch (o->kind) {
    case OP_CREATE:
    case OP_MATCH: return !is_open;
    case OP_EVICT:
    case OP_TRIM:
    case OP_CLEAR: return true;
    case OP_LOGITS: /* after the last token */
    case OP_RESERVE_LOGITS: return is_open && p->twin->contexts[o->context].text.n > 0;
    case OP_FORK: return is_open && !p->contexts[o->other];
    case OP_CUT_EVERYWHERE: return is_open && !p->contexts[o->other] && p->how[o->context] == RESIDENT;
    case OP_REFILL: return is_open && p->how[o->context] != IN_A_FILE; /* whose bytes are in the file */
    case OP_LOSE: return is_open && p->how[o->context] == IN_A_FILE;
    case OP_SPILL: return is_open && !p->setup.is_wild;
    case OP_SNAPSHOT:
        return is_open && o->other < TWIN_MAX_FILES && !p->setup.is_wild && p->how[o->context] == RESIDENT;
    case OP_RESTORE: return !is_open && has_file;
    case OP_CARRY:
    case OP_DAMAGE: return has_file;
    default: return is_open;
    }
}

bool op_run(pair *p, const op *o) {
    if (!applies(p, o)) return false;
    switch (o->kind) {
    case OP_CREATE: do_create(p, o); break;
    case OP_MATCH: do_match(p, o); break;
    case OP_RESTORE: op_restore(p, o); break;
    case OP_EVICT: do_evict(p); break;
    case OP_CLEAR: do_clear(p); break;
    case OP_TRIM: do_trim(p); break;
    case OP_CARRY: op_carry(p, o); break;
    case OP_DAMAGE: op_damage(p, o); break;
    default:
        if (enter(p, o, o->context)) run_on_context(p, o);
        break;
    }
    return true;
}
