/* break_bytes.c - a fault for tests/teeth: a page that should be a copy has the tokens but not the bytes. */
#include "state/internal.h"

#include <string.h>

ramet_page *__wrap_ramet_page_copy(ramet_cache *cache, const ramet_page *source);

ramet_page *__wrap_ramet_page_copy(ramet_cache *cache, const ramet_page *source) {
    ramet_page *page = ramet_page_create(cache);
    memcpy(page->tokens, source->tokens, cache->options.page_tokens * sizeof page->tokens[0]);
    cache->slab.n_copied++;
    return page;
}
