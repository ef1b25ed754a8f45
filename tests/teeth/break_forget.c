/* break_forget.c - a fault for tests/teeth: the pager is never told to forget a block that is gone. Linked with --wrap. */
#include "state/internal.h"

void __real_ramet_blocks_forget(ramet_cache *cache, ramet_block *doomed);
void __wrap_ramet_blocks_forget(ramet_cache *cache, ramet_block *doomed);

static void nothing(void *user, uint64_t name) {
    (void)user, (void)name;
}

void __wrap_ramet_blocks_forget(ramet_cache *cache, ramet_block *doomed) {
    ramet_pager pager = cache->pager;
    cache->pager.forget = nothing;
    __real_ramet_blocks_forget(cache, doomed);
    cache->pager = pager;
}
