/* test_state_check.c - negative controls of ramet_cache_check: each invariant is broken on purpose, must be reported by
 * its number, and the cache passes again when it is mended. */
#include "test_state_fixture.h"

/* Two contexts that share their first page, a tree with an inner node, one spilled context. */
typedef struct world {
    ramet_cache *cache;
    ramet_context *a, *b, *spilled;
} world;

static world open_world(void) {
    world w = {.cache = open_cache(16, 100, 100)};
    w.a = open_context(w.cache);
    extend_with(w.a, 40, 1);
    w.b = fork_of(w.a);
    assert_ok(ramet_context_cut(w.b, 20, error));
    extend_with(w.b, 10, 2);
    assert_ok(ramet_tree_retain(w.a, error));
    assert_ok(ramet_tree_retain(w.b, error));
    w.spilled = open_context(w.cache);
    extend_with(w.spilled, 5, 3);
    assert_ok(ramet_context_drop(w.spilled, "x", error));
    check(w.cache);
    return w;
}

static void close_world(world *w) {
    check(w->cache); /* mended */
    ramet_context_destroy(&w->a);
    ramet_context_destroy(&w->b);
    ramet_context_destroy(&w->spilled);
    ramet_cache_destroy(&w->cache);
}

static void assert_reports(ramet_cache *cache, const char *number, int line) {
    ramet_error error = {0};
    assert_int_equal(ramet_cache_check(cache, &error), RAMET_E_INVARIANT);
    if (strncmp(error.message, number, strlen(number)) != 0)
        fail_msg("line %d: wanted %s, got: %s", line, number, error.message);
}

/* Breaks one thing, wants it reported, and puts it back. */
#define BREAK(w, lvalue, broken, number)                                                                               \
    do {                                                                                                               \
        __typeof__(lvalue) saved_ = (lvalue);                                                                          \
        (lvalue) = (broken);                                                                                           \
        assert_reports((w).cache, number, __LINE__);                                                                   \
        (lvalue) = saved_;                                                                                             \
        check((w).cache);                                                                                              \
    } while (0)

static void k1_refcounts(void **state) {
    (void)state;
    world w = open_world();
    ramet_page *shared = ramet_table_page(&w.a->table, 0);
    BREAK(w, shared->counts.refcount, shared->counts.refcount + 1, "K1: page 0");
    BREAK(w, shared->counts.refcount, shared->counts.refcount - 1, "K1: page 0");
    BREAK(w, w.a->table.root->counts.refcount, 9, "K1: table node");
    BREAK(w, w.a->table.root->n, 2, "K1: a table node");
    BREAK(w, w.a->table.n_pages, 4, "K1: a table node");
    BREAK(w, w.a->row->holds[RAMET_BY_CONTEXTS], 2, "K1: a logits row");
    BREAK(w, w.cache->rows.n_live, 7, "K1: ");
    BREAK(w, w.cache->nodes.n_live, 7, "K1: ");
    assert_ok(ramet_context_writable(w.a, 30, error)); /* two pages ahead, which then seem to be shared */
    BREAK(w, ramet_table_page(&w.a->table, 4)->counts.refcount, 2, "K1: page 4 was made writable");
    close_world(&w);
}

static void k2_no_holder_has_a_freed_page(void **state) {
    (void)state;
    world w = open_world();
    ramet_page *page = ramet_table_page(&w.b->table, 1);
    ramet_slab saved_slab = w.cache->slab;
    ramet_counts saved = page->counts;
    page->counts = (ramet_counts){0};
    ramet_slab_give(&w.cache->slab, page);
    assert_reports(w.cache, "K2: a table points at page", __LINE__);
    page->counts = saved;
    w.cache->slab = saved_slab;
    BREAK(w, w.cache->slab.n_freed, w.cache->slab.n_freed + 1, "K2: ");
    BREAK(w, w.a->table.root->child[1].page, (ramet_page *)(void *)((uint8_t *)page + 4),
          "K2: a table points at something");
    close_world(&w);
}

static void k3_slots_and_pages(void **state) {
    (void)state;
    world w = open_world();
    ramet_page *page = ramet_table_page(&w.a->table, 1);
    BREAK(w, page->slot, 0, "K3: the page of slot"); /* two pages share slot 0 */
    BREAK(w, w.cache->slab.free_slot, page->slot, "K3: slot");
    BREAK(w, w.cache->slab.free_slot, RAMET_NO_SLOT, "K3: "); /* the slot of the spilled page is lost */
    ramet_page *free_page = ramet_slab_page(&w.cache->slab, w.cache->slab.free_slot);
    BREAK(w, free_page->next_free, free_page->slot, "K3: the list");
    close_world(&w);
}

