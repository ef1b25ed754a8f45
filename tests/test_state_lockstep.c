/* test_state_lockstep.c - the state and store rooms beside their stupid twin: random operations, and after every single
 * one the walker passes (K1-K11), and tokens, rows, logits and lengths of all contexts, the statistics, the shared and
 * exclusive pages and the order of the tree are equal. Allocations fail now and then: the twin then does nothing, and
 * nor may ramet. A failing walk prints a short list of operations that still fails.
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
static lockstep_plan plan = {.first_seed = 1, .seed_step = 1, .n_seeds = 240, .n_ops = 400};

static void random_walks_equal_the_twin(void **state) {
    (void)state;
    lockstep_report *report = lockstep_report_create();
    bool is_well = lockstep_walk(&plan, report);
    if (!is_well) lockstep_explain(&plan, report, program);
    assert_true(is_well);
    printf("%llu operations, %llu skipped; %llu refused, %llu without memory, %llu met another owner; "
           "%llu pages copied, %llu entries evicted\n",
           (unsigned long long)lockstep_n_run(report), (unsigned long long)report->n_skipped,
           (unsigned long long)report->n_refused, (unsigned long long)report->n_without_memory,
           (unsigned long long)report->n_busy, (unsigned long long)report->n_copied,
           (unsigned long long)report->n_evicted);
    if (plan.n_seeds * plan.n_ops >= 20000) { /* the walks go where it matters */
        for (uint32_t kind = 0; kind < N_OP_KINDS; kind++)
            if (report->n_run[kind] < 30)
                fail_msg("%s: %llu times", op_name(kind), (unsigned long long)report->n_run[kind]);
        assert_true(report->n_refused > 100 && report->n_without_memory > 100 && report->n_busy > 100);
        assert_true(report->n_copied > 100 && report->n_evicted > 100);
    }
    lockstep_report_destroy(report);
}

/* ---- negative controls: the comparison has teeth ---- */

static const op two_forks[] = {
    {.kind = OP_CREATE, .owner = 1, .context = 0},
    {.kind = OP_EXTEND, .owner = 1, .context = 0, .other = 1, .a = 70, .b = 70, .noise = 1},
    {.kind = OP_FORK, .owner = 1, .context = 0, .other = 1},
    {.kind = OP_RETAIN, .owner = 1, .context = 0, .other = 1},
    {.kind = OP_CUT, .owner = 1, .context = 0, .other = 1, .a = 20},
    {.kind = OP_RETAIN, .owner = 1, .context = 0, .other = 1},
};

static void open_two_forks(pair *p) {
    lockstep_now = lockstep_report_create();
    uint64_t seed = 1;
    for (setup s = setup_of(seed); s.page_tokens != 64 || s.n_pages < 1000 || s.n_tree_pages < 1000;)
        s = setup_of(++seed);
    pair_open(p, seed, "/dev/null"); /* no file is made */
    for (size_t i = 0; i < sizeof two_forks / sizeof two_forks[0]; i++) {
        assert_true(op_run(p, &two_forks[i]));
        pair_require_equal(p);
    }
}

static void close_two_forks(pair *p) {
    for (uint32_t i = 0; i < 2; i++) ramet_context_destroy(&p->contexts[i]);
    ramet_cache_destroy(&p->cache);
    page_memory_destroy(&p->memory);
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

static void every_difference_is_seen(void **state) {
    (void)state;
    static pair p;
    open_two_forks(&p);
    ramet_page *page = ramet_slab_page(&p.cache->slab, 0);
    uint8_t *data = ramet_slab_data(&p.cache->slab, page);
    assert_seen(&p, data[0], data[0] ^ 1, "bytes (K4)");
    assert_seen(&p, page->tokens[0], page->tokens[0] ^ 1, "tokens");
    assert_seen(&p, p.twin->contexts[1].text.logits[3], 1e9f, "logits");
    assert_seen(&p, p.twin->contexts[1].text.row, 0, "presence of logits");
    assert_seen(&p, p.twin->contexts[0].text.n, 21, "length");
    assert_seen(&p, p.twin->contexts[0].text.pages[0], 0, "number of exclusive pages (K1)");
    assert_seen(&p, p.twin->contexts[1].text.n_pages, 1, "number of pages");
    assert_seen(&p, p.twin->contexts[0].is_spilled, true, "where (K9)");
    assert_seen(&p, p.twin->contexts[2].is_open, true, "whether it is open");
    assert_int_equal(p.twin->n_entries, 2);
    assert_seen(&p, p.twin->entries[0]->row, 0, "pages or bytes of the tree (K11)");
    assert_seen(&p, p.twin->entries[0]->tokens[69], 99, "entries or their order (K6)");
    assert_seen(&p, p.twin->n_copied, 99, "copied pages");
    assert_seen(&p, p.twin->n_evictions, 99, "evictions");
    assert_seen(&p, p.twin->last_page, 99, "allocated or freed pages");
    close_two_forks(&p);
}

/* ---- the shrinker ---- */

/* Spoils a page after a rewrite of a context that has more than one. */
static void spoil(pair *p, const op *o) {
    ramet_context *context = p->contexts[o->context];
    if (o->kind != OP_REWRITE || !context || ramet_context_where(context)) return;
    if (ramet_context_length(context) > p->layout.page_tokens) *ramet_context_page_own(context, 0) ^= 0x10;
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
        cmocka_unit_test(every_difference_is_seen),
        cmocka_unit_test(a_printed_list_is_read_again),
        cmocka_unit_test(a_failing_list_is_made_short),
        cmocka_unit_test(random_walks_equal_the_twin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
