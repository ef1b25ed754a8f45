/* page.c - who holds a page.
 *
 * refcount: how many table leaves point at it (K1). holds: how many of these leaves a context, a tree entry can reach,
 * so that the slab knows what each kind holds, every page counted once (K11). Owns these counts. Refuses to know
 * tables. */
#include "state/internal.h"

#include <string.h>

ramet_page *ramet_page_create(ramet_cache *cache) {
    ramet_page *page = ramet_slab_take(&cache->slab);
    page->counts = (ramet_counts){.refcount = 1};
    ramet_page_hold(cache, page, RAMET_BY_CONTEXTS);
    return page;
}

ramet_page *ramet_page_copy(ramet_cache *cache, const ramet_page *source) {
    ramet_page *page = ramet_page_create(cache);
    memcpy(ramet_slab_data(&cache->slab, page), ramet_slab_data(&cache->slab, source), cache->slab.data_stride);
    memcpy(page->tokens, source->tokens, cache->options.page_tokens * sizeof page->tokens[0]);
    cache->slab.n_copied++;
    return page;
}

void ramet_page_retain(ramet_page *page) {
    RAMET_ASSERT(page->counts.refcount > 0, "K2: page %u is retained but free", page->slot);
    page->counts.refcount++;
}

void ramet_page_release(ramet_cache *cache, ramet_page *page) {
    RAMET_ASSERT(page->counts.refcount > 0, "K2: page %u is released but free", page->slot);
    if (--page->counts.refcount > 0) return;
    RAMET_ASSERT(page->counts.holds[RAMET_BY_CONTEXTS] + page->counts.holds[RAMET_BY_TREE] == 0,
                 "K1: page %u is freed but held by %u and %u", page->slot, page->counts.holds[RAMET_BY_CONTEXTS],
                 page->counts.holds[RAMET_BY_TREE]);
    ramet_slab_give(&cache->slab, page);
}

void ramet_page_hold(ramet_cache *cache, ramet_page *page, ramet_holder holder) {
    if (page->counts.holds[holder]++ == 0) cache->slab.n_held[holder]++;
}

void ramet_page_unhold(ramet_cache *cache, ramet_page *page, ramet_holder holder) {
    RAMET_ASSERT(page->counts.holds[holder] > 0, "K11: page %u is let go by a holder that has none", page->slot);
    if (--page->counts.holds[holder] == 0) cache->slab.n_held[holder]--;
}
