/* test_state_check.c - negative controls of ramet_cache_check: each invariant is broken on purpose, must be reported by
 * its number, and the cache passes again when it is mended. */
#include "test_state_pager.h"

/* Two contexts in use that share their first page, a third that is written out, a fourth that is idle; entries of
 * everybody with an inner node, of two owners, and a pinned one. Everybody has logits and a state. */
typedef struct world {
    test_pager pager;
    ramet_cache *cache;
    ramet_context *a, *b, *spilled, *idle;
} world;

static void open_world(world *w) {
    ramet_cache_options options = options_of(16, 100, 100);
    options.state_bytes = 24;
    options.pin_budget_bytes = options.tree_budget_bytes;
    w->cache = open_paged_cache(&w->pager, options);
    w->a = open_context(w->cache);
    extend_with(w->a, 40, 1);
    w->b = fork_of(w->a);
    assert_ok(ramet_context_cut(w->b, 20, error));
    extend_with(w->b, 10, 2);
    assert_ok(retain(w->a, error));
    assert_ok(retain(w->b, error));
    assert_ok(ramet_tree_retain(w->a, &(ramet_retain){.owner = "ann"}, error));
    assert_ok(ramet_tree_retain(w->b, &(ramet_retain){.owner = "bob"}, error));
    assert_ok(ramet_tree_retain(w->b, &(ramet_retain){.owner = "ann", .is_pinned = true}, error));
    w->spilled = leave_context(w->cache, 5, 3);
    spill(w->spilled);
    w->idle = leave_context(w->cache, 20, 4);
    check(w->cache);
}

static void close_world(world *w) {
    check(w->cache); /* mended */
    ramet_context_destroy(&w->a);
    ramet_context_destroy(&w->b);
    close_left(&w->spilled);
    close_left(&w->idle);
    close_paged_cache(&w->pager, &w->cache);
}

