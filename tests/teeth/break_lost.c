/* break_lost.c - a fault for tests/teeth: entries that need a lost block stay. Linked with --wrap. */
#include "state/internal.h"

void __wrap_ramet_tree_remove_lost(ramet_cache *cache);

void __wrap_ramet_tree_remove_lost(ramet_cache *cache) {
    (void)cache;
}
