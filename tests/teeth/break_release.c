/* break_release.c - a fault for tests/teeth: a page of which one of three pointers goes counts one too few. */
#include "state/internal.h"

void __real_ramet_block_release(ramet_cache *cache, ramet_block *block);
void __wrap_ramet_block_release(ramet_cache *cache, ramet_block *block);

void __wrap_ramet_block_release(ramet_cache *cache, ramet_block *block) {
    __real_ramet_block_release(cache, block);
    if (block->counts.refcount == 2) block->counts.refcount--;
}
