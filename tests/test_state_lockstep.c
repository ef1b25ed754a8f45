/* test_state_lockstep.c - the state and store rooms beside their stupid twin: random operations, and after every single
 * one the walker passes (K1-K12), and tokens, rows, tails and lengths of all contexts, in memory or written out, the
 * statistics, the shared and exclusive pages and the order of the tree are equal. Allocations fail now and then: the twin
 * then does nothing, and nor may ramet. So does the pager: what may then be lost is lost to the twin, too. A failing walk
 * prints a short list of operations that still fails.
 *
 *   test_state_lockstep [seed]            RAMET_SEED, RAMET_SEEDS (how many, one after the other), RAMET_OPS (per seed)
 *   test_state_lockstep --replay FILE     a printed list again, in this process: for a debugger */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lockstep/lockstep.h"

#include <stdlib.h>
#include <string.h>

static const char *program;
static lockstep_plan plan = {.first_seed = 1, .seed_step = 1, .n_seeds = 400, .n_ops = 400};

static void random_walks_equal_the_twin(void **state) {
    (void)state;
    lockstep_report *report = lockstep_report_create();
    bool is_well = lockstep_walk(&plan, report);
    if (!is_well) lockstep_explain(&plan, report, program);
    assert_true(is_well);
    printf(
        "%llu operations, %llu skipped; %llu refused, %llu without memory, %llu without disk, %llu met another owner; "
        "%llu pages copied, %llu entries evicted, %llu blocks written out, %llu read back, %llu contexts lost\n",
        (unsigned long long)lockstep_n_run(report), (unsigned long long)report->n_skipped,
        (unsigned long long)report->n_refused, (unsigned long long)report->n_without_memory,
        (unsigned long long)report->n_without_disk, (unsigned long long)report->n_busy,
        (unsigned long long)report->n_copied, (unsigned long long)report->n_evicted,
        (unsigned long long)report->n_written, (unsigned long long)report->n_read, (unsigned long long)report->n_lost);
    if (plan.n_seeds * plan.n_ops >= 20000) { /* the walks go where it matters */
        for (uint32_t kind = 0; kind < N_OP_KINDS; kind++)
            if (report->n_run[kind] < 30)
                fail_msg("%s: %llu times", op_name(kind), (unsigned long long)report->n_run[kind]);
        assert_true(report->n_refused > 100 && report->n_without_memory > 100 && report->n_busy > 100);
        assert_true(report->n_copied > 100 && report->n_evicted > 100 && report->n_without_disk > 20);
        assert_true(report->n_written > 1000 && report->n_read > 1000 && report->n_lost > 20);
    }
    lockstep_report_destroy(report);
}

/* Of long runs: once no disk was reported where there was room by then, and a row that is held was let go. */
static void seeds_that_once_failed(void **state) {
    (void)state;
    static const uint64_t seeds[] = {1193, 2540, 2691, 2837, 3671};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        const lockstep_plan one = {.first_seed = seeds[i], .seed_step = 1, .n_seeds = 1, .n_ops = 400};
        lockstep_report *report = lockstep_report_create();
        bool is_well = lockstep_walk(&one, report);
        if (!is_well) lockstep_explain(&one, report, program);
        lockstep_report_destroy(report);
        assert_true(is_well);
    }
}

/* ---- negative controls: the comparison has teeth ---- */

static const op two_forks[] = {
    {.kind = OP_CREATE, .owner = 1, .context = 0},
    {.kind = OP_EXTEND, .owner = 1, .context = 0, .other = 1, .a = 70, .b = 70, .noise = 1},
    {.kind = OP_FORK, .owner = 1, .context = 0, .other = 1},
    {.kind = OP_RETAIN, .owner = 1, .context = 0, .other = 1, .a = 1},
    {.kind = OP_CUT, .owner = 1, .context = 0, .other = 1, .a = 20},
    {.kind = OP_RETAIN, .owner = 1, .context = 0, .other = 1, .a = 1},
};

