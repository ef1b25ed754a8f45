/* break_bytes.c - a fault for tests/teeth: a page that should be a copy has the tokens but not the bytes. */
#include "state/internal.h"

#include <string.h>

ramet_block *__wrap_ramet_block_copy(ramet_cache *cache, const ramet_block *source);

ramet_block *__wrap_ramet_block_copy(ramet_cache *cache, const ramet_block *source) {
    ramet_block *block = ramet_block_create(cache, (ramet_kind)source->kind);
    memcpy(block->tokens, source->tokens, cache->options.page_tokens * sizeof block->tokens[0]);
    cache->blocks[source->kind].n_copied++;
    return block;
}
