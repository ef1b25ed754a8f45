/* break_refcount.c - a fault for tests/teeth: a page that is retained counts one pointer too many now and then. */
#include "state/internal.h"

void __real_ramet_block_retain(ramet_block *block);
void __wrap_ramet_block_retain(ramet_block *block);

void __wrap_ramet_block_retain(ramet_block *block) {
    __real_ramet_block_retain(block);
    if (block->counts.refcount == 3) block->counts.refcount++;
}
