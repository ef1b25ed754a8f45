/* run.c - see lockstep.h: each operation, done to ramet and to the twin; what both answer must agree. */
#include "lockstep/run.h"

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
    if (!p->held_by[i]) op_leave(p, i);
}

/* ---- rows, tokens ---- */

uint64_t op_rng(const op *o) {
    return (o->noise + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Few different tokens and long equal runs, so that prefixes meet. */
void draw_tokens(const pair *p, uint64_t *rng, int32_t *out, uint32_t n) {
    static const int32_t plain[] = {7, 3, 0, 5}, wild[] = {7, -3, 0, 50000};
    uint32_t noise = lockstep_below(rng, 3) == 0 ? 2 : 60;
    for (uint32_t i = 0; i < n; i++)
        out[i] = lockstep_below(rng, noise) ? 7 : (p->setup.is_wild ? wild : plain)[lockstep_below(rng, 4)];
}

static void write_rows(pair *p, uint64_t *rng, uint32_t i, uint32_t pos, uint32_t n) {
    uint32_t page_tokens = p->layout.page_tokens;
    uint8_t *rows = p->twin->contexts[i].text.rows;
    for (size_t k = 0; k < n * p->layout.row_bytes; k += 8) { /* rows are multiples of 8 bytes */
        uint64_t random = lockstep_random(rng);
        memcpy(rows + pos * p->layout.row_bytes + k, &random, 8);
    }
    for (uint32_t end = pos + n, run; pos < end; pos += run) {
        run = ramet_min_u32(page_tokens - pos % page_tokens, end - pos);
        ramet_kv_import(&p->layout, ramet_context_page_write(p->contexts[i], pos), pos % page_tokens, run,
                        rows + pos * p->layout.row_bytes);
    }
}

/* ---- contexts ---- */

static void do_create(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    if (!BOTH(ramet_cache_context_create(p->cache, &p->contexts[o->context], &error), RAMET_OK)) return;
    twin_close(&p->twin->contexts[o->context]);
    p->twin->contexts[o->context].is_open = true;
}

/* A step as an engine makes it; some without a tail. */
static void do_extend(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    uint32_t i = o->context, n = ramet_min_u32(o->b, o->a);
    twin_context *c = &p->twin->contexts[i];
    bool has_tail = o->noise & 1;
    if (has_tail && !op_reserve(p, o)) return;
    if (!ROOM(ramet_context_writable(p->contexts[i], o->a, &error), twin_wanted(p->twin, c, c->text.n, o->a),
              twin_writable(p->twin, c, o->a)))
        return;
    static int32_t tokens[TWIN_MAX_TOKENS];
    uint64_t rng = op_rng(o);
    draw_tokens(p, &rng, tokens, n);
    write_rows(p, &rng, i, c->text.n, n);
    has_tail = has_tail && c->text.n + n > 0;
    const uint8_t *state = has_tail ? op_write_state(p, o) : NULL;
    ramet_context_commit(p->contexts[i], tokens, n);
    twin_commit(p->twin, c, tokens, n);
    op_install_state(p, o, state);
    if (has_tail) op_write_logits(p, o);
    require(!has_tail || ramet_context_has_logits(p->contexts[i]), "no row of logits after one was reserved");
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
    twin_context *c = &p->twin->contexts[o->context];
    if (ROOM(ramet_context_rewrite(p->contexts[o->context], o->a, o->b, &error), twin_wanted(p->twin, c, o->a, o->b),
             twin_rewrite(p->twin, c, o->a, o->b)))
        write_rows(p, &rng, o->context, o->a, o->b);
}

void pair_shed_ahead(pair *p, uint32_t i, ramet_status status) {
    uint64_t reachable, exclusive;
    ramet_context_count_pages(p->contexts[i], &reachable, &exclusive);
    twin_context *c = &p->twin->contexts[i];
    if (status == RAMET_E_NO_MEMORY && reachable < c->text.n_pages) twin_cut(p->twin, c, c->text.n);
}

static bool do_fork(pair *p, const op *o) {
    ramet_error error = {0};
    ramet_status status;
    twin_context *c = &p->twin->contexts[o->context];
    bool done = BOTH(ramet_context_share(p->contexts[o->context], &p->contexts[o->other], &error),
                     twin_share(p->twin, c, &p->twin->contexts[o->other]));
    pair_shed_ahead(p, o->context, status);
    return done;
}

static void do_close(pair *p, uint32_t i) {
    ramet_context *closed = p->contexts[i];
    ramet_context_destroy(&p->contexts[i]);
    require(ramet_context_enter(closed, NULL) == RAMET_E_BUSY, "a closed context can be entered");
    twin_close(&p->twin->contexts[i]);
    p->held_by[i] = 0;
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

/* ---- one of them ---- */

static bool needs_use(uint32_t kind) {
    return kind == OP_EXTEND || kind == OP_REWRITE || kind == OP_LOGITS || kind == OP_RESERVE_TAIL || kind == OP_HOLD ||
           kind == OP_SNAPSHOT || kind == OP_USE;
}

static void run_on_context(pair *p, const op *o) {
    uint32_t i = o->context;
    bool can = !needs_use(o->kind) || op_use(p, o);
    switch (can ? o->kind : N_OP_KINDS) {
    case OP_FORK: do_fork(p, o); break;
    case OP_CLOSE: do_close(p, i); return;
    case OP_EXTEND: do_extend(p, o); break;
    case OP_REWRITE: do_rewrite(p, o); break;
    case OP_CUT: do_cut(p, o); break;
    case OP_CUT_EVERYWHERE: do_cut_everywhere(p, o); break;
    case OP_LOGITS: op_write_logits(p, o); break;
    case OP_RESERVE_TAIL: op_reserve_tail(p, o); break;
    case OP_HOLD: op_hold(p, o); break;
    case OP_RETAIN: op_retain(p, o); break;
    case OP_SPILL: op_spill(p, o); break;
    case OP_SNAPSHOT: op_snapshot(p, o); break;
    case OP_USE:
    case OP_ENTER: p->held_by[i] = o->owner; break;
    case OP_LEAVE: p->held_by[i] = 0; break;
    default: break;
    }
    leave(p, i);
}

static bool applies(const pair *p, const op *o) {
    bool is_open = p->contexts[o->context] != NULL;
    const twin_context *c = &p->twin->contexts[o->context];
    bool has_file = o->other < TWIN_MAX_FILES && p->twin->files[o->other].exists;
    switch (o->kind) {
    case OP_CREATE:
    case OP_MATCH: return !is_open;
    case OP_UNPIN:
    case OP_EVICT:
    case OP_TRIM:
    case OP_CLEAR: return true;
    case OP_LOGITS: /* after the last token */
    case OP_RESERVE_TAIL: return is_open && c->text.n > 0;
    case OP_FORK:
    case OP_CUT_EVERYWHERE: return is_open && !p->contexts[o->other];
    case OP_USE:
    case OP_SPILL: return is_open && !c->is_used;
    case OP_SNAPSHOT: return is_open && o->other < TWIN_MAX_FILES && !p->setup.is_wild;
    case OP_RESTORE: return !is_open && has_file;
    case OP_CARRY:
    case OP_DAMAGE: return has_file;
    default: return is_open;
    }
}

static void run_any(pair *p, const op *o) {
    switch (o->kind) {
    case OP_CREATE: do_create(p, o); break;
    case OP_MATCH: op_match(p, o); break;
    case OP_UNPIN: op_unpin(p, o); break;
    case OP_EVICT: op_evict(p); break;
    case OP_CLEAR: op_clear(p); break;
    case OP_TRIM: op_trim(p); break;
    case OP_RESTORE: op_restore(p, o); break;
    case OP_CARRY: op_carry(p, o); break;
    case OP_DAMAGE: op_damage(p, o); break;
    default:
        if (enter(p, o, o->context)) run_on_context(p, o);
        break;
    }
}

bool op_run(pair *p, const op *o) {
    if (!applies(p, o)) return false;
    walk_pager_begin(&p->pager, o->fault, o->noise);
    run_any(p, o);
    walk_pager_end(&p->pager);
    return true;
}
