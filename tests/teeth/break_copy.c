/* break_copy.c - a fault for tests/teeth: a shared page is taken over instead of copied. Linked with --wrap. */
#include "state/internal.h"

ramet_block *__wrap_ramet_block_copy(ramet_cache *cache, const ramet_block *source);

ramet_block *__wrap_ramet_block_copy(ramet_cache *cache, const ramet_block *source) {
    return ramet_block_share(cache, ramet_blocks_at(&cache->blocks[source->kind], source->id), RAMET_BY_CONTEXTS);
}
