/* zone.c - whose entries are whose: a radix tree per owner, and one that everybody's matches look into.
 *
 * Owns the list of zones, ascending by owner, and with tree.c K12: a match looks into the owner's zone and into
 * everybody's, so there is no way to another's. Refuses to know what an owner's name means. */
#include "state/internal.h"

#include <stdlib.h>
#include <string.h>

/* Where the owner's zone is, or would be. */
static size_t find_place(const ramet_tree *tree, const char *owner) {
    size_t low = 0, high = tree->n_zones;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(tree->zones[middle]->owner, owner) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

ramet_zone *ramet_zone_find(ramet_tree *tree, const char *owner) {
    if (!owner) return &tree->everybody;
    size_t i = find_place(tree, owner);
    return i < tree->n_zones && strcmp(tree->zones[i]->owner, owner) == 0 ? tree->zones[i] : NULL;
}

ramet_zone *ramet_zone_create(ramet_tree *tree, const char *owner) {
    void *zones = tree->zones;
    bool has_room = ramet_grow(&zones, &tree->zones_capacity, tree->n_zones + 1, sizeof *tree->zones);
    tree->zones = zones;
    size_t bytes = strlen(owner) + 1, i = find_place(tree, owner);
    ramet_zone *zone = has_room ? ramet_alloc(1, sizeof *zone) : NULL;
    if (!zone) return NULL;
    zone->owner = ramet_alloc(bytes, 1);
    if (!zone->owner) {
        free(zone);
        return NULL;
    }
    memcpy(zone->owner, owner, bytes);
    memmove(tree->zones + i + 1, tree->zones + i, (tree->n_zones - i) * sizeof *tree->zones);
    tree->zones[i] = zone;
    tree->n_zones++;
    return zone;
}

void ramet_zone_remove(ramet_tree *tree, ramet_zone *zone) {
    size_t i = find_place(tree, zone->owner);
    tree->n_zones--;
    memmove(tree->zones + i, tree->zones + i + 1, (tree->n_zones - i) * sizeof *tree->zones);
    free(zone->root.children);
    free(zone->owner);
    free(zone);
}