static void k5_the_tree_is_well_formed(void **state) {
    (void)state;
    world w = open_world();
    ramet_tree_node *inner = w.cache->tree.root.children[0].node;
    assert_int_equal(inner->n_children, 2);
    ramet_tree_node *low = inner->children[0].node, *high = inner->children[1].node;
    int32_t *low_first = &inner->children[0].first, *high_first = &inner->children[1].first;
    BREAK(w, inner->n_children, 1, "K5: a tree node at depth 20 has no entry and 1 children");
    BREAK(w, low->depth, 20, "K5: an edge leads");
    BREAK(w, low->depth, low->depth - 1, "K5: an entry of");
    BREAK(w, low->parent, high, "K5: a tree node");
    BREAK(w, *low_first, *low_first - 1, "K5: an edge at depth 20");
    BREAK(w, *high_first, *low_first, "K5: siblings");
    BREAK(w, inner->newest, inner->newest == low->entry ? high->entry : low->entry, "K5: the newest");
    BREAK(w, low->entry->length, 3, "K5: an entry of 3 tokens");
    ramet_page *page = ramet_table_page(&w.b->table, 1); /* b's own copy: its tokens before the branch must equal a's */
    BREAK(w, page->tokens[1], 77, "K5: two entries");
    close_world(&w);
}

static void k6_order_of_use(void **state) {
    (void)state;
    world w = open_world();
    ramet_tree *tree = &w.cache->tree;
    BREAK(w, tree->n_entries, 3, "K6: ");
    BREAK(w, tree->newest->older, NULL, "K6: ");
    BREAK(w, tree->newest, tree->oldest, "K6: ");
    BREAK(w, tree->oldest->last_use, tree->clock + 1, "K5: the newest");
    close_world(&w);
}

static void k7_nothing_is_left(void **state) {
    (void)state;
    world w = open_world();
    BREAK(w, w.cache->contexts.n_live, 2, "K7: ");
    ramet_context *closed = fork_of(w.a);
    ramet_context_destroy(&closed);
    BREAK(w, w.cache->contexts.free_slot, RAMET_NO_SLOT, "K7: 0 contexts are free");
    BREAK(w, w.cache->contexts.free_slot, 0, "K7: context 0 is free and open");
    ramet_context_destroy(&w.a);
    ramet_context_destroy(&w.b);
    ramet_context_destroy(&w.spilled);
    ramet_tree_clear(w.cache);
    ramet_page *lost = ramet_page_create(w.cache);
    ramet_page_unhold(w.cache, lost, RAMET_BY_CONTEXTS);
    assert_reports(w.cache, "K1: page", __LINE__); /* a live page without a holder */
    ramet_page_release(w.cache, lost);
    close_world(&w);
}

static void k9_spilled_means_no_page(void **state) {
    (void)state;
    world w = open_world();
    BREAK(w, w.spilled->table, w.a->table, "K9: a context spilled to x has 3 pages");
    BREAK(w, w.spilled->where, NULL, "K9: ");
    BREAK(w, w.spilled->spilled_tokens, NULL, "K9: ");
    BREAK(w, w.a->length, 49, "K9: a context of 49 tokens has 3 pages");
    close_world(&w);
}

static void k11_budgets(void **state) {
    (void)state;
    world w = open_world();
    ramet_slab *slab = &w.cache->slab;
    BREAK(w, slab->n_held[RAMET_BY_TREE], 99, "K11: entries hold");
    BREAK(w, slab->n_held[RAMET_BY_CONTEXTS], 0, "K11: contexts hold");
    BREAK(w, w.cache->rows.n_held_by_tree, 0, "K11: ");
    BREAK(w, ramet_table_page(&w.a->table, 0)->counts.holds[RAMET_BY_TREE], 5, "K11: page 0");
    BREAK(w, w.a->table.root->counts.holds[RAMET_BY_CONTEXTS], 5, "K11: table node");
    BREAK(w, w.cache->options.budget_bytes, 3 * 16 * POSITION_BYTES, "K11: 4 pages exceed");
    BREAK(w, w.cache->options.tree_budget_bytes, 4 * 16 * POSITION_BYTES, "K11: the tree holds");
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k1_refcounts),
        cmocka_unit_test(k2_no_holder_has_a_freed_page),
        cmocka_unit_test(k3_slots_and_pages),
        cmocka_unit_test(k5_the_tree_is_well_formed),
        cmocka_unit_test(k6_order_of_use),
        cmocka_unit_test(k7_nothing_is_left),
        cmocka_unit_test(k9_spilled_means_no_page),
        cmocka_unit_test(k11_budgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
