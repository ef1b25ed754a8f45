/* score.c - which entry goes next: the one whose loss costs least, by GreedyDual-Size (Cao and Irani, "Cost-Aware WWW
 * Proxy Caching Algorithms", 1997).
 *
 *   score = base + cost     cost: tokens to run again per byte that it takes
 *                           base: the inflation when the entry was last touched
 *   evict: the lowest score goes, and becomes the inflation
 *
 * So entries of equal cost go in the order of last use, dear ones stay longer, and none stays for ever: what was touched
 * lately stands on a higher base. The cost is of the entry among its neighbours as they are now: what another entry has
 * too would not be lost. Owns the heap of entries that are not pinned, by score and then by last use. */
#include "state/internal.h"

static uint64_t tail_bytes(const ramet_cache *cache, ramet_block *const tail[RAMET_TAILS]) {
    uint64_t bytes = 0;
    for (int i = 0; i < RAMET_TAILS; i++)
        if (tail[i]) bytes += cache->blocks[RAMET_KIND_OF(i)].bytes;
    return bytes;
}

uint64_t ramet_entry_bytes_alone(const ramet_cache *cache, const ramet_table *table,
                                 ramet_block *const tail[RAMET_TAILS]) {
    return table->n_pages * cache->options.page_bytes + tail_bytes(cache, tail);
}

double ramet_entry_cost(const ramet_cache *cache, const ramet_entry *entry) {
    const ramet_tree_node *node = entry->node;
    uint64_t tail = tail_bytes(cache, entry->tail);
    if (node->n_children > 0) return tail > 0 ? 1.0 / (double)tail : 0.0; /* one below has all its pages */
    uint32_t shared = node->parent->depth, page_tokens = cache->options.page_tokens;
    uint64_t n_pages = entry->table.n_pages - shared / page_tokens;
    return (double)(entry->length - shared) / (double)(n_pages * cache->options.page_bytes + tail);
}

static bool goes_before(const ramet_entry *a, const ramet_entry *b) {
    if (a->score != b->score) return a->score < b->score;
    return a->last_use < b->last_use;
}

static void put(ramet_tree *tree, uint32_t place, ramet_entry *entry) {
    tree->heap[place] = entry;
    entry->place = place;
}

static void sift_up(ramet_tree *tree, ramet_entry *entry) {
    uint32_t place = entry->place;
    for (; place > 0 && goes_before(entry, tree->heap[(place - 1) / 2]); place = (place - 1) / 2)
        put(tree, place, tree->heap[(place - 1) / 2]);
    put(tree, place, entry);
}

static void sift_down(ramet_tree *tree, ramet_entry *entry) {
    uint32_t place = entry->place;
    for (;;) {
        size_t child = 2 * (size_t)place + 1;
        if (child + 1 < tree->n_heap && goes_before(tree->heap[child + 1], tree->heap[child])) child++;
        if (child >= tree->n_heap || !goes_before(tree->heap[child], entry)) break;
        put(tree, place, tree->heap[child]);
        place = (uint32_t)child;
    }
    put(tree, place, entry);
}

static void settle(ramet_tree *tree, ramet_entry *entry) {
    sift_up(tree, entry);
    sift_down(tree, entry);
}

bool ramet_heap_reserve(ramet_tree *tree) {
    void *heap = tree->heap;
    bool has_room = ramet_grow(&heap, &tree->heap_capacity, tree->n_heap + tree->n_pinned + 1, sizeof *tree->heap);
    tree->heap = heap;
    return has_room;
}

void ramet_heap_add(ramet_cache *cache, ramet_entry *entry) {
    ramet_tree *tree = &cache->tree;
    entry->score = entry->base + ramet_entry_cost(cache, entry);
    entry->place = (uint32_t)tree->n_heap;
    tree->heap[tree->n_heap++] = entry;
    sift_up(tree, entry);
}

void ramet_heap_remove(ramet_cache *cache, ramet_entry *entry) {
    ramet_tree *tree = &cache->tree;
    ramet_entry *last = tree->heap[--tree->n_heap];
    if (last != entry) {
        put(tree, entry->place, last);
        settle(tree, last);
    }
    entry->place = RAMET_NO_PLACE;
}

void ramet_heap_rescore(ramet_cache *cache, const ramet_tree_node *node) {
    ramet_entry *entry = node->entry;
    if (!entry || entry->place == RAMET_NO_PLACE) return;
    entry->score = entry->base + ramet_entry_cost(cache, entry);
    settle(&cache->tree, entry);
}
