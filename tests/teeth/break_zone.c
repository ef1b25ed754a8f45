/* break_zone.c - a fault for tests/teeth: whoever has a name finds the first owner's zone. Linked with --wrap. */
#include "state/internal.h"

ramet_zone *__real_ramet_zone_find(ramet_tree *tree, const char *owner);
ramet_zone *__wrap_ramet_zone_find(ramet_tree *tree, const char *owner);

ramet_zone *__wrap_ramet_zone_find(ramet_tree *tree, const char *owner) {
    return owner && tree->n_zones > 0 ? tree->zones[0] : __real_ramet_zone_find(tree, owner);
}
