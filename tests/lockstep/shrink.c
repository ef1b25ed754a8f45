/* shrink.c - see lockstep.h: delta debugging. Parts of the list are left out, large ones first, as long as what is left
 * still fails, whatever with; then two contexts become one, and numbers are made small. */
#include "lockstep/lockstep.h"

#include <string.h>

enum { MAX_TRIES = 4000 };

typedef struct shrinking {
    op_list *best, candidate;
    lockstep_plant plant;
    lockstep_report *scratch;
    uint32_t n_tries;
} shrinking;

/* Keeps the candidate when it fails too. */
static bool try_candidate(shrinking *s) {
    if (s->n_tries == MAX_TRIES) return false;
    s->n_tries++;
    if (lockstep_replay(&s->candidate, s->plant, s->scratch)) return false;
    s->best->n = s->candidate.n;
    memcpy(s->best->ops, s->candidate.ops, s->candidate.n * sizeof(op));
    return true;
}

static bool try_without(shrinking *s, uint32_t from, uint32_t n) {
    const op_list *best = s->best;
    s->candidate.seed = best->seed;
    s->candidate.n = best->n - n;
    memcpy(s->candidate.ops, best->ops, from * sizeof(op));
    memcpy(s->candidate.ops + from, best->ops + from + n, (best->n - from - n) * sizeof(op));
    return try_candidate(s);
}

/* From the end on: what came before the failure is needed less often than what it is. */
static bool leave_out(shrinking *s, uint32_t part) {
    bool any = false;
    for (uint32_t end = s->best->n; end > 0;) {
        uint32_t n = ramet_min_u32(part, end);
        end -= n;
        any = try_without(s, end, n) || any;
    }
    return any;
}

static bool try_number(shrinking *s, uint32_t i, size_t field_off, uint32_t value) {
    uint32_t *field = (uint32_t *)(void *)((uint8_t *)&s->candidate.ops[i] + field_off);
    s->candidate.n = s->best->n;
    memcpy(s->candidate.ops, s->best->ops, s->best->n * sizeof(op));
    if (*field <= value) return false;
    *field = value;
    return try_candidate(s);
}

/* Each number: the least possible, or else half of it as often as that goes. */
static void make_small(shrinking *s) {
    static const struct {
        size_t off;
        uint32_t least;
    } fields[] = {{offsetof(op, fail_after), 0}, {offsetof(op, fault), 0}, {offsetof(op, owner), 1},
                  {offsetof(op, a), 0},          {offsetof(op, b), 0},     {offsetof(op, noise), 0}};
    for (uint32_t i = 0; i < s->best->n; i++)
        for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
            if (try_number(s, i, fields[f].off, fields[f].least)) continue;
            uint32_t *now = (uint32_t *)(void *)((uint8_t *)&s->best->ops[i] + fields[f].off);
            while (*now / 2 > fields[f].least && try_number(s, i, fields[f].off, *now / 2)) {
            }
        }
}

/* One context does what another one did: then what made it is not needed. */
static bool merge_contexts(shrinking *s) {
    bool any = false;
    for (uint32_t from = 1; from < TWIN_MAX_CONTEXTS; from++)
        for (uint32_t to = 0; to < from; to++) {
            s->candidate = *s->best;
            bool is_there = false;
            for (uint32_t i = 0; i < s->candidate.n; i++) {
                op *o = &s->candidate.ops[i];
                is_there = is_there || o->context == from;
                if (o->context == from) o->context = to;
            }
            any = (is_there && try_candidate(s)) || any;
        }
    return any;
}

uint32_t lockstep_shrink(op_list *list, lockstep_plant plant, lockstep_report *scratch) {
    static shrinking s; /* lists are long */
    s = (shrinking){.best = list, .plant = plant, .scratch = scratch};
    for (uint32_t part = list->n / 2; part > 0;) {
        bool any = leave_out(&s, ramet_min_u32(part, list->n));
        if (part > 1 || !any) part /= 2;
    }
    while (merge_contexts(&s) && leave_out(&s, 1)) {
    }
    make_small(&s);
    while (leave_out(&s, 1)) {
    }
    lockstep_replay(list, plant, scratch); /* what it fails with */
    return s.n_tries + 1;
}

void lockstep_explain(const lockstep_plan *plan, lockstep_report *report, const char *program) {
    op_list *list = &report->list;
    unsigned long long seed = (unsigned long long)list->seed;
    fprintf(stderr, "\nseed %llu, operation %u: %s\n", seed, list->n, report->message);
    fprintf(stderr, "replay: RAMET_SEEDS=1 RAMET_OPS=%u %s %llu\n", plan->n_ops, program, seed);
    uint32_t n = list->n;
    lockstep_report *scratch = lockstep_report_create();
    if (lockstep_replay(list, plan->plant, scratch)) {
        fprintf(stderr, "the list of its operations does not fail when it is run again\n");
    } else {
        uint32_t n_tries = lockstep_shrink(list, plan->plant, scratch);
        fprintf(stderr, "%u of its %u operations fail too (%u lists were tried): %s\n", list->n, n, n_tries,
                scratch->message);
        fprintf(stderr, "replay: %s --replay FILE, with these lines, on ", program);
        setup_print(list->seed, stderr);
        op_list_print(list, stderr);
        memcpy(report->message, scratch->message, sizeof report->message);
    }
    lockstep_report_destroy(scratch);
}