/* The first one with room for all of it. */
static uint64_t roomy_seed(bool has_pager) {
    for (uint64_t seed = 1;; seed++) {
        setup s = setup_of(seed);
        if (s.page_tokens == 64 && s.n_pages >= 1000 && s.n_tree_pages >= 1000 && s.state_bytes > 0 &&
            s.pin_percent > 0 && s.has_pager == has_pager)
            return seed;
    }
}

static void open_two_forks(pair *p, bool has_pager) {
    lockstep_now = lockstep_report_create();
    pair_open(p, roomy_seed(has_pager), "/dev/null"); /* no file is made */
    for (size_t i = 0; i < sizeof two_forks / sizeof two_forks[0]; i++) {
        assert_true(op_run(p, &two_forks[i]));
        pair_require_equal(p);
    }
}

static void close_two_forks(pair *p) {
    for (uint32_t i = 0; i < 2; i++) ramet_context_destroy(&p->contexts[i]);
    ramet_cache_destroy(&p->cache);
    page_memory_free(&p->memory);
    twin_destroy(p->twin);
    lockstep_report_destroy(lockstep_now);
}

#define assert_seen(p, lvalue, broken, difference)                                                                     \
    do {                                                                                                               \
        uint32_t i_;                                                                                                   \
        __typeof__(lvalue) saved_ = (lvalue);                                                                          \
        (lvalue) = (broken);                                                                                           \
        const char *seen_ = pair_compare(p, &i_);                                                                      \
        if (!seen_ || strcmp(seen_, difference) != 0) fail_msg("%s: %s", #lvalue, seen_ ? seen_ : "not seen");         \
        (lvalue) = saved_;                                                                                             \
        assert_null(pair_compare(p, &i_));                                                                             \
    } while (0)

static uint32_t a_new_block(twin *t) {
    twin_context c = {.is_open = true};
    twin_take_spare(t, &c, TWIN_LOGITS);
    return c.spare[TWIN_LOGITS];
}

static void every_difference_is_seen(void **state) {
    (void)state;
    static pair p;
    open_two_forks(&p, false);
    twin *t = p.twin;
    ramet_block *page = ramet_blocks_at(&p.cache->blocks[RAMET_PAGE], 0);
    uint8_t *data = ramet_block_data(p.cache, page);
    assert_seen(&p, data[0], data[0] ^ 1, "bytes (K4)");
    assert_seen(&p, page->tokens[0], page->tokens[0] ^ 1, "tokens");
    assert_seen(&p, t->contexts[1].text.logits[3], 1e9f, "logits (K10)");
    assert_seen(&p, t->contexts[1].text.state[3], t->contexts[1].text.state[3] ^ 1, "state (K10)");
    assert_seen(&p, t->contexts[1].text.tail[TWIN_LOGITS], 0, "presence of logits");
    assert_seen(&p, t->contexts[1].text.tail[TWIN_STATE], 0, "presence of a state");
    assert_seen(&p, t->contexts[0].text.n, 21, "length");
    assert_seen(&p, t->contexts[0].text.pages[0], a_new_block(t), "number of exclusive pages (K1)");
    assert_seen(&p, t->contexts[1].text.n_pages, 1, "number of pages");
    assert_seen(&p, t->contexts[0].lost, RAMET_E_IO, "whether it is lost (K9)");
    assert_seen(&p, t->contexts[0].is_used, true, "whether it is used (K9)");
    assert_seen(&p, t->contexts[2].is_open, true, "whether it is open");
    assert_seen(&p, t->n_lost_contexts, 1, "contexts");
    assert_int_equal(t->n_entries, 2);
    assert_seen(&p, t->n_entries, 1, "number of entries (K6)");
    assert_seen(&p, t->entries[0]->text.tail[TWIN_LOGITS], t->entries[0]->text.tail[TWIN_STATE],
                "pages or bytes of the tree (K11)");
    assert_seen(&p, t->entries[0]->text.tokens[69], 99, "entries or their order (K6)");
    assert_seen(&p, t->entries[0]->base, -1e9, "entries or their order (K6)");
    assert_seen(&p, t->entries[0]->is_pinned, true, "entries that are pinned");
    assert_seen(&p, t->entries[0]->owner, 0, "an entry is another's (K12)");
    assert_seen(&p, t->n_copied, 99, "copied pages");
    assert_seen(&p, t->n_evictions, 99, "evictions");
    assert_seen(&p, t->n_pages_allocated, 99, "allocated or freed pages");
    assert_seen(&p, t->contexts[1].spare[TWIN_STATE], a_new_block(t), "bytes in memory and out (K11)");
    close_two_forks(&p);
}

/* Of what is written out and of what is used. */
static void every_difference_with_a_pager_is_seen(void **state) {
    (void)state;
    static pair p;
    open_two_forks(&p, true);
    static const op spill = {.kind = OP_SPILL, .owner = 1, .context = 1},
                    use = {.kind = OP_USE, .owner = 1, .context = 0};
    assert_true(op_run(&p, &use) && op_run(&p, &spill));
    pair_require_equal(&p);
    const ramet_context *context = p.contexts[1];
    const ramet_block *out = ramet_table_page(&context->table, 1), *row = context->tail[0];
    assert_true(out->slot == RAMET_NO_SLOT && row->slot == RAMET_NO_SLOT);
    uint8_t *data = (uint8_t *)(uintptr_t)walk_pager_peek(&p.pager, out->name);
    uint8_t *logits = (uint8_t *)(uintptr_t)walk_pager_peek(&p.pager, row->name);
    assert_seen(&p, data[1], data[1] ^ 1, "bytes (K4)");
    assert_seen(&p, logits[1], logits[1] ^ 1, "logits (K10)");
    assert_seen(&p, p.pager.n_written, 0, "blocks that moved");
    assert_seen(&p, p.pager.n_read, 99, "blocks that moved");
    assert_seen(&p, p.pager.kept_bytes, 0, "bytes with the pager (K9)");
    assert_seen(&p, p.twin->contexts[1].holds_logits, true, "what is used is written out (K9)");
    close_two_forks(&p);
}

/* ---- the shrinker ---- */

/* Spoils a page after a rewrite of a context that has more than one. */
static void spoil(pair *p, const op *o) {
    ramet_context *context = p->contexts[o->context];
    if (o->kind != OP_REWRITE || !context || ramet_context_length(context) <= p->layout.page_tokens) return;
    const ramet_block *page = ramet_table_page(&context->table, 0);
    if (page->slot != RAMET_NO_SLOT) *ramet_block_data(p->cache, page) ^= 0x10;
}

static void a_failing_list_is_made_short(void **state) {
    (void)state;
    lockstep_report *report = lockstep_report_create(), *scratch = lockstep_report_create();
    lockstep_plan planted = {.first_seed = 5, .seed_step = 1, .n_seeds = 20, .n_ops = 400};
    planted.plant = spoil;
    assert_false(lockstep_walk(&planted, report));
    uint32_t n = report->list.n, n_tries = lockstep_shrink(&report->list, spoil, scratch);
    printf("control: a spoilt page is seen after %u operations, made %u by %u tries: %s\n", n, report->list.n, n_tries,
           scratch->message);
    op_list_print(&report->list, stdout);
    assert_non_null(strstr(scratch->message, "K4"));
    /* One that makes a context, one that extends it past a page or a few that do so together, one that rewrites. */
    assert_in_range(report->list.n, 3, 6);
    assert_int_equal(report->list.ops[report->list.n - 1].kind, OP_REWRITE);
    assert_true(lockstep_replay(&report->list, NULL, scratch)); /* without the fault it is a list like others */
    lockstep_report_destroy(report);
    lockstep_report_destroy(scratch);
}

/* K12: to the twin an owner's entry is everybody's, and another owner asks for it. */
static void give_away(pair *p, const op *o) {
    uint32_t n = p->twin->n_entries, closed = 0;
    while (closed < TWIN_MAX_CONTEXTS && p->contexts[closed]) closed++;
    if (o->kind != OP_RETAIN || n == 0 || closed == TWIN_MAX_CONTEXTS || p->twin->entries[n - 1]->owner == 0) return;
    uint32_t owner = p->twin->entries[n - 1]->owner;
    op match = {
        .kind = OP_MATCH, .owner = 1, .context = closed, .other = 3 - owner, .b = UINT32_MAX, .noise = o->noise};
    match.a = TWIN_MAX_CONTEXTS + n - 1;
    p->twin->entries[n - 1]->owner = 0;
    op_run(p, &match);
    p->twin->entries[n - 1]->owner = owner;
}

static void a_match_of_another_owner_is_seen(void **state) {
    (void)state;
    lockstep_report *report = lockstep_report_create(), *scratch = lockstep_report_create();
    lockstep_plan planted = {.first_seed = 5, .seed_step = 1, .n_seeds = 20, .n_ops = 400, .plant = give_away};
    assert_false(lockstep_walk(&planted, report));
    lockstep_shrink(&report->list, give_away, scratch);
    printf("control: another owner's entry is matched, shown by %u operations: %s\n", report->list.n, scratch->message);
    assert_non_null(strstr(scratch->message, "match: "));
    assert_non_null(strstr(scratch->message, "K12"));
    assert_in_range(report->list.n, 3, 6);
    lockstep_report_destroy(report);
    lockstep_report_destroy(scratch);
}

static void a_printed_list_is_read_again(void **state) {
    (void)state;
    static op_list list, again;
    list = (op_list){.seed = 77, .n = sizeof two_forks / sizeof two_forks[0]};
    memcpy(list.ops, two_forks, sizeof two_forks);
    FILE *file = tmpfile();
    assert_non_null(file);
    fprintf(file, "some text before it\n");
    op_list_print(&list, file);
    rewind(file);
    assert_true(op_list_read(file, &again));
    fclose(file);
    assert_int_equal(again.seed, list.seed);
    assert_int_equal(again.n, list.n);
    assert_memory_equal(again.ops, list.ops, sizeof two_forks);
}

/* ---- main ---- */

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static int replay_file(const char *path) {
    static op_list list;
    FILE *file = fopen(path, "r");
    if (!file || !op_list_read(file, &list)) {
        fprintf(stderr, "%s: no list of operations\n", path);
        return 2;
    }
    fclose(file);
    lockstep_replay_here(&list);
    printf("%u operations of seed %llu: all is well\n", list.n, (unsigned long long)list.seed);
    return 0;
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 3 && strcmp(argv[1], "--replay") == 0) return replay_file(argv[2]);
    plan.first_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : setting("RAMET_SEED", plan.first_seed);
    plan.n_seeds = setting("RAMET_SEEDS", plan.n_seeds);
    plan.n_ops = (uint32_t)setting("RAMET_OPS", plan.n_ops);
    if (plan.n_ops > LOCKSTEP_MAX_OPS) plan.n_ops = LOCKSTEP_MAX_OPS;
    printf("seeds %llu to %llu, %u operations each\n", (unsigned long long)plan.first_seed,
           (unsigned long long)(plan.first_seed + plan.n_seeds - 1), plan.n_ops);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_difference_is_seen),         cmocka_unit_test(every_difference_with_a_pager_is_seen),
        cmocka_unit_test(a_printed_list_is_read_again),     cmocka_unit_test(a_failing_list_is_made_short),
        cmocka_unit_test(a_match_of_another_owner_is_seen), cmocka_unit_test(random_walks_equal_the_twin),
        cmocka_unit_test(seeds_that_once_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