static void assert_reports(ramet_cache *cache, const char *number, int line) {
    ramet_error error = {0};
    if (ramet_cache_check(cache, &error) != RAMET_E_INVARIANT) fail_msg("line %d: nothing is reported", line);
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

/* Of a bit. */
#define BREAK_FLAG(w, lvalue, number)                                                                                  \
    do {                                                                                                               \
        (lvalue) = !(lvalue);                                                                                          \
        assert_reports((w).cache, number, __LINE__);                                                                   \
        (lvalue) = !(lvalue);                                                                                          \
        check((w).cache);                                                                                              \
    } while (0)

/* ---- blocks ---- */

static void k1_refcounts(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_block *shared = page_of(w.a, 0);
    BREAK(w, shared->counts.refcount, shared->counts.refcount + 1, "K1: page 0");
    BREAK(w, shared->counts.refcount, shared->counts.refcount - 1, "K1: page 0");
    BREAK(w, w.a->table.root->counts.refcount, 9, "K1: table node");
    BREAK(w, w.a->table.root->n, 2, "K1: a table node");
    BREAK(w, w.a->table.n_pages, 4, "K1: a table node");
    BREAK(w, w.cache->tree.pinned[0]->table.root, NULL, "K1: a table of 2 pages has no root");
    BREAK(w, w.idle->table.n_pages, 0, "K9: a context of 20 tokens has 0 pages");
    BREAK(w, w.a->tail[0]->counts.refcount, 9, "K1: row of logits");
    BREAK(w, w.a->tail[1]->counts.refcount, 9, "K1: state");
    BREAK(w, w.cache->nodes.n_live, 77, "K1: ");
    assert_ok(ramet_context_writable(w.a, 30, error)); /* two pages ahead, which then seem to be shared */
    BREAK(w, page_of(w.a, 4)->counts.refcount, 2, "K1: page 4 was made writable");
    close_world(&w);
}

static void k2_no_holder_has_a_freed_block(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_blocks *pages = &w.cache->blocks[RAMET_PAGE];
    ramet_block *page = page_of(w.idle, 1);
    ramet_blocks saved_pages = *pages; /* as if it was given up by somebody who did not have it */
    ramet_idle saved_idle = w.cache->idle;
    ramet_block saved = *page;
    ramet_slot saved_slot = pages->slab.slots[page->slot];
    ramet_block *colder = page->colder, *warmer = page->warmer;
    page->counts = (ramet_counts){0};
    ramet_block_free(w.cache, page);
    assert_reports(w.cache, "K2: a pointer to block", __LINE__);
    *pages = saved_pages;
    w.cache->idle = saved_idle;
    *page = saved;
    pages->slab.slots[page->slot] = saved_slot;
    if (colder) colder->warmer = page;
    if (warmer) warmer->colder = page;
    check(w.cache);

    BREAK(w, pages->n_freed, pages->n_freed + 1, "K2: ");
    BREAK(w, page->id, 0, "K2: block");
    BREAK(w, page->kind, RAMET_STATE, "K2: block");
    BREAK(w, pages->free, page, "K2: block");
    BREAK(w, w.idle->table.root->child[1].page, (ramet_block *)(void *)((uint8_t *)page + 4),
          "K2: a pointer to something");
    BREAK(w, w.a->tail[0], w.a->tail[1], "K2: a pointer to something"); /* a state is no row */
    BREAK(w, pages->n_doomed, 1, "K2: 0 blocks wait");
    close_world(&w);
}

static void k3_slots_and_blocks(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_slab *slab = &w.cache->blocks[RAMET_PAGE].slab;
    ramet_block *page = page_of(w.a, 1);
    BREAK(w, page->slot, page_of(w.a, 0)->slot, "K3: block"); /* two in one slot */
    BREAK(w, page->slot, slab->n_touched, "K3: block");
    BREAK(w, slab->slots[page->slot].block, 0, "K3: block");
    BREAK(w, slab->slots[page->slot].state, RAMET_SLOT_WARM, "K3: block");
    BREAK(w, slab->n_out, slab->n_out + 1, "K3: ");
    BREAK(w, slab->n_warm, slab->n_warm + 1, "K3: ");
    BREAK(w, w.cache->blocks[RAMET_PAGE].n_live, 4, "K2: ");
    ramet_context_destroy(&w.b); /* its own page goes with it only when its entries are gone */
    ramet_tree_clear(w.cache);
    uint32_t *head = slab->free_warm != RAMET_NO_SLOT ? &slab->free_warm : &slab->free_cold;
    assert_int_not_equal(*head, RAMET_NO_SLOT);
    BREAK(w, *head, page->slot, "K3: slot");
    BREAK(w, *head, RAMET_NO_SLOT, "K3: "); /* slots are lost */
    BREAK(w, slab->slots[*head].next_free, *head, "K3: the list");
    w.b = open_context(w.cache);
    close_world(&w);
}

static void k9_in_memory_or_out_and_in_memory_while_used(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_block *out = page_of(w.spilled, 0), *used = page_of(w.a, 1), *idle = page_of(w.idle, 1);
    assert_int_equal(out->slot, RAMET_NO_SLOT);
    BREAK(w, out->slot, used->slot, "K3: block");                       /* in another one's slot */
    BREAK(w, out->name, 0, "K9: block 4 is neither in memory nor out"); /* nobody knows where it is */
    BREAK(w, used->name, 99, "K9: block 1 is in memory and written out");
    BREAK(w, used->lost, RAMET_E_IO, "K9: block 1 is lost and in memory");
    BREAK(w, used->n_users, 0, "K9: block 1 counts 0 users, but has 1");
    BREAK(w, w.a->tail[0]->n_users, 0, "K9: block");
    BREAK(w, w.cache->blocks[RAMET_PAGE].n_used, 0, "K9: ");
    BREAK_FLAG(w, w.a->is_used, "K9: block");
    BREAK_FLAG(w, w.idle->holds_logits, "K9: block");
    BREAK(w, w.a->length, 49, "K9: a context of 49 tokens has 3 pages");
    BREAK(w, w.cache->idle.coldest, NULL, "K9: ");
    BREAK(w, w.cache->idle.warmest, idle, "K9: ");
    BREAK(w, w.cache->idle.coldest->warmer, NULL, "K9: ");
    BREAK(w, idle->colder, used, "K9: ");

    /* A slot of its own and a name as well: as if it was written out and kept. */
    ramet_slab *slab = &w.cache->blocks[RAMET_PAGE].slab, saved = *slab;
    out->slot = ramet_slab_take(slab, out->id);
    assert_reports(w.cache, "K9: block 4 is in memory and written out", __LINE__);
    ramet_slab_give(slab, out->slot);
    out->slot = RAMET_NO_SLOT;
    assert_int_equal(slab->n_out, saved.n_out);
    close_world(&w);
}

static void k10_a_tail_is_of_the_last_token(void **state) {
    (void)state;
    world w;
    open_world(&w);
    for (int i = 0; i < RAMET_TAILS; i++) {
        BREAK(w, w.a->tail[i]->n_tokens, 39, "K10: a tail block of 39 tokens is at the end of 40");
        BREAK(w, w.spilled->tail[i]->n_tokens, 6, "K10: a tail block of 6 tokens is at the end of 5");
        BREAK(w, w.a->tail[i], w.b->tail[i], "K10: a tail block of 30 tokens is at the end of 40");
        BREAK(w, w.cache->tree.pinned[0]->tail[i]->n_tokens, 29, "K10: a tail block");
    }
    BREAK(w, w.a->length, 41, "K10: a tail block of 40 tokens is at the end of 41");
    assert_ok(ramet_context_reserve_tail(w.a, error));
    for (int i = 0; i < RAMET_TAILS; i++) {
        assert_non_null(w.a->spare[i]);
        BREAK(w, w.a->spare[i]->counts.refcount, 2, "K10: a spare tail block");
    }
    BREAK_FLAG(w, w.a->is_used, "K10: a spare tail block");
    BREAK(w, w.b->spare[0], w.a->spare[0], "K1: row of logits");
    close_world(&w);
}

/* ---- the tree ---- */

static void k5_the_tree_is_well_formed(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_zone *zone = &w.cache->tree.everybody;
    ramet_tree_node *inner = zone->root.children[0].node;
    assert_int_equal(inner->n_children, 2);
    ramet_tree_node *low = inner->children[0].node, *high = inner->children[1].node;
    int32_t *low_first = &inner->children[0].first, *high_first = &inner->children[1].first;
    BREAK(w, inner->n_children, 1, "K5: a tree node at depth 20 has no entry and 1 children");
    BREAK(w, low->depth, 20, "K5: an edge leads");
    BREAK(w, low->depth, low->depth - 1, "K5: an entry of");
    BREAK(w, *low_first, *low_first - 1, "K5: an edge at depth 20");
    BREAK(w, *high_first, *low_first, "K5: siblings");
    BREAK(w, inner->newest, inner->newest == low->entry ? high->entry : low->entry, "K5: the newest");
    BREAK(w, w.cache->tree.pinned[0]->length, 3, "K5: an entry of 3 tokens");
    BREAK(w, low->entry->length, 3, "K6: the score of an entry of 3 tokens");
    BREAK(w, zone->root.newest, low->entry, "K5: the root");
    ramet_tree_node *of_pinned = w.cache->tree.pinned[0]->node;
    BREAK(w, of_pinned->parent, low, "K5: a tree node at depth 30 has another parent");
    ramet_block *page = page_of(w.b, 1); /* b's own copy: its tokens before the branch must equal a's */
    BREAK(w, page->tokens[1], 77, "K5: two entries");
    close_world(&w);
}

static void k6_the_order_in_which_entries_go(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_tree *tree = &w.cache->tree;
    assert_int_equal(tree->n_heap, 4);
    ramet_entry *first = tree->heap[0], *last = tree->heap[3];
    BREAK(w, tree->n_heap, 3, "K6: zones reach");
    BREAK(w, first->score, first->score + 1e-9, "K6: the score");
    BREAK(w, last->base, last->base - 1e-9, "K6: the score");
    BREAK(w, first->place, 1, "K6: an entry at place 0");
    BREAK(w, first->is_pinned, true, "K6: an entry at place 0");
    BREAK(w, tree->pinned[0]->is_pinned, false, "K6: a pinned entry");
    BREAK(w, tree->pinned[0]->place, 2, "K6: a pinned entry");
    BREAK(w, tree->everybody.n_entries, 3, "K6: a zone reaches");
    BREAK(w, tree->n_zones, 1, "K6: zones reach");
    const ramet_tree_node *inner = tree->everybody.root.children[0].node;
    ramet_entry *low = inner->children[0].node->entry, *high = inner->children[1].node->entry;
    ramet_entry *older = low->last_use < high->last_use ? low : high;
    BREAK(w, older->last_use, tree->clock + 1, "K5: the newest");
    ramet_entry saved = *last; /* it should be the first: it costs the least now */
    last->base -= 1;
    last->score = last->base + ramet_entry_cost(w.cache, last);
    assert_reports(w.cache, "K6: an entry of", __LINE__);
    *last = saved;
    close_world(&w);
}

static void k12_an_entry_is_in_its_owners_zone(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_tree *tree = &w.cache->tree;
    assert_int_equal(tree->n_zones, 2);
    ramet_zone *ann = tree->zones[0], *bob = tree->zones[1];
    ramet_entry *of_bob = bob->root.children[0].node->entry, *pinned = tree->pinned[0];
    assert_ptr_equal(of_bob->zone, bob);
    BREAK(w, of_bob->zone, ann, "K12: an entry of 30 tokens");
    BREAK(w, of_bob->zone, &tree->everybody, "K12: an entry of 30 tokens");
    BREAK(w, pinned->zone, bob, "K12: an entry of 30 tokens");
    BREAK(w, tree->everybody.root.children[0].node->newest->zone, ann, "K12: an entry of");
    BREAK(w, tree->zones[1]->owner, ann->owner, "K12: zones"); /* two of one owner: a match would look into one */
    BREAK(w, tree->zones[1], ann, "K12: zones");
    ramet_tree_node saved = bob->root; /* his entries hang in her zone as well */
    bob->root = ann->root;
    assert_int_equal(ramet_cache_check(w.cache, NULL), RAMET_E_INVARIANT);
    bob->root = saved;
    close_world(&w);
}

/* ---- all ---- */

static void k7_nothing_is_left(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_context_pool *contexts = &w.cache->contexts;
    BREAK(w, contexts->n_live, 2, "K7: ");
    BREAK(w, w.a->cache, NULL, "K7: 3 contexts are open");
    ramet_context *closed = fork_of(w.a);
    ramet_context_destroy(&closed);
    BREAK(w, contexts->free_slot, RAMET_NO_SLOT, "K7: 0 contexts are free");
    BREAK(w, contexts->free_slot, 0, "K7: context 0 is free and open");
    ramet_context_destroy(&w.a);
    ramet_context_destroy(&w.b);
    close_left(&w.spilled);
    close_left(&w.idle);
    ramet_tree_clear(w.cache);
    check(w.cache);
    for (int kind = 0; kind < RAMET_KINDS; kind++) { /* a live block without a holder */
        ramet_block *lost = ramet_block_create(w.cache, (ramet_kind)kind);
        ramet_block_unhold(w.cache, lost, RAMET_BY_CONTEXTS);
        assert_reports(w.cache, "K1: ", __LINE__);
        ramet_block_release(w.cache, lost);
        check(w.cache);
    }
    close_world(&w);
}

static void k11_budgets(void **state) {
    (void)state;
    world w;
    open_world(&w);
    ramet_tree *tree = &w.cache->tree;
    ramet_cache_options *options = &w.cache->options;
    for (int kind = 0; kind < RAMET_KINDS; kind++) {
        BREAK(w, w.cache->blocks[kind].n_held[RAMET_BY_TREE], 99, "K11: entries hold");
        BREAK(w, w.cache->blocks[kind].n_held[RAMET_BY_CONTEXTS], 0, "K11: contexts hold");
    }
    BREAK(w, page_of(w.a, 0)->counts.holds[RAMET_BY_TREE], 9, "K11: page 0");
    BREAK(w, w.a->tail[1]->counts.holds[RAMET_BY_TREE], 9, "K11: state");
    BREAK(w, w.a->table.root->counts.holds[RAMET_BY_CONTEXTS], 9, "K11: table node");
    BREAK(w, options->budget_bytes, 3 * 16 * POSITION_BYTES, "K11: blocks of ");
    BREAK(w, options->budget_bytes, stats_of(w.cache).memory_bytes - 1, "K11: blocks of ");
    BREAK(w, options->tree_budget_bytes, stats_of(w.cache).tree_bytes - 1, "K11: the tree holds");
    BREAK(w, tree->pinned_bytes, tree->pinned_bytes + 1, "K11: entries of");
    BREAK(w, options->pin_budget_bytes, tree->pinned_bytes - 1, "K11: entries of");
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k1_refcounts),
        cmocka_unit_test(k2_no_holder_has_a_freed_block),
        cmocka_unit_test(k3_slots_and_blocks),
        cmocka_unit_test(k5_the_tree_is_well_formed),
        cmocka_unit_test(k6_the_order_in_which_entries_go),
        cmocka_unit_test(k7_nothing_is_left),
        cmocka_unit_test(k9_in_memory_or_out_and_in_memory_while_used),
        cmocka_unit_test(k10_a_tail_is_of_the_last_token),
        cmocka_unit_test(k11_budgets),
        cmocka_unit_test(k12_an_entry_is_in_its_owners_zone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
