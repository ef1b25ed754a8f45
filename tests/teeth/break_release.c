/* break_release.c - a fault for tests/teeth: a page of which one of three pointers goes counts one too few. */
#include "state/internal.h"

void __real_ramet_page_release(ramet_cache *cache, ramet_page *page);
void __wrap_ramet_page_release(ramet_cache *cache, ramet_page *page);

void __wrap_ramet_page_release(ramet_cache *cache, ramet_page *page) {
    __real_ramet_page_release(cache, page);
    if (page->counts.refcount == 2) page->counts.refcount--;
}
