/* op.c - see lockstep.h: operations as text, and how the next one is drawn. */
#include "lockstep/lockstep.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t weight;
} kinds[] = {
#define LOCKSTEP_ROW(kind, name, weight) {name, weight},
    LOCKSTEP_KINDS(LOCKSTEP_ROW)
#undef LOCKSTEP_ROW
};

/* ---- text ---- */

const char *op_name(uint32_t kind) {
    return kind < N_OP_KINDS ? kinds[kind].name : "nothing";
}

void op_print(const op *o, FILE *out) {
    fprintf(out, "%-14s owner %u context %u other %u fail %u fault %u a %u b %u noise %u\n", op_name(o->kind), o->owner,
            o->context, o->other, o->fail_after, o->fault, o->a, o->b, o->noise);
}

void op_list_print(const op_list *list, FILE *out) {
    fprintf(out, "seed %llu\n", (unsigned long long)list->seed);
    for (uint32_t i = 0; i < list->n; i++) op_print(&list->ops[i], out);
}

static bool op_read(const char *line, op *o) {
    char name[32];
    if (sscanf(line, "%31s owner %u context %u other %u fail %u fault %u a %u b %u noise %u", name, &o->owner,
               &o->context, &o->other, &o->fail_after, &o->fault, &o->a, &o->b, &o->noise) != 9)
        return false;
    for (o->kind = 0; o->kind < N_OP_KINDS && strcmp(name, kinds[o->kind].name) != 0;) o->kind++;
    return o->kind < N_OP_KINDS && o->owner >= 1 && o->owner <= LOCKSTEP_OWNERS && o->context < TWIN_MAX_CONTEXTS &&
           o->other < TWIN_MAX_CONTEXTS;
}

/* Lines that are no operation are passed over: what a failing run prints can be given as it is. */
bool op_list_read(FILE *in, op_list *out) {
    char line[256];
    bool has_seed = false;
    out->n = 0;
    while (fgets(line, sizeof line, in) && out->n < LOCKSTEP_MAX_OPS) {
        unsigned long long seed;
        if (sscanf(line, "seed %llu", &seed) == 1) {
            out->seed = seed;
            has_seed = true;
        } else {
            out->n += op_read(line, &out->ops[out->n]);
        }
    }
    return has_seed && out->n > 0;
}

/* ---- drawing ---- */

uint64_t lockstep_random(uint64_t *rng) {
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng * UINT64_C(0x2545f4914f6cdd1d);
}

uint32_t lockstep_below(uint64_t *rng, uint32_t n) {
    return (uint32_t)((lockstep_random(rng) >> 33) % n);
}

static uint32_t draw_kind(uint64_t *rng) {
    if (lockstep_below(rng, 150) == 0) { /* the dear ones and the radical one */
        static const uint32_t rare[] = {OP_CUT_EVERYWHERE, OP_CARRY, OP_CLEAR};
        return rare[lockstep_below(rng, 3)];
    }
    uint32_t sum = 0, kind = 0;
    for (uint32_t i = 0; i < N_OP_KINDS; i++) sum += kinds[i].weight;
    uint32_t what = lockstep_below(rng, sum);
    for (; what >= kinds[kind].weight; kind++) what -= kinds[kind].weight;
    return kind;
}

/* Small, or at a page boundary, one before or one after, or where a table gets taller, or anything. */
static uint32_t draw_length(uint64_t *rng, uint32_t page_tokens, uint32_t max) {
    uint32_t n;
    switch (lockstep_below(rng, 5)) {
    case 0: n = lockstep_below(rng, 4); break;
    case 1: n = lockstep_below(rng, 5) * page_tokens + lockstep_below(rng, 3); break;
    case 2: n = (lockstep_below(rng, 4) + 1) * page_tokens - 1; break;
    case 3: n = (RAMET_FAN_OUT - 1 + lockstep_below(rng, 3)) * page_tokens + lockstep_below(rng, 2); break;
    default: n = lockstep_below(rng, max + 1); break;
    }
    return ramet_min_u32(n, max);
}

/* The next one from a random one on that is open, or is not; or the random one. */
static uint32_t draw_context(const pair *p, uint64_t *rng, bool is_open) {
    uint32_t first = lockstep_below(rng, TWIN_MAX_CONTEXTS);
    for (uint32_t k = 0; k < TWIN_MAX_CONTEXTS; k++) {
        uint32_t i = (first + k) % TWIN_MAX_CONTEXTS;
        if (!p->contexts[i] == !is_open) return i;
    }
    return first;
}

static void draw_lengths(const pair *p, uint64_t *rng, op *o) {
    uint32_t page_tokens = p->setup.page_tokens, length = p->twin->contexts[o->context].text.n;
    switch (o->kind) {
    case OP_EXTEND: /* b: fewer than were made writable, perhaps none */
        o->a = draw_length(rng, page_tokens, p->setup.n_ctx / (1 + lockstep_below(rng, p->setup.is_long ? 2 : 8)) + 1);
        o->b = lockstep_below(rng, 6) == 0 ? lockstep_below(rng, o->a + 1) : o->a;
        break;
    case OP_CUT:
        o->a = lockstep_below(rng, 12) == 0 ? length + lockstep_below(rng, 2) : draw_length(rng, page_tokens, length);
        break;
    case OP_REWRITE:
        o->a = lockstep_below(rng, length + 1);
        o->b = draw_length(rng, page_tokens, length - o->a) + (lockstep_below(rng, 20) == 0);
        break;
    default: /* a query: whose tokens, and how many of them; a damage: which byte, which bit */
        o->a = lockstep_below(rng, 1 << 20);
        o->b = lockstep_below(rng, 3) ? UINT32_MAX : lockstep_below(rng, p->setup.n_ctx + 1);
        break;
    }
}

op op_draw(const pair *p, uint64_t *rng) {
    op o = {.kind = draw_kind(rng)};
    bool makes = o.kind == OP_CREATE || o.kind == OP_MATCH || o.kind == OP_RESTORE;
    o.context = draw_context(p, rng, !makes);
    if (!makes && !p->contexts[o.context]) o.kind = OP_CREATE; /* none is open */
    bool is_full = p->contexts[draw_context(p, rng, false)] != NULL;
    if (is_full && (makes || o.kind == OP_FORK)) o.kind = OP_CLOSE;
    bool forks = o.kind == OP_FORK || o.kind == OP_CUT_EVERYWHERE;
    o.other = forks ? draw_context(p, rng, false) : lockstep_below(rng, TWIN_MAX_FILES);
    /* Most calls come from whoever is inside, and nobody stays there for long. */
    uint32_t holder = p->held_by[o.context];
    if (holder && lockstep_below(rng, 6) == 0) o.kind = OP_LEAVE;
    o.owner = holder && lockstep_below(rng, 3) ? holder : 1 + lockstep_below(rng, LOCKSTEP_OWNERS);
    if (p->twin->contexts[o.context].lost && lockstep_below(rng, 2)) o.kind = OP_CLOSE; /* there is not much else */
    if (p->setup.injects && lockstep_below(rng, 6) == 0) o.fail_after = 1 + lockstep_below(rng, 6);
    if (p->setup.injects && p->setup.has_pager && lockstep_below(rng, 6) == 0) o.fault = walk_pager_draw(rng);
    draw_lengths(p, rng, &o);
    o.noise = (uint32_t)(lockstep_random(rng) >> 32);
    return o;
}
