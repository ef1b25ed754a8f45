/* break_copy.c - a fault for tests/teeth: a shared page is taken over instead of copied. Linked with --wrap. */
#include "state/internal.h"

ramet_page *__wrap_ramet_page_copy(ramet_cache *cache, const ramet_page *source);

ramet_page *__wrap_ramet_page_copy(ramet_cache *cache, const ramet_page *source) {
    ramet_page *page = ramet_slab_page(&cache->slab, source->slot);
    ramet_page_retain(page);
    ramet_page_hold(cache, page, RAMET_BY_CONTEXTS);
    return page;
}
